// An RDMA device of this machine, driven by libibverbs.

import { ibverbs } from '../../native/index.ts';
import type {
  CqSpec,
  DeviceAttributes,
  DeviceEvent,
  DeviceEventSource,
  DeviceInfo,
  PortInfo,
  ProviderDevice,
} from '../../verbs/index.ts';
import { deviceAttributes, readDevice } from './attributes.ts';
import { IbvChannel } from './channel.ts';
import { IbvCq } from './cq.ts';
import { checkMade } from './errors.ts';
import { EventReader } from './events.ts';
import { Handle } from './handle.ts';
import { IbvPd } from './pd.ts';
import { readPort } from './port.ts';
import type { IbvSrq } from './srq.ts';

export class IbvDevice implements ProviderDevice {
  readonly info: DeviceInfo;
  readonly attributes: DeviceAttributes;
  readonly #context: Handle;
  readonly #events: EventReader;
  readonly #portCount: number;
  readonly #cqs = new Map<number, IbvCq>();
  readonly #srqs = new Map<number, IbvSrq>();

  constructor(info: DeviceInfo) {
    const [handle, eventFd] = checkMade(ibverbs.ibvOpen(info.name), 'ibv_open_device', () => `open ${info.name}`);
    using undo = new DisposableStack();
    this.info = info;
    this.#context = undo.adopt(new Handle(handle, 'context'), (context) => context.close());
    const device = readDevice(this.#context);
    this.#portCount = device.ports;
    this.attributes = deviceAttributes(info.name, this.#context, device);
    this.#events = new EventReader(this.#context, eventFd, {
      cq: (number) => this.#cqs.get(number),
      srq: (number) => this.#srqs.get(number),
    });
    undo.move();
  }

  ports(): readonly PortInfo[] {
    return Array.from({ length: this.#portCount }, (_, index) => readPort(this.#context, index + 1));
  }

  get eventSource(): DeviceEventSource {
    return this.#events;
  }

  onEvent(listener: (event: DeviceEvent) => void): void {
    this.#events.onEvent(listener);
  }

  createPd(): IbvPd {
    return new IbvPd(this.#context, (srq) => this.#trackSrq(srq));
  }

  createChannel(): IbvChannel {
    return new IbvChannel(this.#context);
  }

  createCq(spec: CqSpec): IbvCq {
    const cq = new IbvCq(this.#context, spec);
    forgetClosed(this.#cqs);
    this.#cqs.set(cq.handle.value, cq);
    return cq;
  }

  close(): void {
    this.#events.close();
    this.#context.close();
  }

  #trackSrq(srq: IbvSrq): void {
    forgetClosed(this.#srqs);
    this.#srqs.set(srq.handle.value, srq);
  }
}

function forgetClosed(objects: Map<number, { readonly handle: Handle }>): void {
  for (const [number, { handle }] of objects) if (handle.isClosed) objects.delete(number);
}
