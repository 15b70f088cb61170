// What a guest of the remoting rows measures, on a device of its own or on the backend's: the same code for both.

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

const loopKinds = ['write', 'allocate', 'call', 'event'] as const;

export interface LoopOrder {
  readonly where: 'remoted' | 'native';
  readonly kind: (typeof loopKinds)[number];
  /** Bytes of each transfer or buffer; several sizes take turns. */
  readonly sizes: readonly number[];
  /** Requests posted at once; the last is signalled and waited for. */
  readonly batch: number;
  readonly ms: number;
}

/** Enough that a look at the clock does not count. */
const BETWEEN_LOOKS = 16;

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

  /** From memory that is there, or from so many bytes of its own. */
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

  /** ns for each operation: the geometric mean over the sizes. Of events, the median. */
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

  /** Each from the next place and to the next place, so that it is memory that is measured and not a small cache. */
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

  /** Every page once, by whoever moves the bytes: whose first touch costs more than a small write. */
  #touch(): void {
    const size = 1 << 20;
    for (let bytes = 0; bytes < this.#source.sizeBytes; bytes += size) this.#write(size, 1);
  }

  #allocate(size: number): void {
    this.#pd.allocate({ sizeBytes: size }).close();
  }

  #call(): void {
    if (this.#qp.state !== 'RTS') throw new Error('the QP has died');
  }

  /** The peer stamps a message when it posts it; the time to the callback here is from then on, the wire included. */
  async #events(ms: number): Promise<number> {
    const endNs = monotonicNs() + ms * 1e6;
    const samples: number[] = [];
    const stamp = new Float64Array(this.#source.memory.buffer, 0, 1);
    const channel = this.#receiveCq.channel;
    if (channel === undefined) throw new Error('a CQ without a channel');
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

/** ns for each call, over about so many ms. */
function timed(each: () => void, ms: number): number {
  const startNs = monotonicNs();
  let nowNs = startNs;
  let count = 0;
  while (nowNs - startNs < ms * 1e6) {
    // Long ones one by one, short ones in groups.
    const group = count === 0 || (nowNs - startNs) / count > 100_000 ? 1 : BETWEEN_LOOKS;
    for (let index = 0; index < group; index++) each();
    count += group;
    nowNs = monotonicNs();
  }
  return (nowNs - startNs) / count;
}
