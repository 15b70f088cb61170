// Which peers may reach which servers.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { parseIpEndpoint } from '../steering/index.ts';
import { Acceptance } from './acceptance.ts';

const server = (endpoint: string, command = '') => ({ endpoint: parseIpEndpoint(endpoint), command });

describe('acceptance', () => {
  test('without lines every peer reaches everything, with an empty list nothing', () => {
    const all = new Acceptance(undefined);
    assert.deepEqual(all.decide('b', server('10.0.0.1:80')), {
      isAccepted: true,
      reason: 'the config has no accept lines, so all peers are accepted',
    });
    assert.deepEqual(new Acceptance([]).decide('b', server('10.0.0.1:80')), {
      isAccepted: false,
      reason: 'no accept line is about it',
    });
    assert.equal(all.needsCommands, false);
  });

  test('the first line that matches decides, and is named', () => {
    const lines = [
      'accept from web-1 to any:22',
      'deny from web-* to any:22 # no ssh',
      'accept from web-* to 10.0.0.0/8',
    ];
    const acceptance = new Acceptance(lines);
    const decide = (peer: string, endpoint: string) => acceptance.decide(peer, server(endpoint));
    assert.deepEqual(decide('web-2', '10.0.0.1:22'), {
      isAccepted: false,
      reason: 'accept line 2 (deny from web-* to any:22)',
    });
    assert.equal(decide('web-1', '10.0.0.1:22').isAccepted, true);
    assert.equal(decide('web-2', '10.0.0.1:23').reason, 'accept line 3 (accept from web-* to 10.0.0.0/8)');
    assert.equal(decide('db', '10.0.0.1:23').isAccepted, false);
    assert.equal(decide('web-2', '[fd00::1]:23').reason, 'no accept line is about it');
    assert.equal(acceptance.needsCommands, false);
  });

  test('a server whose command is not known is denied by lines with a command, and not accepted by them', () => {
    const acceptance = new Acceptance([
      'deny to any:1 command sshd',
      'accept to any:2 command sshd',
      'accept to any:1',
    ]);
    assert.equal(acceptance.needsCommands, true);
    const decide = (port: number, command: string) => acceptance.decide('b', server(`10.0.0.1:${port}`, command));
    assert.equal(decide(1, '').reason, 'accept line 1 (deny to any:1 command sshd)');
    assert.equal(decide(1, 'sshd').isAccepted, false);
    assert.equal(decide(1, 'redis').isAccepted, true);
    assert.equal(decide(2, '').isAccepted, false);
    assert.equal(decide(2, 'sshd').isAccepted, true);
    assert.equal(decide(2, 'redis').isAccepted, false);
  });

  test('it decides as a simple model does', () => {
    const letters = (most: number, least = 1) =>
      fc.string({ unit: fc.constantFrom('a', 'b', '-'), minLength: least, maxLength: most });
    const pattern = fc
      .tuple(fc.constantFrom('a', 'b', '*'), fc.string({ unit: fc.constantFrom('a', 'b', '*'), maxLength: 4 }))
      .map((parts) => parts.join(''));
    const command = fc.constantFrom('x', 'y');
    const anyLine = fc.record(
      {
        action: fc.constantFrom('accept', 'deny'),
        from: fc.array(pattern, { minLength: 1, maxLength: 2 }),
        to: fc.constantFrom(8, 24, 31),
        ports: fc
          .tuple(fc.integer({ min: 1, max: 3 }), fc.nat(2))
          .map(([first, more]) => [first, first + more] as const),
        command,
      },
      { requiredKeys: ['action'] },
    );
    const textOf = ({ action, from, to, ports, command: name }: Parameters<typeof isModelled>[0]): string => {
      const range = ports === undefined ? '' : `:${ports[0]}-${ports[1]}`;
      const place = to === undefined ? 'any' : `10.0.0.0/${to}`;
      const words = [action, ...(from ? ['from', from.join(',')] : []), 'to', `${place}${range}`];
      return [...words, ...(name ? ['command', name] : [])].join(' ');
    };
    fc.assert(
      fc.property(
        fc.array(anyLine, { maxLength: 5 }),
        letters(4).map((rest) => `a${rest}`),
        fc.tuple(fc.nat(1), fc.nat(3)),
        fc.integer({ min: 1, max: 5 }),
        command,
        (lines, peer, [third, last], port, name) => {
          const first = lines.findIndex((line) => isModelled(line, peer, third, last, port, name));
          const decided = new Acceptance(lines.map(textOf)).decide(peer, server(`10.0.${third}.${last}:${port}`, name));
          assert.equal(decided.isAccepted, lines[first]?.action === 'accept');
          if (first >= 0) assert.ok(decided.reason.startsWith(`accept line ${first + 1} (`), decided.reason);
        },
      ),
    );
  });
});

interface ModelledLine {
  readonly action: string;
  readonly from?: readonly string[] | undefined;
  readonly to?: number | undefined;
  readonly ports?: readonly [number, number] | undefined;
  readonly command?: string | undefined;
}

/** Whether the line is about a server at 10.0.THIRD.LAST. */
function isModelled(
  { from, to, ports, command }: ModelledLine,
  peer: string,
  third: number,
  last: number,
  port: number,
  name: string,
): boolean {
  const isNear = to === undefined || to === 8 || (third === 0 && (to === 24 || last < 2));
  const isFrom = from?.some((one) => new RegExp(`^${one.replaceAll('*', '.*')}$`).test(peer)) ?? true;
  const isAt = ports === undefined || (ports[0] <= port && port <= ports[1]);
  return isNear && isFrom && isAt && (command === undefined || command === name);
}
