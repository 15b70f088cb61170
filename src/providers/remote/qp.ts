// Queue pairs of a remote device: posting is a copy into a ring, and inline data goes along.

import { UnsupportedError, UsageError } from '../../errors.ts';
import { copyMemory, type SharedMemory } from '../../native/index.ts';
import type { QpShape } from '../../remoting/protocol/index.ts';
import { stateOf, stateWord, writeQpAttributes } from '../../remoting/protocol/index.ts';
import {
  type ProviderQp,
  type QpAttributes,
  type QpSpec,
  type QpState,
  type ReceiveBatch,
  type RemoteWindow,
  read64,
  receiveRow,
  type SendBatch,
  sendFlags,
  sendOpcodes,
  sendRow,
  sgeRow,
} from '../../verbs/index.ts';
import type { RemoteCq } from './cq.ts';
import type { RemoteDevice } from './device.ts';
import type { RemotePd } from './pd.ts';
import { postReceives } from './receives.ts';
import { RequestRing } from './request-ring.ts';

interface MadeQp {
  readonly handle: number;
  readonly number: number;
  readonly memory: SharedMemory;
  readonly shape: QpShape;
}

export class RemoteQp implements ProviderQp {
  readonly handle: number;
  readonly number: number;
  readonly #device: RemoteDevice;
  readonly #pd: RemotePd;
  readonly #spec: QpSpec;
  readonly #shape: QpShape;
  readonly #memory: SharedMemory;
  readonly #sends: RequestRing;
  readonly #receives: RequestRing | undefined;

  constructor(device: RemoteDevice, pd: RemotePd, spec: QpSpec, made: MadeQp) {
    this.#device = device;
    this.#pd = pd;
    this.#spec = spec;
    this.handle = made.handle;
    this.number = made.number;
    this.#shape = made.shape;
    this.#memory = made.memory;
    const wake = (): void => device.backend.wake();
    const { send, receive } = made.shape;
    this.#sends = new RequestRing(made.memory, send, wake);
    this.#receives = receive === undefined ? undefined : new RequestRing(made.memory, receive, wake);
  }

  get state(): QpState {
    return this.#ask().state;
  }

  get peer(): string {
    return this.#ask().peer;
  }

  modify(to: QpState, attributes: QpAttributes): void {
    this.#device.backend.call('modifyQp', (writer) => {
      writer.u32(this.handle).u32(stateWord(to));
      writeQpAttributes(writer, attributes);
    });
  }

  postSend(batch: SendBatch): number {
    const ring = this.#sends;
    const count = Math.min(batch.count, ring.free(batch.count));
    for (let index = 0; index < count; index++) {
      const problem = this.#copyRow(batch.words, index * batch.rowWords, ring.slot(index));
      if (problem === undefined) continue;
      if (index > 0) this.#publish(ring, index);
      throw new UsageError(problem);
    }
    if (count > 0) this.#publish(ring, count);
    return count;
  }

  postReceive(batch: ReceiveBatch): number {
    if (this.#receives === undefined) return 0;
    const taken = postReceives(this.#receives, batch);
    if (this.#device.isGone) this.onBackendGone();
    return taken;
  }

  mapRemote(_rkey: number, _address: number, _sizeBytes: number): Promise<RemoteWindow> {
    const message = `map memory of the peer of QP ${this.number}: a remote device cannot pass it on`;
    return Promise.reject(new UnsupportedError(message));
  }

  close(): void {
    this.#device.removeQp(this);
    this.#device.backend.callIfAlive('closeQp', (writer) => writer.u32(this.handle));
    this.#memory.close();
  }

  /** Flushes all requests under way, as a device does in ERR. */
  onBackendGone(): void {
    const sendCq = this.#spec.sendCq as RemoteCq;
    const receiveCq = this.#spec.receiveCq as RemoteCq;
    const { words } = this.#sends;
    const flush = (cq: RemoteCq, at: number): void => cq.flush(words[at], words[at + 1], this.number);
    this.#sends.abandon((row) => flush(sendCq, row + sendRow.wrId));
    this.#receives?.abandon((row) => flush(receiveCq, row + receiveRow.wrId));
  }

  #ask(): { readonly state: QpState; readonly peer: string } {
    if (this.#device.isGone) return { state: 'ERR', peer: 'none: the backend is gone' };
    const results = this.#device.backend.call('qpState', (writer) => writer.u32(this.handle));
    return { state: stateOf(results.u32()), peer: results.text() };
  }

  #publish(ring: RequestRing, count: number): void {
    ring.publish(count);
    if (this.#device.isGone) this.onBackendGone();
  }

  /** Returns what is wrong with a row that devices refuse when it is posted. */
  #copyRow(from: Uint32Array, source: number, slot: number): string | undefined {
    const ring = this.#sends;
    const sges = from[source + sendRow.sgeCount];
    const flags = from[source + sendRow.flags];
    if (from[source + sendRow.opcode] > sendOpcodes.compareSwap) {
      return `a send request with opcode ${from[source + sendRow.opcode]}`;
    }
    if (sges > ring.maxSge) return `a send request with ${sges} scatter-gather entries: the QP takes ${ring.maxSge}`;
    if (this.#spec.type === 'UD' && !this.#pd.addressHandles.has(from[source + sendRow.addressHandle])) {
      return 'a datagram to an address handle that is not of this protection domain';
    }
    const target = ring.row(slot);
    const used = sendRow.sge + sges * sgeRow.words;
    const to = ring.words;
    for (let word = 0; word < used; word++) to[target + word] = from[source + word];
    return (flags & sendFlags.inline) === 0 ? undefined : this.#copyInline(target, sges, slot);
  }

  /** Copies inline data now, so that the program may change its memory when post returns. */
  #copyInline(row: number, sges: number, slot: number): string | undefined {
    const { words } = this.#sends;
    const { maxInlineBytes } = this.#spec;
    let bytes = 0;
    for (let sge = 0; sge < sges; sge++) bytes += words[row + sendRow.sge + sge * sgeRow.words + sgeRow.length];
    if (bytes > maxInlineBytes || words[row + sendRow.opcode] >= sendOpcodes.read) {
      return `an inline request of ${bytes} bytes: sends and writes take up to ${maxInlineBytes}`;
    }
    let to = this.#shape.inlineAt + slot * this.#shape.inlineStride;
    for (let sge = 0; sge < sges; sge++) {
      const at = row + sendRow.sge + sge * sgeRow.words;
      const address = read64(words, at + sgeRow.address);
      const length = words[at + sgeRow.length];
      if (length === 0) continue;
      const mr = this.#device.regions.find(words[at + sgeRow.lkey], address, this.#pd);
      const offset = mr?.locate(address, length) ?? -1;
      if (mr === undefined || offset < 0) {
        // It becomes a request that is not inline, which the device fails.
        words[row + sendRow.flags] &= ~sendFlags.inline;
        return undefined;
      }
      copyMemory(this.#memory, to, mr.memory, offset, length);
      to += length;
    }
    return undefined;
  }
}
