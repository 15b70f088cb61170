import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { formatIpEndpoint, type IpEndpoint, parseIpEndpoint } from '../steering/index.ts';
import { Announcements } from './announcements.ts';

const server = parseIpEndpoint('10.0.0.1:80');

function made(): { readonly announcements: Announcements; readonly told: string[] } {
  const told: string[] = [];
  const announcements = new Announcements({
    announce: (endpoint, peer, hasLibrary) => {
      told.push(`+${formatIpEndpoint(endpoint)} of ${peer}${hasLibrary ? ' with the library' : ''}`);
      return true;
    },
    withdraw: (endpoint) => told.push(`-${formatIpEndpoint(endpoint)}`),
  });
  return { announcements, told };
}

test('an endpoint is announced while at least one peer has it', () => {
  const { announcements, told } = made();
  announcements.add(server, 1);
  announcements.add(server, 2);
  announcements.remove(server);
  assert.deepEqual(told.splice(0), ['+10.0.0.1:80 of 1']);
  announcements.remove(server);
  assert.deepEqual(told, ['-10.0.0.1:80']);
});

test('that its programs have the library is told before and after, of the peer that announced it only', () => {
  const { announcements, told } = made();
  announcements.setLibrary(server, 1, true);
  announcements.setLibrary(server, 2, true);
  assert.deepEqual(told.splice(0), []);
  announcements.add(server, 1);
  announcements.setLibrary(server, 2, false);
  announcements.setLibrary(server, 1, false);
  announcements.setLibrary(server, 1, true);
  assert.deepEqual(told, [
    '+10.0.0.1:80 of 1 with the library',
    '+10.0.0.1:80 of 1',
    '+10.0.0.1:80 of 1 with the library',
  ]);
});

describe('a table that is full', () => {
  const CAPACITY = 12;
  const nth = (peer: number, index: number): IpEndpoint => parseIpEndpoint(`10.0.${peer}.${index + 1}:80`);

  class Full {
    readonly table = new Map<string, number>();
    readonly heard: boolean[] = [];
    readonly announcements = new Announcements(
      {
        announce: (endpoint, peer) => {
          const key = formatIpEndpoint(endpoint);
          if (this.table.size >= CAPACITY && !this.table.has(key)) return false;
          this.table.set(key, peer);
          return true;
        },
        withdraw: (endpoint) => {
          assert.ok(this.table.delete(formatIpEndpoint(endpoint)), 'it was there');
        },
      },
      (isFull) => this.heard.push(isFull),
    );

    countOf(peer: number): number {
      return Array.from(this.table.values()).filter((one) => one === peer).length;
    }
  }

  test('is shared: whoever has most gives way, and gets it back', () => {
    const full = new Full();
    const { table, heard, announcements } = full;
    const countOf = (peer: number): number => full.countOf(peer);
    for (let index = 0; index < 20; index++) announcements.add(nth(1, index), 1);
    assert.deepEqual([countOf(1), announcements.leftOut, heard], [12, 8, [true]]);
    for (let index = 0; index < 3; index++) announcements.add(nth(2, index), 2);
    assert.deepEqual([countOf(1), countOf(2), announcements.leftOut], [9, 3, 11]);
    for (let index = 0; index < 20; index++) announcements.add(nth(3, index), 3);
    assert.ok(countOf(2) === 3 && Math.abs(countOf(1) - countOf(3)) <= 1, `${countOf(1)} and ${countOf(3)}`);
    for (let index = 0; index < 20; index++) announcements.remove(nth(1, index));
    for (let index = 0; index < 3; index++) announcements.remove(nth(2, index));
    assert.deepEqual([countOf(1), countOf(2), countOf(3)], [0, 0, 12]);
    for (let index = 0; index < 20; index++) announcements.remove(nth(3, index));
    assert.deepEqual([table.size, announcements.leftOut, heard], [0, 0, [true, false]]);
  });

  test('has no entry that nobody announced, whatever comes and goes', () => {
    const step = fc.record({ peer: fc.integer({ min: 1, max: 4 }), index: fc.nat(9), isAdded: fc.boolean() });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 200 }), (steps) => {
        const full = new Full();
        const open = new Map<string, IpEndpoint>();
        for (const { peer, index, isAdded } of steps) {
          const endpoint = nth(peer, index);
          const key = formatIpEndpoint(endpoint);
          if (isAdded === open.has(key)) continue;
          if (isAdded) full.announcements.add(endpoint, peer);
          else full.announcements.remove(endpoint);
          if (isAdded) open.set(key, endpoint);
          else open.delete(key);
          assert.equal(full.table.size, Math.min(CAPACITY, open.size));
          assert.equal(full.announcements.leftOut, open.size - full.table.size);
          for (const told of full.table.keys()) assert.ok(open.has(told));
          for (const [name, each] of open) assert.equal(full.announcements.isLeftOut(each), !full.table.has(name));
        }
      }),
    );
  });
});
