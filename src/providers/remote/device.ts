// A device of the backend, in a guest's program.

import { readRange } from '../../remoting/protocol/index.ts';
import type {
  CqSpec,
  DeviceAttributes,
  DeviceEvent,
  DeviceInfo,
  PortInfo,
  ProviderChannel,
  ProviderCq,
  ProviderDevice,
  ProviderPd,
} from '../../verbs/index.ts';
import { DrivenChannel } from '../../verbs/index.ts';
import type { BackendCalls } from './backend-calls.ts';
import type { RemoteConnection } from './connection.ts';
import { RemoteCq } from './cq.ts';
import { RemotePd } from './pd.ts';
import type { RemoteQp } from './qp.ts';
import { Regions } from './regions.ts';
import type { RemoteSrq } from './srq.ts';

export class RemoteDevice implements ProviderDevice {
  readonly info: DeviceInfo;
  readonly attributes: DeviceAttributes;
  readonly connection: RemoteConnection;
  readonly backend: BackendCalls;
  readonly handle: number;
  readonly regions = new Regions();
  readonly #cqs = new Map<number, RemoteCq>();
  readonly #srqs = new Map<number, RemoteSrq>();
  readonly #qps = new Set<RemoteQp>();
  #listener: (event: DeviceEvent) => void = () => {};
  #isClosed = false;

  constructor(connection: RemoteConnection, handle: number, name: string, description: string) {
    this.connection = connection;
    this.backend = connection.backend;
    this.handle = handle;
    const { info, attributes } = JSON.parse(description) as { info: DeviceInfo; attributes: DeviceAttributes };
    this.info = { ...info, name, provider: 'remote' };
    this.attributes = attributes;
  }

  get isGone(): boolean {
    return this.backend.isGone;
  }

  ports(): readonly PortInfo[] {
    return JSON.parse(this.backend.call('ports', (writer) => writer.u32(this.handle)).text()) as PortInfo[];
  }

  counters(): Readonly<Record<string, number>> {
    const results = this.backend.call('counters', (writer) => writer.u32(this.handle));
    return JSON.parse(results.text()) as Record<string, number>;
  }

  onEvent(listener: (event: DeviceEvent) => void): void {
    this.#listener = listener;
  }

  createPd(): ProviderPd {
    return new RemotePd(this, this.backend.call('createPd', (writer) => writer.u32(this.handle)).u32());
  }

  createChannel(): ProviderChannel {
    return new DrivenChannel(this.connection.fd, () => this.connection.attend());
  }

  createCq({ entries, channel }: CqSpec): ProviderCq {
    const results = this.backend.call('createCq', (writer) => writer.u32(this.handle).u32(entries));
    const handle = results.u32();
    const memory = this.connection.map(readRange(results));
    const cq = new RemoteCq(this, handle, entries, memory, channel as DrivenChannel | undefined);
    this.#cqs.set(handle, cq);
    return cq;
  }

  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.backend.callIfAlive('closeDevice', (writer) => writer.u32(this.handle));
    this.connection.forget(this);
  }

  // For the objects made on it.

  removeCq(cq: RemoteCq): void {
    this.#cqs.delete(cq.handle);
  }

  addSrq(srq: RemoteSrq): void {
    this.#srqs.set(srq.handle, srq);
  }

  removeSrq(srq: RemoteSrq): void {
    this.#srqs.delete(srq.handle);
  }

  addQp(qp: RemoteQp): void {
    this.#qps.add(qp);
  }

  removeQp(qp: RemoteQp): void {
    this.#qps.delete(qp);
  }

  // For the connection.

  notifyChannels(): void {
    for (const cq of this.#cqs.values()) cq.notify();
  }

  /**
   * All QPs are in ERR from now on; requests under way are flushed, and threads that wait for them
   * are woken.
   */
  onBackendGone(): void {
    for (const qp of this.#qps) qp.onBackendGone();
    this.notifyChannels();
    this.publish({ kind: 'deviceGone' });
  }

  publish(event: DeviceEvent): void {
    this.#listener(event);
  }

  publishCqOverrun(handle: number): void {
    const cq = this.#cqs.get(handle);
    if (cq !== undefined) this.publish({ kind: 'cqOverrun', cq });
  }

  publishSrqLimit(handle: number): void {
    const srq = this.#srqs.get(handle);
    if (srq !== undefined) this.publish({ kind: 'srqLimit', srq });
  }

  publishPort(portNumber: number, state: string): void {
    this.publish({ kind: 'portChange', portNumber, state: state as PortInfo['state'] });
  }
}
