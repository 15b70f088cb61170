// What the port does with packets that are not for it, not whole or not right: it drops and counts them.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { reap, until } from '../../../../test/conformance/wait.ts';
import { openSoftDevice, type QpState } from '../../index.ts';
import { unusedAddress } from '../fixtures/soft-pair.ts';
import { type Fields, RoceImpostor } from './fixtures/impostor.ts';
import { pattern, psn, Victim } from './fixtures/victim.ts';
import { operations, transports } from './opcode.ts';

const { writeOnly, sendOnly, acknowledge } = operations;

type Fate = 'damaged' | 'malformed' | 'unexpected';

/** A write that would be carried out. */
function good(victim: Victim): Fields {
  return { opcode: writeOnly, ...victim.at(0, 4), psn: psn(0), isAckRequested: true };
}

/** Waits until a packet was dropped for that reason and no other, and nothing came of it. */
async function dropped(victim: Victim, fate: Fate): Promise<void> {
  await until(`a packet is ${fate}`, () => victim.device.counters.received === 1);
  const { damaged, malformed, unexpected, sent } = victim.device.counters;
  const expected = { damaged: 0, malformed: 0, unexpected: 0, sent: 0, [fate]: 1 };
  assert.deepEqual({ damaged, malformed, unexpected, sent }, expected);
  assert.ok(victim.end.bytes(0, 64).every((byte) => byte === 0));
  assert.deepEqual(reap(victim.end.receiveCq), []);
}

/** What is right still gets through. */
async function works(victim: Victim): Promise<void> {
  victim.impostor.send(good(victim), pattern(4, 1));
  await victim.impostor.nextPsn(psn(0), acknowledge);
  assert.deepEqual(victim.end.bytes(0, 4), pattern(4, 1));
}

const wrongs: readonly [name: string, fate: Fate, send: (victim: Victim) => void][] = [
  ['an empty datagram', 'damaged', ({ impostor }) => impostor.sendBytes(new Uint8Array(0))],
  ['a datagram of one byte', 'damaged', ({ impostor }) => impostor.sendBytes(Uint8Array.of(4))],
  ['a datagram of zeros', 'damaged', ({ impostor }) => impostor.sendBytes(new Uint8Array(64))],
  ['the longest datagram there is', 'damaged', ({ impostor }) => impostor.sendBytes(new Uint8Array(65_507))],
  [
    'a packet with a flipped bit',
    'damaged',
    (victim) => {
      const bytes = victim.impostor.seal(good(victim), pattern(4));
      bytes[30] ^= 4;
      victim.impostor.sendBytes(bytes);
    },
  ],
  [
    'a packet without its last four bytes',
    'damaged',
    (victim) => victim.impostor.sendBytes(victim.impostor.seal(good(victim), pattern(4)).slice(0, -4)),
  ],
  [
    'a packet with something behind it',
    'damaged',
    (victim) => victim.impostor.sendBytes(Uint8Array.of(...victim.impostor.seal(good(victim), pattern(4)), 0, 0, 0, 0)),
  ],
  ['an unknown operation', 'malformed', (victim) => victim.impostor.send({ ...good(victim), opcode: 0x1f })],
  ['an unknown transport', 'malformed', (victim) => victim.impostor.send({ ...good(victim), opcode: 0x84 })],
  [
    'another transport version',
    'malformed',
    (victim) => victim.impostor.send({ ...good(victim), version: 1 }, pattern(4)),
  ],
  [
    'an acknowledgement with a payload',
    'malformed',
    (victim) => victim.impostor.send({ ...good(victim), opcode: acknowledge }, pattern(4)),
  ],
  ['an unknown QP', 'unexpected', (victim) => victim.impostor.send({ ...good(victim), destQp: 1 }, pattern(4))],
  ['another partition', 'unexpected', (victim) => victim.impostor.send({ ...good(victim), pkey: 0x8001 }, pattern(4))],
  [
    'an unreliable connection',
    'unexpected',
    (victim) => victim.impostor.send({ ...good(victim), opcode: transports.uc | writeOnly }, pattern(4)),
  ],
  [
    'a datagram for a connected QP',
    'unexpected',
    (victim) => victim.impostor.send({ ...good(victim), opcode: transports.ud | sendOnly }, pattern(4)),
  ],
];

