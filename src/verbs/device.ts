// A device: its attributes and ports, and the objects made on it.

import { EventEmitter } from 'node:events';
import { UsageError } from '../errors.ts';
import { CompletionChannel } from './channel.ts';
import { Cq, type CqOptions } from './cq.ts';
import { VerbsObject } from './object.ts';
import { Pd } from './pd.ts';
import type {
  DeviceAttributes,
  DeviceEvent,
  DeviceEventSource,
  DeviceInfo,
  PortInfo,
  ProviderCq,
  ProviderDevice,
} from './provider.ts';
import type { Srq } from './srq.ts';

export interface DeviceEvents {
  qpFatal: [event: { readonly qpNumber: number; readonly reason: string }];
  cqOverrun: [cq: Cq];
  srqLimit: [srq: Srq];
  portChange: [event: { readonly portNumber: number; readonly state: PortInfo['state'] }];
  deviceGone: [];
}

export class Device extends VerbsObject {
  readonly events = new EventEmitter<DeviceEvents>();
  readonly #device: ProviderDevice;
  readonly #cqs = new Map<ProviderCq, Cq>();
  readonly #srqs = new Map<object, Srq>();

  constructor(device: ProviderDevice) {
    super([]);
    this.#device = device;
    device.onEvent((event) => {
      try {
        this.#publish(event);
      } catch (error) {
        // An error of a listener is not the device's: the device goes on.
        queueMicrotask(() => {
          throw error;
        });
      }
    });
  }

  get info(): DeviceInfo {
    return this.#device.info;
  }

  get name(): string {
    return this.#device.info.name;
  }

  get attributes(): DeviceAttributes {
    return this.#device.attributes;
  }

  get ports(): readonly PortInfo[] {
    this.checkOpen();
    return this.#device.ports();
  }

  /** Packets by what became of them, where the device counts them, to find faults. */
  get counters(): Readonly<Record<string, number>> {
    this.checkOpen();
    return this.#device.counters?.() ?? {};
  }

  /**
   * For threads that do not return to Node's event loop, which reads the events otherwise: they
   * watch it, where there is one.
   */
  get eventSource(): DeviceEventSource | undefined {
    this.checkOpen();
    return this.#device.eventSource;
  }

  port(number = 1): PortInfo {
    const port = this.ports.find((candidate) => candidate.number === number);
    if (port === undefined) throw new UsageError(`${this.name} has no port ${number}`);
    return port;
  }

  createPd(): Pd {
    this.checkOpen();
    return new Pd(this, this.#device.createPd());
  }

  createChannel(): CompletionChannel {
    this.checkOpen();
    return new CompletionChannel(this, this.#device.createChannel(), this.#cqs);
  }

  createCq(options: CqOptions = {}): Cq {
    this.checkOpen();
    const { entries = 256, channel } = options;
    const { maxCqEntries } = this.attributes;
    if (!Number.isInteger(entries) || entries < 1 || entries > maxCqEntries) {
      throw new UsageError(`a CQ of ${entries} entries: ${this.name} takes 1 to ${maxCqEntries}`);
    }
    const made = this.#device.createCq({ entries, ...(channel && { channel: channel.provided }) });
    const cq = new Cq(this, made, entries, channel, () => this.#cqs.delete(made));
    this.#cqs.set(made, cq);
    return cq;
  }

  /** For Pd: so that events name the object. */
  trackSrq(provided: object, srq: Srq): () => void {
    this.#srqs.set(provided, srq);
    return () => this.#srqs.delete(provided);
  }

  protected override release(): void {
    this.#device.close();
  }

  #publish(event: DeviceEvent): void {
    switch (event.kind) {
      case 'qpFatal':
        this.events.emit('qpFatal', event);
        break;
      case 'cqOverrun': {
        const cq = this.#cqs.get(event.cq);
        if (cq !== undefined) this.events.emit('cqOverrun', cq);
        break;
      }
      case 'srqLimit': {
        const srq = this.#srqs.get(event.srq);
        if (srq !== undefined) this.events.emit('srqLimit', srq);
        break;
      }
      case 'portChange':
        this.events.emit('portChange', event);
        break;
      case 'deviceGone':
        this.events.emit('deviceGone');
    }
  }
}
