// A quarter of a million malformed and hostile packets for QPs in every state.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { modifyToRts } from '../../../../test/conformance/connect.ts';
import { Rig } from '../../../../test/conformance/rig.ts';
import { reap, turn, until } from '../../../../test/conformance/wait.ts';
import { SharedMemory } from '../../../native/index.ts';
import { access, CompletionBatch, openSoftDevice, type QpState, ReceiveBatch } from '../../index.ts';
import { generator } from '../fixtures/mutation.ts';
import { unusedAddress } from '../fixtures/soft-pair.ts';
import { FuzzedPort } from './fixtures/fuzzed-port.ts';
import { script, spoilBytes, spoilFields, validFields, validPacket } from './fixtures/mutation.ts';
import { PSN, pattern, RAW_PEER_QP } from './fixtures/qp-under-test.ts';
import { RawRocePeer } from './fixtures/raw-peer.ts';
import { Packet } from './packet.ts';

// MILLRACE_FUZZ_SEED repeats a run.
const seed = Number(process.env.MILLRACE_FUZZ_SEED ?? Date.now() % 1_000_000_000);

const HANDED = 100_000;
const SENT = 30_000;
const PAGE = 4096;
const states = ['RTS', 'RTS', 'RTS', 'RTR', 'SQD', 'INIT', 'RESET', 'ERR'] as const satisfies readonly QpState[];

describe(`RoCE under fire (seed ${seed})`, () => {
  for (const kind of ['RC', 'UD'] as const) {
    test(`${HANDED / 2} packets at a ${kind} queue pair in all states leave everything but its region alone`, () => {
      const random = generator(seed + kind.charCodeAt(0));
      using port = new FuzzedPort();
      const bytes = new Uint8Array(8192);
      const ends = new Map<QpState, number>();
      const taken = new Map<string, number>();
      for (let count = 0; count < HANDED / 2; ) {
        const state = states[random(states.length)] ?? 'RTS';
        port.modifyToRts(kind, state);
        for (const [index, opcode] of script(kind, random).entries()) {
          count++;
          const packet = new Packet();
          const payloadBytes = validFields(packet, opcode, index, port.known, random);
          if (random(4) === 0) spoilFields(packet, random);
          let length = validPacket(bytes, packet, payloadBytes, random);
          if (random(4) === 0) length = spoilBytes(bytes, length, random);
          if (random(50) === 0) for (let at = 0; at < length; at++) bytes[at] = random(256);
          const wasTaken = port.feed(kind, bytes.subarray(0, length), random(4) === 0 ? random(65_536) : 0);
          if (wasTaken) taken.set(state, (taken.get(state) ?? 0) + 1);
        }
        const end = port.finish(kind, random(3) * 1e8);
        ends.set(end, (ends.get(end) ?? 0) + 1);
        if (random(500) === 0) assert.equal(port.isSpoilt, false, `after ${count} packets`);
      }
      assert.equal(port.isSpoilt, false);
      // Most must get past the first look, or this proves nothing.
      assert.ok((taken.get('RTS') ?? 0) > HANDED / 20, JSON.stringify([...taken]));
      assert.deepEqual(
        ['RESET', 'INIT', 'ERR'].map((state) => taken.get(state)),
        [undefined, undefined, undefined],
      );
      if (kind === 'RC')
        assert.ok((ends.get('RTS') ?? 0) > 100 && (ends.get('ERR') ?? 0) > 100, JSON.stringify([...ends]));
    });
  }

  test(`${SENT} packets through the socket do no harm, and other QPs of the device go on`, async () => {
    const random = generator(seed + 3);
    using stack = new DisposableStack();
    const address = unusedAddress();
    const device = stack.use(openSoftDevice({ wire: 'roce', address }));
    const other = stack.use(openSoftDevice({ wire: 'roce', address: unusedAddress() }));
    const rawPeer = stack.use(new RawRocePeer(address));
    const rig = stack.use(Rig.build({ left: other, right: device }));
    const { pd } = rig.right;
    const memory = stack.use(SharedMemory.create({ sizeBytes: 3 * PAGE }));
    const canary = new Uint8Array(memory.buffer).fill(0xa5);
    const flags = access.localWrite | access.remoteWrite | access.remoteRead | access.remoteAtomic;
    const mr = pd.register(memory, { offset: PAGE, sizeBytes: PAGE, access: flags });
    const known = { rkey: mr.rkey, address: mr.address, sizeBytes: PAGE, psn: PSN, qkey: 7, mtu: 256 } as const;
    const cq = device.createCq({ entries: 4096 });
    const receives = stack.use(new ReceiveBatch({ capacity: 4 }));
    for (let wrId = 0; wrId < 4; wrId++) receives.receive(wrId).sge(mr.lkey, mr.address + wrId * 600, 600);
    const connected = pd.createQp({ sendCq: cq });
    const datagrams = pd.createQp({ type: 'UD', sendCq: cq });
    datagrams.modify('INIT', { portNumber: 1, qkey: 7 });
    datagrams.modify('RTR');
    const revive = (): void => {
      connected.modify('RESET');
      const peer = { device, qpNumber: RAW_PEER_QP, psn: PSN };
      const attributes = { path: { gid: rawPeer.gid }, pathMtu: 256 } as const;
      modifyToRts(connected, 'RTS', PSN, peer, { access: flags, attributes });
    };
    const completions = stack.use(new CompletionBatch(1024));
    for (let sent = 0; sent < SENT; ) {
      revive();
      for (const qp of [connected, datagrams]) qp.postReceive(receives);
      for (let batch = 0; batch < 8; batch++) {
        const kind = random(4) === 0 ? 'UD' : 'RC';
        for (const [index, opcode] of script(kind, random).entries()) {
          sent++;
          const packet = new Packet();
          const payloadBytes = validFields(packet, opcode, index, known, random);
          if (random(3) === 0) spoilFields(packet, random);
          packet.destQp = random(64) === 0 ? random(0x100_0000) : kind === 'RC' ? connected.number : datagrams.number;
          const bytes = rawPeer.seal(packet, pattern(payloadBytes, sent));
          if (random(16) === 0) bytes[random(bytes.length)] ^= 1 << random(8);
          rawPeer.sendBytes(bytes);
        }
      }
      await turn();
      while (cq.poll(completions) > 0);
    }
    await rawPeer.settled(10);
    const { received, damaged, malformed, unexpected } = device.counters;
    assert.ok((received ?? 0) > SENT * 0.8, `${received} received`);
    for (const count of [damaged, malformed, unexpected]) assert.ok((count ?? 0) > 10);
    assert.ok((unexpected ?? 0) < (received ?? 0) * 0.9);
    assert.ok(canary.subarray(0, PAGE).every((byte) => byte === 0xa5));
    assert.ok(canary.subarray(2 * PAGE).every((byte) => byte === 0xa5));

    // The healthy pair.
    const { left, right } = rig;
    right.receive(1, 0, 64);
    left.put(0, 'still here');
    left.post((batch) => batch.send(1).sge(...left.at(0, 10)));
    assert.deepEqual(await right.receivedStatuses(), ['1:SUCCESS']);
    assert.equal(right.text(0, 10), 'still here');
    right.post((batch) => batch.write(2, left.mr.address + 100, left.mr.rkey).sge(...right.at(0, 10)));
    assert.deepEqual(await right.sentStatuses(), ['2:SUCCESS']);
    await until('the send completes', () => reap(left.sendCq).length === 1);
  });
});