describe('RoCE port', () => {
  for (const [name, fate, send] of wrongs) {
    test(`${name} is dropped and counted as ${fate}`, async () => {
      using victim = new Victim();
      victim.end.receive(1, 0, 64);
      send(victim);
      await dropped(victim, fate);
      await works(victim);
    });
  }

  test('a limited member of the partition is heard', async () => {
    using victim = new Victim();
    victim.impostor.send({ ...good(victim), pkey: 0x7fff }, pattern(4));
    await victim.impostor.nextPsn(psn(0), acknowledge);
  });

  test('a packet from another address is dropped, right as it may be', async () => {
    using victim = new Victim();
    const address = victim.device.port().gids[0]?.replace('::ffff:', '') ?? '';
    using stranger = new RoceImpostor(address);
    stranger.victimQp = victim.end.qp.number;
    stranger.send(good(victim), pattern(4));
    await dropped(victim, 'unexpected');
    assert.deepEqual(await stranger.settled(20), []);
    await works(victim);
  });

  for (const state of ['RESET', 'INIT', 'ERR'] as const satisfies QpState[]) {
    test(`a QP in ${state} hears nothing`, async () => {
      using victim = new Victim({ state });
      victim.impostor.send(good(victim), pattern(4));
      await dropped(victim, 'unexpected');
    });
  }

  test('packets for a QP that was closed are dropped', async () => {
    using victim = new Victim();
    victim.end.qp.close();
    victim.impostor.send(good(victim), pattern(4));
    await dropped(victim, 'unexpected');
  });

  test('a packet with other congestion marks than it was sent with is whole', async () => {
    using victim = new Victim();
    const bytes = victim.impostor.seal(good(victim), pattern(4));
    bytes[4] = 0xc0;
    victim.impostor.sendBytes(bytes);
    await victim.impostor.nextPsn(psn(0), acknowledge);
  });

  test('what was received and sent is counted', async () => {
    using victim = new Victim();
    await works(victim);
    assert.deepEqual(victim.device.counters, {
      received: 1,
      damaged: 0,
      malformed: 0,
      unexpected: 0,
      cut: 0,
      sent: 1,
      unsendable: 0,
    });
  });

  test('counters of a closed device cannot be read, and a device without packets has none', () => {
    const device = openSoftDevice({ wire: 'roce', address: unusedAddress() });
    device.close();
    assert.throws(() => device.counters, /closed/);
    const shm = openSoftDevice({ wire: 'tcp' });
    assert.deepEqual(shm.counters, {});
    shm.close();
  });

  test('an address that is taken, not of this host or no address is refused', () => {
    const address = unusedAddress();
    const device = openSoftDevice({ wire: 'roce', address });
    assert.throws(() => openSoftDevice({ wire: 'roce', address }), /another device has UDP port 4791 there/);
    device.close();
    openSoftDevice({ wire: 'roce', address }).close();
    assert.throws(() => openSoftDevice({ wire: 'roce', address: '203.0.113.9' }), /this host has no such address/);
    assert.throws(() => openSoftDevice({ wire: 'roce', address: 'example.com' }), /not an IP address/);
  });

  test('a peer of the other family cannot be reached, and that is said', () => {
    using victim = new Victim({ state: 'INIT' });
    const path = { gid: 'fe80::1' };
    const rest = { pathMtu: 1024, destQpNumber: 5, rqPsn: 0, maxDestRdAtomic: 1, minRnrTimer: 1 } as const;
    assert.throws(() => victim.end.qp.modify('RTR', { path, ...rest }), /speaks IPv4 only/);
    assert.equal(victim.end.qp.state, 'INIT');
    assert.throws(() => victim.end.pd.createAh(path), /speaks IPv4 only/);
  });
});
