// The loops of a guest in the remoting rows: the same code for a device of its own and for the
// backend's.

import type { Socket } from 'node:net';
import { monotonicNs, type SharedMemory } from '../../src/native/index.ts';
import {
  CompletionBatch,
  type Cq,
  connectQp,
  type Device,
  type Mr,
  type Pd,
  type Qp,
  ReceiveBatch,
  type RemoteRegion,
  SendBatch,
  sendFlags,
} from '../../src/providers/index.ts';

export interface LoopOrder {
  readonly where: 'remoted' | 'native';
  readonly kind: 'write' | 'allocate' | 'call' | 'event';
  /** Bytes of each transfer or buffer; several sizes take turns. */
  readonly sizes: readonly number[];
  /** Requests posted at once; the last is signalled and waited for. */
  readonly batch: number;
  readonly ms: number;
}

/** Enough that reading the clock does not count. */
const CALLS_PER_CLOCK = 16;

export class GuestWorld {
  readonly #pd: Pd;
  readonly #qp: Qp;
  readonly #sendCq: Cq;
  readonly #receiveCq: Cq;
  readonly #source: Mr;
  readonly #target: RemoteRegion;
  readonly #socket: Socket;
  readonly #batch = new SendBatch({ capacity: 64, maxSge: 1 });
  readonly #receives = new ReceiveBatch({ capacity: 1, maxSge: 1 });
  readonly #completions = new CompletionBatch();
  #offset = 0;

  /** `from`: the memory to write from, or the size of new memory. */
  static async build(device: Device, socket: Socket, from: SharedMemory | number): Promise<GuestWorld> {
    const pd = device.createPd();
    const sendCq = device.createCq();
    const receiveCq = device.createCq({ channel: device.createChannel() });
    const qp = pd.createQp({ sendCq, receiveCq });
    const { regions } = await connectQp(socket, qp, { expect: ['target'] });
    const source = typeof from === 'number' ? pd.allocate({ sizeBytes: from }) : pd.register(from);
    source.bytes.fill(1);
    const world = new GuestWorld(pd, qp, sendCq, receiveCq, source, regions.target, socket);
    world.#touch();
    return world;
  }

  private constructor(pd: Pd, qp: Qp, sendCq: Cq, receiveCq: Cq, source: Mr, target: RemoteRegion, socket: Socket) {
    this.#pd = pd;
    this.#qp = qp;
    this.#sendCq = sendCq;
    this.#receiveCq = receiveCq;
    this.#source = source;
    this.#target = target;
    this.#socket = socket;
  }

  get memory(): SharedMemory {
    return this.#source.memory;
  }

  /** The ns per operation: the geometric mean over the sizes; for events the median. */
  async run({ kind, sizes, batch, ms }: LoopOrder): Promise<number> {
    if (kind === 'event') return this.#events(ms);
    let product = 1;
    for (const size of sizes) {
      const each = {
        write: () => this.#write(size, batch),
        allocate: () => this.#allocate(size),
        call: () => this.#call(),
      };
      product *= timed(each[kind], ms / sizes.length) / (kind === 'write' ? batch : 1);
    }
    return product ** (1 / sizes.length);
  }

  /**
   * Each write uses the next part of both memories, so that memory is measured and not the cache.
   */
  #write(size: number, count: number): void {
    const batch = this.#batch;
    const { rkey } = this.#target;
    batch.clear();
    for (let row = 1; row <= count; row++) {
      if (this.#offset + size > this.#source.sizeBytes) this.#offset = 0;
      const target = this.#target.address + this.#offset;
      const flags = row === count ? sendFlags.signaled : 0;
      batch.write(row, target, rkey, flags).sge(this.#source.lkey, this.#source.address + this.#offset, size);
      this.#offset += size;
    }
    this.#qp.postSend(batch);
    while (this.#sendCq.poll(this.#completions) === 0);
    this.#qp.throwIfFailed(this.#completions, 0);
  }

  /**
   * Writes every page once: the first touch by the process that moves the bytes costs more than a
   * small write.
   */
  #touch(): void {
    const size = 1 << 20;
    for (let bytes = 0; bytes < this.#source.sizeBytes; bytes += size) this.#write(size, 1);
  }

  #allocate(size: number): void {
    this.#pd.allocate({ sizeBytes: size }).close();
  }

  #call(): void {
    if (this.#qp.state !== 'RTS') throw new Error('call the backend: the QP is not in RTS');
  }

  /**
   * The peer writes the time into a message when it posts it; the sample is the time from then to
   * the callback here.
   */
  async #events(ms: number): Promise<number> {
    const endNs = monotonicNs() + ms * 1e6;
    const samples: number[] = [];
    const stamp = new Float64Array(this.#source.memory.buffer, 0, 1);
    const channel = this.#receiveCq.channel;
    if (channel === undefined) throw new Error('wait for an event: the CQ has no channel');
    while (monotonicNs() < endNs) {
      this.#receives.clear();
      this.#receives.receive(1).sge(this.#source.lkey, this.#source.address, 8);
      this.#qp.postReceive(this.#receives);
      const changed = channel.changed(this.#receiveCq);
      this.#socket.write('x');
      await changed;
      samples.push(monotonicNs() - stamp[0]);
      this.#receiveCq.poll(this.#completions);
      this.#qp.throwIfFailed(this.#completions, 0);
    }
    return samples.toSorted((a, b) => a - b)[samples.length >> 1];
  }
}

/** The ns per call, measured for about `ms`. */
function timed(each: () => void, ms: number): number {
  const startNs = monotonicNs();
  let nowNs = startNs;
  let count = 0;
  while (nowNs - startNs < ms * 1e6) {
    // The clock is read after each long call, and after groups of short ones.
    const group = count === 0 || (nowNs - startNs) / count > 100_000 ? 1 : CALLS_PER_CLOCK;
    for (let index = 0; index < group; index++) each();
    count += group;
    nowNs = monotonicNs();
  }
  return (nowNs - startNs) / count;
}
