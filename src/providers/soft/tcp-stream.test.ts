// The stream of a TCP connection: whatever is sent arrives once and in order, however full the
// socket is and however the bytes are cut; and acknowledgements that wait are sent after all.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { Rig } from '../../../test/conformance/rig.ts';
import { until } from '../../../test/conformance/wait.ts';
import { AGAIN, Poller, RangeList, SharedMemory, Socket } from '../../native/index.ts';
import { CompletionBatch, sendFlags } from '../index.ts';
import { openSoftPair } from './fixtures/soft-pair.ts';
import { Pieces } from './pieces.ts';
import { STREAM_BYTES, streamEvents, TcpStream } from './tcp-stream.ts';

const MEMORY_BYTES = 1024 * 1024;
const TOKEN = 1;

/** A stream with its events, and memory to send from and receive to. */
class End implements Disposable {
  readonly memory = SharedMemory.create({ sizeBytes: MEMORY_BYTES });
  readonly #scratch = SharedMemory.create({ sizeBytes: STREAM_BYTES });
  readonly #ranges = new RangeList(8);
  readonly #poller = Poller.create();
  readonly stream: TcpStream;

  constructor(socket: Socket) {
    socket.setOption('sendBuffer', 16_384);
    this.#poller.add(socket.fd, streamEvents, TOKEN);
    this.stream = new TcpStream(socket, this.#ranges, this.#scratch, 0, () => {});
  }

  /** Takes events, as the device does before it pumps. */
  attend(): void {
    if (this.#poller.wait(0) > 0) this.stream.onEvents(this.#poller.events(0));
  }

  [Symbol.dispose](): void {
    this.stream.close();
    this.#poller.close();
    this.#ranges.close();
    this.#scratch.close();
    this.memory.close();
  }
}

interface Receiver {
  readonly end: End;
  at: number;
}

/** Receives up to `length` bytes, as far as they have come. False when nothing came. */
function receiveSome(receiver: Receiver, length: number): boolean {
  const { end } = receiver;
  end.attend();
  const got = end.stream.receive(end.memory, receiver.at, length);
  if (got === AGAIN) return false;
  assert.ok(got > 0, 'the end came before the bytes');
  receiver.at += got;
  return true;
}

describe('the stream of a TCP connection', () => {
  test('hands on every byte once and in order, whatever the sizes of frames and receives', () => {
    const sizes = fc.array(fc.oneof(fc.integer({ min: 1, max: 200 }), fc.integer({ min: 1, max: 60_000 })), {
      minLength: 1,
      maxLength: 12,
    });
    fc.assert(
      fc.property(sizes, sizes, fc.array(fc.boolean(), { minLength: 1, maxLength: 20 }), (frames, receives, turns) => {
        const [left, right] = Socket.pair();
        using sender = new End(left);
        using receiverEnd = new End(right);
        const receiver: Receiver = { end: receiverEnd, at: 0 };
        const sent = new Uint8Array(sender.memory.buffer);
        for (let index = 0; index < sent.length; index++) sent[index] = (index * 31 + (index >>> 8)) & 0xff;
        const pieces = new Pieces();
        let [from, step] = [0, 0];
        const receive = (): boolean => receiveSome(receiver, receives[step++ % receives.length] ?? 1);
        for (const [index, frame] of frames.entries()) {
          pieces.clear();
          // A header and a payload, as a link sends them.
          pieces.add(sender.memory, from, Math.min(56, frame));
          pieces.add(sender.memory, from + 56, Math.max(0, frame - 56));
          let skip = 0;
          while (skip < frame) {
            const took = sender.stream.send(pieces, skip);
            if (took !== AGAIN) skip += took;
            else receive();
          }
          from += frame;
          if (turns[index % turns.length]) sender.stream.flush();
        }
        while (receiver.at < from) {
          sender.stream.flush();
          receive();
        }
        assert.deepEqual(
          Buffer.compare(new Uint8Array(receiverEnd.memory.buffer, 0, from), sent.subarray(0, from)),
          0,
          'the bytes differ',
        );
        assert.equal(receiveSome(receiver, 100), false);
      }),
      { numRuns: 150 },
    );
  });

  test('small frames are held until a flush, and go out before a long one', () => {
    const [left, right] = Socket.pair();
    using sender = new End(left);
    using receiver = new End(right);
    const pieces = new Pieces();
    pieces.add(sender.memory, 0, 100);
    assert.equal(sender.stream.send(pieces, 0), 100);
    assert.equal(right.receivableBytes, 0);
    sender.stream.flush();
    assert.equal(right.receivableBytes, 100);
    assert.equal(sender.stream.send(pieces, 0), 100);
    const long = new Pieces();
    long.add(sender.memory, 0, 5000);
    assert.equal(sender.stream.send(long, 0), 5000);
    assert.equal(right.receivableBytes, 5200);
    receiver.attend();
    assert.equal(receiver.stream.waitingBytes, 5200);
  });

  test('the end is received after the last bytes, also when one event told of both', () => {
    const [left, right] = Socket.pair();
    using receiver = new End(right);
    left.send(receiver.memory, 0, 10);
    left.close();
    receiver.attend();
    assert.equal(receiver.stream.receive(receiver.memory, 0, 100), 10);
    assert.equal(receiver.stream.receive(receiver.memory, 0, 100), 0);
  });

  test('an empty socket is not asked again before an event', () => {
    const [left, right] = Socket.pair();
    using receiver = new End(right);
    using other = left;
    other.send(receiver.memory, 0, 10);
    assert.equal(receiver.stream.receive(receiver.memory, 0, 100), 10);
    other.send(receiver.memory, 0, 10);
    assert.equal(receiver.stream.receive(receiver.memory, 0, 100), AGAIN);
    receiver.attend();
    assert.equal(receiver.stream.receive(receiver.memory, 0, 100), 10);
  });
});

describe('an acknowledgement that waits', () => {
  const bounded = { timeout: 30_000 };

  /** Polls once a call, without the event loop. */
  function poll(cq: Rig['left']['sendCq'], into: CompletionBatch, count: number): void {
    let found = 0;
    const endMs = performance.now() + 20_000;
    while (found < count) {
      found += cq.poll(into);
      assert.ok(performance.now() < endMs, `${found} of ${count} completions came`);
    }
  }

  async function connectedRig(pair: ReturnType<typeof openSoftPair>): Promise<Rig> {
    const rig = Rig.build(pair);
    rig.right.receive(0, 0, 64);
    rig.left.post((batch) => batch.send(1).sge(...rig.left.at(0, 64)));
    await rig.left.sent();
    await rig.right.received();
    return rig;
  }

  test('is sent when the program polls on, without an answer', bounded, async () => {
    await using pair = openSoftPair('tcp');
    using rig = await connectedRig(pair);
    const { left, right } = rig;
    using completions = new CompletionBatch(4);
    right.receive(1, 0, 64);
    left.post((batch) => batch.send(2).sge(...left.at(0, 64)));
    poll(right.receiveCq, completions, 1);
    const endMs = performance.now() + 20_000;
    while (left.sendCq.poll(completions) === 0) {
      right.receiveCq.poll(completions);
      assert.ok(performance.now() < endMs, 'no acknowledgement came');
    }
  });

  test('is sent by the event loop when the program never polls again', bounded, async () => {
    await using pair = openSoftPair('tcp');
    using rig = await connectedRig(pair);
    const { left, right } = rig;
    using completions = new CompletionBatch(4);
    right.receive(1, 0, 64);
    left.post((batch) => batch.send(2).sge(...left.at(0, 64)));
    poll(right.receiveCq, completions, 1);
    await until('the acknowledgement', () => left.sendCq.poll(completions) === 1);
  });

  test('is not asked for by requests without a completion, until half of the queue is full', bounded, async () => {
    await using pair = openSoftPair('tcp');
    using rig = Rig.build(pair, { left: { sendRequests: 8 } });
    const { left, right } = rig;
    const { address, rkey } = right.mr.remote();
    const write = (wrId: number, flags: number): void =>
      left.post((batch) => batch.write(wrId, address, rkey, flags).sge(...left.at(0, 64)));
    // Twenty are more than the queue has places for.
    for (let wrId = 0; wrId < 20; wrId++) {
      await until('room in the queue', () => {
        const posted = left.tryPost((batch) => batch.write(wrId, address, rkey, 0).sge(...left.at(0, 64)));
        return posted === 1;
      });
    }
    write(20, sendFlags.signaled);
    assert.deepEqual(await left.sentStatuses(), ['20:SUCCESS']);
  });

  test('is asked for by a request that must fail after those before it', bounded, async () => {
    await using pair = openSoftPair('tcp');
    using rig = await connectedRig(pair);
    const { left, right } = rig;
    const { address, rkey } = right.mr.remote();
    const wrongKey = left.mr.lkey ^ 0x5a5a_5a5a;
    left.post((batch) => {
      batch.write(2, address, rkey, 0).sge(...left.at(0, 64));
      batch.write(3, address, rkey, 0).sge(wrongKey >>> 0, left.mr.address, 64);
    });
    assert.deepEqual(await left.sentStatuses(), ['3:LOC_PROT_ERR']);
  });

  test('is sent before the QP is closed', bounded, async () => {
    await using pair = openSoftPair('tcp');
    using rig = await connectedRig(pair);
    const { left, right } = rig;
    using completions = new CompletionBatch(4);
    right.receive(1, 0, 64);
    left.post((batch) => batch.send(2).sge(...left.at(0, 64)));
    poll(right.receiveCq, completions, 1);
    right.qp.close();
    assert.deepEqual(await left.sentStatuses(), ['2:SUCCESS']);
  });
});
