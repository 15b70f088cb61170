// What the port does with packets that are not for it, not whole or not right: it drops and counts
// them.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { reap, until } from '../../../../test/conformance/wait.ts';
import { openSoftDevice, type QpState } from '../../index.ts';
import { unusedAddress } from '../fixtures/soft-pair.ts';
import { pattern, psn, QpUnderTest } from './fixtures/qp-under-test.ts';
import { type Fields, RawRocePeer } from './fixtures/raw-peer.ts';
import { operations, transports } from './opcode.ts';

const { writeOnly, sendOnly, acknowledge } = operations;

type Fate = 'damaged' | 'malformed' | 'unexpected';

/** A write that would be carried out. */
function good(tested: QpUnderTest): Fields {
  return { opcode: writeOnly, ...tested.at(0, 4), psn: psn(0), isAckRequested: true };
}

/** Waits until a packet was dropped for that reason and no other, and nothing came of it. */
async function dropped(tested: QpUnderTest, fate: Fate): Promise<void> {
  await until(`a packet is ${fate}`, () => tested.device.counters.received === 1);
  const { damaged, malformed, unexpected, sent } = tested.device.counters;
  const expected = { damaged: 0, malformed: 0, unexpected: 0, sent: 0, [fate]: 1 };
  assert.deepEqual({ damaged, malformed, unexpected, sent }, expected);
  assert.ok(tested.end.bytes(0, 64).every((byte) => byte === 0));
  assert.deepEqual(reap(tested.end.receiveCq), []);
}

/** What is right still gets through. */
async function works(tested: QpUnderTest): Promise<void> {
  tested.rawPeer.send(good(tested), pattern(4, 1));
  await tested.rawPeer.nextPsn(psn(0), acknowledge);
  assert.deepEqual(tested.end.bytes(0, 4), pattern(4, 1));
}

const wrongs: readonly [name: string, fate: Fate, send: (tested: QpUnderTest) => void][] = [
  ['an empty datagram', 'damaged', ({ rawPeer }) => rawPeer.sendBytes(new Uint8Array(0))],
  ['a datagram of one byte', 'damaged', ({ rawPeer }) => rawPeer.sendBytes(Uint8Array.of(4))],
  ['a datagram of zeros', 'damaged', ({ rawPeer }) => rawPeer.sendBytes(new Uint8Array(64))],
  ['the longest datagram there is', 'damaged', ({ rawPeer }) => rawPeer.sendBytes(new Uint8Array(65_507))],
  [
    'a packet with a flipped bit',
    'damaged',
    (tested) => {
      const bytes = tested.rawPeer.seal(good(tested), pattern(4));
      bytes[30] ^= 4;
      tested.rawPeer.sendBytes(bytes);
    },
  ],
  [
    'a packet without its last four bytes',
    'damaged',
    (tested) => tested.rawPeer.sendBytes(tested.rawPeer.seal(good(tested), pattern(4)).slice(0, -4)),
  ],
  [
    'a packet with something behind it',
    'damaged',
    (tested) => tested.rawPeer.sendBytes(Uint8Array.of(...tested.rawPeer.seal(good(tested), pattern(4)), 0, 0, 0, 0)),
  ],
  ['an unknown operation', 'malformed', (tested) => tested.rawPeer.send({ ...good(tested), opcode: 0x1f })],
  ['an unknown transport', 'malformed', (tested) => tested.rawPeer.send({ ...good(tested), opcode: 0x84 })],
  [
    'another transport version',
    'malformed',
    (tested) => tested.rawPeer.send({ ...good(tested), version: 1 }, pattern(4)),
  ],
  [
    'an acknowledgement with a payload',
    'malformed',
    (tested) => tested.rawPeer.send({ ...good(tested), opcode: acknowledge }, pattern(4)),
  ],
  ['an unknown QP', 'unexpected', (tested) => tested.rawPeer.send({ ...good(tested), destQp: 1 }, pattern(4))],
  ['another partition', 'unexpected', (tested) => tested.rawPeer.send({ ...good(tested), pkey: 0x8001 }, pattern(4))],
  [
    'an unreliable connection',
    'unexpected',
    (tested) => tested.rawPeer.send({ ...good(tested), opcode: transports.uc | writeOnly }, pattern(4)),
  ],
  [
    'a datagram for a connected QP',
    'unexpected',
    (tested) => tested.rawPeer.send({ ...good(tested), opcode: transports.ud | sendOnly }, pattern(4)),
  ],
];

describe('RoCE port', () => {
  for (const [name, fate, send] of wrongs) {
    test(`${name} is dropped and counted as ${fate}`, async () => {
      using tested = new QpUnderTest();
      tested.end.receive(1, 0, 64);
      send(tested);
      await dropped(tested, fate);
      await works(tested);
    });
  }

  test('a limited member of the partition is heard', async () => {
    using tested = new QpUnderTest();
    tested.rawPeer.send({ ...good(tested), pkey: 0x7fff }, pattern(4));
    await tested.rawPeer.nextPsn(psn(0), acknowledge);
  });

  test('a packet from another address is dropped, right as it may be', async () => {
    using tested = new QpUnderTest();
    const address = tested.device.port().gids[0]?.replace('::ffff:', '') ?? '';
    using unknownPeer = new RawRocePeer(address);
    unknownPeer.testedQp = tested.end.qp.number;
    unknownPeer.send(good(tested), pattern(4));
    await dropped(tested, 'unexpected');
    assert.deepEqual(await unknownPeer.settled(20), []);
    await works(tested);
  });

  for (const state of ['RESET', 'INIT', 'ERR'] as const satisfies QpState[]) {
    test(`a QP in ${state} hears nothing`, async () => {
      using tested = new QpUnderTest({ state });
      tested.rawPeer.send(good(tested), pattern(4));
      await dropped(tested, 'unexpected');
    });
  }

  test('packets for a QP that was closed are dropped', async () => {
    using tested = new QpUnderTest();
    tested.end.qp.close();
    tested.rawPeer.send(good(tested), pattern(4));
    await dropped(tested, 'unexpected');
  });

  test('a packet with other congestion marks than it was sent with is whole', async () => {
    using tested = new QpUnderTest();
    const bytes = tested.rawPeer.seal(good(tested), pattern(4));
    bytes[4] = 0xc0;
    tested.rawPeer.sendBytes(bytes);
    await tested.rawPeer.nextPsn(psn(0), acknowledge);
  });

  test('what was received and sent is counted', async () => {
    using tested = new QpUnderTest();
    await works(tested);
    assert.deepEqual(tested.device.counters, {
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
    using tested = new QpUnderTest({ state: 'INIT' });
    const path = { gid: 'fe80::1' };
    const rest = { pathMtu: 1024, destQpNumber: 5, rqPsn: 0, maxDestRdAtomic: 1, minRnrTimer: 1 } as const;
    assert.throws(() => tested.end.qp.modify('RTR', { path, ...rest }), /speaks IPv4 only/);
    assert.equal(tested.end.qp.state, 'INIT');
    assert.throws(() => tested.end.pd.createAh(path), /speaks IPv4 only/);
  });
});
