// Datagrams between soft devices: SEND of one packet, from and to anybody.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { End, type EndOptions } from '../../../../test/conformance/rig.ts';
import { reap, settle, turn, until } from '../../../../test/conformance/wait.ts';
import {
  type Ah,
  CompletionBatch,
  completionFlags,
  completionRow,
  type Device,
  GRH_BYTES,
  gidBytes,
  openSoftDevice,
  type Qp,
  sendFlags,
} from '../../index.ts';
import { openSoftPair, unusedAddress } from '../fixtures/soft-pair.ts';
import { pattern } from './fixtures/qp-under-test.ts';
import { RawRocePeer } from './fixtures/raw-peer.ts';
import { operations, transports } from './opcode.ts';

const QKEY = 0x1111_1111;
/** Stands for the sender's own. */
const OWN_QKEY = 0x8000_0000;

function ready(qp: Qp, qkey = QKEY): void {
  qp.modify('INIT', { portNumber: 1, qkey });
  qp.modify('RTR');
  qp.modify('RTS', { sqPsn: 0xff_ffff });
}

function udEnd(stack: DisposableStack, device: Device, options: EndOptions = {}): End {
  const end = stack.use(new End(device, { ...options, type: 'UD' }));
  ready(end.qp);
  return end;
}

function handleTo(end: End, device: Device): Ah {
  return end.pd.createAh({ gid: device.port().gids[0] ?? '' });
}

interface Ends extends AsyncDisposable {
  readonly left: End;
  readonly right: End;
  readonly ah: Ah;
}

function openEnds(options: EndOptions = {}): Ends {
  const pair = openSoftPair('roce');
  const stack = new DisposableStack();
  const left = udEnd(stack, pair.left, options);
  const right = udEnd(stack, pair.right, options);
  return {
    left,
    right,
    ah: handleTo(left, pair.right),
    async [Symbol.asyncDispose]() {
      stack.dispose();
      await pair[Symbol.asyncDispose]();
    },
  };
}

/** Posts a datagram from memory that holds `pattern(bytes)`. */
function sendTo(from: End, ah: Ah, to: Qp, bytes: number, qkey = QKEY, wrId = 1): void {
  from.bytes(0, bytes).set(pattern(bytes));
  from.post((batch) =>
    batch
      .send(wrId)
      .sge(...from.at(0, bytes))
      .to(ah.handle, to.number, qkey),
  );
}

/** The next completion with what only rows tell. */
async function nextRow(end: End): Promise<{ readonly sourceQp: number; readonly flags: number; readonly imm: number }> {
  using batch = new CompletionBatch(1);
  await until('a datagram comes', () => end.receiveCq.poll(batch) === 1);
  assert.equal(batch.status(0), 0);
  return { sourceQp: batch.sourceQp(0), flags: batch.words[completionRow.flags], imm: batch.imm(0) };
}

function ipv4Checksum(header: Uint8Array): number {
  const view = new DataView(header.buffer, header.byteOffset, 20);
  let sum = 0;
  for (let at = 0; at < 20; at += 2) sum += view.getUint16(at);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16);
  return sum;
}

