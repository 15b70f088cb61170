// Protection domains of a remote device. Memory comes from the backend, or is passed to it; it is
// never copied.

import type { SharedMemory } from '../../native/index.ts';
import { qpShape, readRange, receiveRingShape, typeWord, writePath } from '../../remoting/protocol/index.ts';
import type {
  MrSpec,
  PathTo,
  ProviderAh,
  ProviderMr,
  ProviderPd,
  ProviderQp,
  ProviderSrq,
  QpSpec,
  SrqSpec,
} from '../../verbs/index.ts';
import type { RemoteCq } from './cq.ts';
import type { RemoteDevice } from './device.ts';
import { RemoteMr } from './mr.ts';
import { RemoteQp } from './qp.ts';
import { RequestRing } from './request-ring.ts';
import { RemoteSrq } from './srq.ts';

export class RemotePd implements ProviderPd {
  readonly handle: number;
  /**
   * Address handles of this domain: a UD request with another one is refused before it is posted.
   */
  readonly addressHandles = new Set<number>();
  readonly #device: RemoteDevice;

  constructor(device: RemoteDevice, handle: number) {
    this.#device = device;
    this.handle = handle;
  }

  allocate({ sizeBytes, hugePages }: { readonly sizeBytes: number; readonly hugePages: boolean }): SharedMemory {
    const { backend, regions } = this.#device;
    for (const unused of regions.takeUnused()) backend.call('free', (writer) => writer.u32(unused));
    const results = backend.call('allocate', (writer) => writer.u64(sizeBytes).flag(hugePages));
    const handle = results.u32();
    const memory = this.#device.connection.map(readRange(results));
    regions.know(memory, handle);
    return memory;
  }

  registerMr(spec: MrSpec): ProviderMr {
    const { backend, regions } = this.#device;
    const memory = regions.handleOf(spec.memory) ?? this.#pass(spec.memory);
    const results = backend.call('registerMr', (writer) =>
      writer.u32(this.handle).u32(memory).u64(spec.offset).u64(spec.sizeBytes).u32(spec.access),
    );
    const [handle, lkey, rkey] = [results.u32(), results.u32(), results.u32()];
    const mr = new RemoteMr(this.#device, this, spec, { handle, lkey, rkey, address: results.u64() });
    regions.add(mr);
    return mr;
  }

  createSrq({ requests, maxSge }: SrqSpec): ProviderSrq {
    const { backend } = this.#device;
    const results = backend.call('createSrq', (writer) => writer.u32(this.handle).u32(requests).u32(maxSge));
    const handle = results.u32();
    const memory = this.#device.connection.map(readRange(results));
    const ring = new RequestRing(memory, receiveRingShape(requests, maxSge), () => backend.wake());
    const srq = new RemoteSrq(this.#device, handle, ring);
    this.#device.addSrq(srq);
    return srq;
  }

  createQp(spec: QpSpec): ProviderQp {
    const { sendRequests, receiveRequests, maxSge, maxInlineBytes } = spec;
    const srq = spec.srq as RemoteSrq | undefined;
    const results = this.#device.backend.call('createQp', (writer) => {
      writer.u32(this.handle).u32(typeWord(spec.type));
      writer
        .u32((spec.sendCq as RemoteCq).handle)
        .u32((spec.receiveCq as RemoteCq).handle)
        .u32(srq?.handle ?? 0);
      writer.u32(sendRequests).u32(receiveRequests).u32(maxSge).u32(maxInlineBytes).flag(spec.signalAll);
    });
    const [handle, number] = [results.u32(), results.u32()];
    const memory = this.#device.connection.map(readRange(results));
    const shape = qpShape({ ...spec, receiveRequests: srq === undefined ? receiveRequests : 0 });
    const qp = new RemoteQp(this.#device, this, spec, { handle, number, memory, shape });
    this.#device.addQp(qp);
    return qp;
  }

  createAh(path: PathTo): ProviderAh {
    const { backend } = this.#device;
    const results = backend.call('createAh', (writer) => writePath(writer.u32(this.handle), path));
    const [handle, inRows] = [results.u32(), results.u32()];
    this.addressHandles.add(inRows);
    const close = (): void => {
      this.addressHandles.delete(inRows);
      backend.callIfAlive('closeAh', (writer) => writer.u32(handle));
    };
    return { handle: inRows, close };
  }

  close(): void {
    this.#device.backend.callIfAlive('closePd', (writer) => writer.u32(this.handle));
  }

  /** Memory of the program's own, where the transport can pass it on. */
  #pass(memory: SharedMemory): number {
    const range = this.#device.connection.offer(memory);
    const handle = this.#device.backend
      .call('adopt', (writer) => writer.u32(range.id).u64(range.offset).u64(range.sizeBytes))
      .u32();
    this.#device.regions.know(memory, handle);
    return handle;
  }
}
