import assert from 'node:assert/strict';
import { test } from 'node:test';
import { formatIpEndpoint, parseIpEndpoint } from '../steering/index.ts';
import { Announcements } from './announcements.ts';

const server = parseIpEndpoint('10.0.0.1:80');

function made(): { readonly announcements: Announcements; readonly told: string[] } {
  const told: string[] = [];
  const announcements = new Announcements({
    announce: (endpoint, peer, hasLibrary) =>
      told.push(`+${formatIpEndpoint(endpoint)} of ${peer}${hasLibrary ? ' with the library' : ''}`),
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