describe('RoCE datagrams', () => {
  test('anything but a SEND is refused on a UD queue pair', async () => {
    await using ends = openEnds();
    const { left, ah, right } = ends;
    const { rkey, address } = right.mr;
    for (const fill of [
      (batch: Parameters<Parameters<End['post']>[0]>[0]) => batch.write(1, address, rkey),
      (batch: Parameters<Parameters<End['post']>[0]>[0]) => batch.read(1, address, rkey),
      (batch: Parameters<Parameters<End['post']>[0]>[0]) => batch.fetchAdd(1, address, rkey, 1),
    ]) {
      assert.throws(
        () =>
          left.post((batch) =>
            fill(batch)
              .sge(...left.at(0, 8))
              .to(ah.handle, right.qp.number, QKEY),
          ),
        /it can only send/,
      );
    }
    assert.equal(left.qp.state, 'RTS');
  });

  test('one that is longer than the MTU is LOC_LEN_ERR, and one that is not goes', async () => {
    await using ends = openEnds();
    const { left, right, ah } = ends;
    right.receive(9, 0, 8192);
    sendTo(left, ah, right.qp, 4096, QKEY, 1);
    assert.deepEqual(await left.sentStatuses(), ['1:SUCCESS']);
    assert.equal((await right.received())[0]?.byteLength, GRH_BYTES + 4096);
    assert.deepEqual(right.bytes(GRH_BYTES, 4096), pattern(4096));
    sendTo(left, ah, right.qp, 4097, QKEY, 2);
    assert.deepEqual(await left.sentStatuses(), ['2:LOC_LEN_ERR']);
  });

  test('a handle that was closed, or never was, is LOC_QP_OP_ERR', async () => {
    for (const isClosed of [true, false]) {
      await using ends = openEnds();
      const { left, right, ah } = ends;
      const { handle } = ah;
      if (isClosed) ah.close();
      left.post((batch) => {
        batch
          .send(1)
          .sge(...left.at(0, 8))
          .to(isClosed ? handle : 0xffff, right.qp.number, QKEY);
        batch
          .send(2)
          .sge(...left.at(0, 8))
          .to(handle, right.qp.number, QKEY);
      });
      assert.deepEqual(await left.sentStatuses(2), ['1:LOC_QP_OP_ERR', '2:WR_FLUSH_ERR']);
      if (isClosed) assert.throws(() => ah.handle, /closed/);
    }
  });

  test('memory that may not be used is LOC_PROT_ERR', async () => {
    await using ends = openEnds();
    const { left, right, ah } = ends;
    left.post((batch) => batch.send(1).sge(0x999, left.mr.address, 8).to(ah.handle, right.qp.number, QKEY));
    assert.deepEqual(await left.sentStatuses(), ['1:LOC_PROT_ERR']);
  });

  for (const bytes of [0, 1, 3, 256, 4095, 4096]) {
    test(`a SEND of ${bytes} bytes arrives behind 40 bytes that say where it came from`, async () => {
      await using ends = openEnds();
      const { left, right, ah } = ends;
      right.bytes(0, 8192).fill(0xee);
      right.receive(9, 0, 8192);
      sendTo(left, ah, right.qp, bytes);
      const [completion] = await right.received();
      const { status, byteLength, opcode, wrId, qpNumber } = completion ?? {};
      assert.deepEqual(
        { status, byteLength, opcode, wrId, qpNumber },
        { status: 'SUCCESS', byteLength: GRH_BYTES + bytes, opcode: 'receive', wrId: 9, qpNumber: right.qp.number },
      );
      assert.deepEqual(right.bytes(GRH_BYTES, bytes), pattern(bytes));
      assert.ok(right.bytes(GRH_BYTES + bytes, 100).every((byte) => byte === 0xee));
      const header = right.bytes(20, 20);
      assert.ok(right.bytes(0, 20).every((byte) => byte === 0));
      assert.equal(header[0], 0x45);
      assert.equal(header[9], 17);
      assert.equal((header[2] << 8) | header[3], 20 + 8 + 12 + 8 + bytes + (-bytes & 3) + 4);
      assert.equal(ipv4Checksum(header), 0xffff);
      assert.deepEqual(header.slice(12, 16), gidBytes(left.device.port().gids[0] ?? '').slice(12));
      assert.deepEqual(header.slice(16, 20), gidBytes(right.device.port().gids[0] ?? '').slice(12));
      assert.deepEqual(await left.sentStatuses(), ['1:SUCCESS']);
    });
  }

  test('a SEND with data says so, and who sent it', async () => {
    await using ends = openEnds();
    const { left, right, ah } = ends;
    right.receive(9, 0, 64);
    left.post((batch) =>
      batch
        .sendWithImm(1, 0xfeed_face)
        .sge(...left.at(0, 8))
        .to(ah.handle, right.qp.number, QKEY),
    );
    const { sourceQp, flags, imm } = await nextRow(right);
    assert.deepEqual([sourceQp, imm], [left.qp.number, 0xfeed_face]);
    assert.equal(flags & completionFlags.hasImm, completionFlags.hasImm);
    assert.equal(flags & completionFlags.globalRoute, completionFlags.globalRoute, 'there is a route header');
  });

  test('a SEND is gathered from many places and scattered to many, the route header among them', async () => {
    await using ends = openEnds();
    const { left, right, ah } = ends;
    right.postReceives((batch) =>
      batch
        .receive(1)
        .sge(...right.at(0, 17))
        .sge(...right.at(100, 30))
        .sge(...right.at(200, 100)),
    );
    left.bytes(0, 60).set(pattern(60));
    left.post((batch) =>
      batch
        .send(1)
        .sge(...left.at(0, 21))
        .sge(...left.at(21, 39))
        .to(ah.handle, right.qp.number, QKEY),
    );
    assert.equal((await right.received())[0]?.byteLength, GRH_BYTES + 60);
    const whole = [...right.bytes(0, 17), ...right.bytes(100, 30), ...right.bytes(200, 53)];
    assert.equal(ipv4Checksum(Uint8Array.from(whole.slice(20, 40))), 0xffff);
    assert.deepEqual(whole.slice(40), [...pattern(60)]);
  });

  test('one with another queue key is dropped and counted; the top bit stands for the own', async () => {
    await using ends = openEnds();
    const { left, right, ah } = ends;
    right.receive(9, 0, 64);
    sendTo(left, ah, right.qp, 4, QKEY + 1);
    await until('it was dropped', () => right.device.counters.unexpected === 1);
    assert.deepEqual(reap(right.receiveCq), []);
    assert.deepEqual(await left.sentStatuses(), ['1:SUCCESS']);
    sendTo(left, ah, right.qp, 4, OWN_QKEY);
    assert.deepEqual(await right.receivedStatuses(), ['9:SUCCESS']);
  });

  test('without a receive it is lost, without an error', async () => {
    await using ends = openEnds();
    const { left, right, ah } = ends;
    sendTo(left, ah, right.qp, 4);
    await until('it was dropped', () => right.device.counters.unexpected === 1);
    right.receive(9, 0, 64);
    assert.deepEqual(await settle(right.receiveCq, 20), []);
    assert.deepEqual([left.qp.state, right.qp.state], ['RTS', 'RTS']);
    sendTo(left, ah, right.qp, 5);
    assert.equal((await right.received())[0]?.byteLength, GRH_BYTES + 5);
  });

  test('one that is longer than the next receive is lost, and the receive stays for one that fits', async () => {
    await using ends = openEnds();
    const { left, right, ah } = ends;
    right.bytes(0, 128).fill(0xee);
    right.receive(9, 0, GRH_BYTES + 8);
    sendTo(left, ah, right.qp, 9);
    await until('it was dropped', () => right.device.counters.unexpected === 1);
    assert.ok(right.bytes(0, 128).every((byte) => byte === 0xee));
    sendTo(left, ah, right.qp, 8);
    assert.equal((await right.received())[0]?.byteLength, GRH_BYTES + 8);
    assert.equal(right.bytes(GRH_BYTES + 8, 1)[0], 0xee);
    assert.equal(right.qp.state, 'RTS');
  });

  test('one for a QP that is not there, of another kind or in RESET goes nowhere', async () => {
    await using ends = openEnds();
    const { left, right, ah } = ends;
    const connected = right.createQp();
    const asleep = right.createQp({ type: 'UD' });
    left.post((batch) => {
      for (const number of [1, connected.number, asleep.number]) {
        batch
          .send(number)
          .sge(...left.at(0, 8))
          .to(ah.handle, number, QKEY);
      }
    });
    await until('they were dropped', () => right.device.counters.unexpected === 3);
    assert.equal((await left.sent(3)).length, 3);
  });

  test('many senders reach one QP, and each is told from the others', async () => {
    await using pair = openSoftPair('roce');
    using stack = new DisposableStack();
    const right = udEnd(stack, pair.right, { receiveRequests: 300 });
    const third = stack.use(openSoftDevice({ wire: 'roce', address: unusedAddress() }));
    const senders = [pair.left, third].map((device) => udEnd(stack, device, { sendRequests: 256 }));
    const qps = senders.flatMap((end) => {
      const others = [end.createQp({ type: 'UD' }), end.createQp({ type: 'UD' })];
      for (const qp of others) ready(qp, 5);
      return [end.qp, ...others].map((qp) => ({ end, qp }));
    });
    right.postReceives((batch) => {
      for (let wrId = 0; wrId < 120; wrId++) batch.receive(wrId).sge(...right.at(wrId * 64, 64));
    });
    for (const { end, qp } of qps) {
      const ah = handleTo(end, pair.right);
      end.post((batch) => {
        for (let index = 0; index < 20; index++) {
          batch
            .sendWithImm(index, index)
            .sge(...end.at(0, 4))
            .to(ah.handle, right.qp.number, QKEY);
        }
      }, qp);
    }
    const came = new Map<number, number[]>();
    for (let count = 0; count < 120; count++) {
      const { sourceQp, imm } = await nextRow(right);
      came.set(sourceQp, [...(came.get(sourceQp) ?? []), imm]);
    }
    const inOrder = Array.from({ length: 20 }, (_, index) => index);
    assert.deepEqual(
      new Map([...came].sort(([a], [b]) => a - b)),
      new Map(qps.map(({ qp }) => [qp.number, inOrder] as const).sort(([a], [b]) => a - b)),
    );
  });

  test('a QP can send to itself', async () => {
    await using ends = openEnds();
    const { left } = ends;
    const ah = handleTo(left, left.device);
    left.receive(9, 0, 64);
    left.put(128, 'hello');
    left.post((batch) =>
      batch
        .send(1)
        .sge(...left.at(128, 5))
        .to(ah.handle, left.qp.number, QKEY),
    );
    assert.equal((await nextRow(left)).sourceQp, left.qp.number);
    assert.equal(left.text(GRH_BYTES, 5), 'hello');
  });

  test('the packet is a SEND only with its key, its sender and numbers that go round', async () => {
    const address = unusedAddress();
    using device = openSoftDevice({ wire: 'roce', address });
    using rawPeer = new RawRocePeer(address);
    using stack = new DisposableStack();
    const end = udEnd(stack, device);
    const ah = end.pd.createAh({ gid: rawPeer.gid });
    end.post((batch) => {
      batch
        .send(1, sendFlags.signaled | sendFlags.solicited)
        .sge(...end.at(0, 5))
        .to(ah.handle, 0x77, 99);
      batch
        .sendWithImm(2, 3)
        .sge(...end.at(0, 4))
        .to(ah.handle, 0x78, OWN_QKEY);
    });
    const first = await rawPeer.next('a datagram');
    assert.deepEqual(
      [first.opcode, first.psn, first.destQp, first.qkey, first.sourceQp, first.isSolicited, first.payloadBytes],
      [transports.ud | operations.sendOnly, 0xff_ffff, 0x77, 99, end.qp.number, true, 5],
    );
    const second = await rawPeer.next('a datagram');
    assert.deepEqual(
      [second.opcode, second.psn, second.destQp, second.qkey, second.imm, second.isSolicited],
      [transports.ud | operations.sendOnlyWithImm, 0, 0x78, QKEY, 3, false],
    );
  });

  test('many more than the transmitter holds are all sent', async () => {
    await using ends = openEnds({ sendRequests: 2048, receiveRequests: 64, cqEntries: 4096 });
    const { left, right, ah } = ends;
    for (let times = 0; times < 4; times++) {
      left.post((batch) => {
        for (let index = 0; index < 500; index++) {
          batch
            .send(index, index === 499 ? sendFlags.signaled : 0)
            .sge(...left.at(0, 4096))
            .to(ah.handle, right.qp.number, QKEY);
        }
      });
      await left.sent();
    }
    await turn();
    assert.equal(left.device.counters.sent, 2000);
    assert.equal(left.device.counters.unsendable, 0);
  });

  test('an address handle needs an address of the right family, and a device takes no more than it has room for', async () => {
    await using ends = openEnds();
    const { left } = ends;
    assert.throws(() => left.pd.createAh({ gid: '2001:db8::1' }), /speaks IPv4 only/);
    assert.throws(() => left.pd.createAh({ gid: 'nowhere' }), /not an IPv6 address/);
    const handles = Array.from({ length: 4095 }, (_, index) =>
      left.pd.createAh({ gid: `::ffff:10.1.${index >> 8}.${index & 0xff}` }),
    );
    assert.throws(() => left.pd.createAh({ gid: '::ffff:10.2.0.0' }), /too many other hosts/);
    handles.pop()?.close();
    left.pd.createAh({ gid: '::ffff:10.2.0.0' }).close();
  });
});
