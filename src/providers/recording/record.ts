// A provider that carries out through another one and records every call, so that it can be made
// again elsewhere.

import type { SharedMemory } from '../../native/index.ts';
import type {
  CompletionBatch,
  CqSpec,
  DeviceEvent,
  MrSpec,
  PathTo,
  Provider,
  ProviderAh,
  ProviderChannel,
  ProviderCq,
  ProviderDevice,
  ProviderMr,
  ProviderPd,
  ProviderQp,
  ProviderSrq,
  QpSpec,
  SrqSpec,
} from '../../verbs/index.ts';
import { RecordedRegions } from './recording-regions.ts';
import { recordedCompletions, recordedReceives, recordedSends } from './recording-rows.ts';
import { type RecordingSink, RecordingWriter, type RecordOptions } from './recording-writer.ts';

/** What the recorder knows of an object: the real one, and its number in the recording. */
interface Known<T> {
  readonly inner: T;
  readonly id: number;
}

/**
 * Records everything that is made of the provider. Contents of memory are recorded when a request
 * for them is posted. What the sink throws is thrown to the program, so a sink that writes to a
 * file should stop at an error by itself.
 */
export function recordProvider(provider: Provider, sink: RecordingSink, options?: RecordOptions): Provider {
  const recording = new Recording(new RecordingWriter(provider.name, sink, options));
  return {
    name: provider.name,
    listDevices: () => provider.listDevices(),
    openDevice: (name) => recording.openDevice(provider, name),
  };
}

/** All of one recording: devices may be several, and a key of one may be used through another. */
class Recording {
  readonly writer: RecordingWriter;
  readonly regions = new RecordedRegions();
  readonly #cqs = new WeakMap<ProviderCq, Known<ProviderCq>>();
  readonly #outerCqs = new WeakMap<ProviderCq, ProviderCq>();
  readonly #channels = new WeakMap<ProviderChannel, Known<ProviderChannel>>();
  readonly #srqs = new WeakMap<ProviderSrq, Known<ProviderSrq>>();
  readonly #outerSrqs = new WeakMap<ProviderSrq, ProviderSrq>();
  readonly #qps = new WeakMap<ProviderQp, Known<ProviderQp>>();
  readonly #memories = new WeakMap<SharedMemory, number>();

  constructor(writer: RecordingWriter) {
    this.writer = writer;
  }

  openDevice(provider: Provider, name: string): ProviderDevice {
    const { writer } = this;
    const id = writer.newId();
    const inner = writer.record(
      { call: 'openDevice', name },
      () => provider.openDevice(name),
      () => ({ id }),
    );
    return {
      info: inner.info,
      attributes: inner.attributes,
      ports: () => inner.ports(),
      onEvent: (listener) => inner.onEvent((event) => listener(this.#event(id, event))),
      ...(inner.eventSource && { eventSource: inner.eventSource }),
      ...(inner.counters && { counters: () => inner.counters?.() ?? {} }),
      createPd: () => this.#createPd(inner, id),
      createChannel: () => this.#createChannel(inner, id),
      createCq: (spec) => this.#createCq(inner, id, spec),
      close: () => this.#close(id, inner),
    };
  }

  #createPd(device: ProviderDevice, deviceId: number): ProviderPd {
    const id = this.writer.newId();
    const line = { call: 'createPd', device: deviceId } as const;
    const inner = this.writer.record(
      line,
      () => device.createPd(),
      () => ({ id }),
    );
    return {
      ...(inner.allocate && { allocate: inner.allocate.bind(inner) }),
      registerMr: (spec) => this.#registerMr(inner, id, spec),
      createSrq: (spec) => this.#createSrq(inner, id, spec),
      createQp: (spec) => this.#createQp(inner, id, spec),
      createAh: (path) => this.#createAh(inner, id, path),
      close: () => this.#close(id, inner),
    };
  }

  #createChannel(device: ProviderDevice, deviceId: number): ProviderChannel {
    const id = this.writer.newId();
    const line = { call: 'createChannel', device: deviceId } as const;
    const inner = this.writer.record(
      line,
      () => device.createChannel(),
      () => ({ id }),
    );
    const channel: ProviderChannel = {
      get fd() {
        return inner.fd;
      },
      take: () => inner.take().flatMap((cq) => this.#outerCqs.get(cq) ?? []),
      close: () => this.#close(id, inner),
    };
    this.#channels.set(channel, { inner, id });
    return channel;
  }

  #createCq(device: ProviderDevice, deviceId: number, spec: CqSpec): ProviderCq {
    const id = this.writer.newId();
    const channel = spec.channel === undefined ? undefined : this.#channels.get(spec.channel);
    const inner = this.writer.record(
      { call: 'createCq', device: deviceId, entries: spec.entries, channel: channel?.id },
      () => device.createCq({ entries: spec.entries, ...(channel && { channel: channel.inner }) }),
      () => ({ id }),
    );
    const cq: ProviderCq = {
      poll: (batch) => this.#poll(inner, id, batch),
      arm: (solicitedOnly) =>
        this.writer.record({ call: 'arm', cq: id, solicitedOnly }, () => inner.arm(solicitedOnly)),
      close: () => this.#close(id, inner),
    };
    this.#cqs.set(cq, { inner, id });
    this.#outerCqs.set(inner, cq);
    return cq;
  }

  #poll(inner: ProviderCq, id: number, batch: CompletionBatch): number {
    const count = inner.poll(batch);
    if (count > 0) this.writer.write({ call: 'poll', cq: id, completions: recordedCompletions(batch, count) });
    return count;
  }

  #registerMr(pd: ProviderPd, pdId: number, spec: MrSpec): ProviderMr {
    const id = this.writer.newId();
    const { offset, sizeBytes, access } = spec;
    const memory = this.#memoryId(spec.memory);
    const inner = this.writer.record(
      { call: 'registerMr', pd: pdId, memory, memoryBytes: spec.memory.sizeBytes, offset, sizeBytes, access },
      () => pd.registerMr(spec),
      ({ lkey, rkey, address }) => ({ id, lkey, rkey, address }),
    );
    this.regions.add(inner, spec);
    return {
      lkey: inner.lkey,
      rkey: inner.rkey,
      address: inner.address,
      grant: (qp, flags) => this.#grant(inner, id, qp, flags),
      revoke: (rkey) => {
        this.writer.record({ call: 'revoke', mr: id, rkey }, () => inner.revoke(rkey));
        this.regions.removeKey(rkey);
      },
      close: () => {
        this.regions.remove(inner);
        this.#close(id, inner);
      },
    };
  }

  #grant(mr: ProviderMr, mrId: number, qp: ProviderQp, access: number): number {
    const known = this.#qps.get(qp);
    const line = { call: 'grant', mr: mrId, qp: known?.id ?? 0, access } as const;
    const rkey = this.writer.record(
      line,
      () => mr.grant(known?.inner ?? qp, access),
      (key) => ({ rkey: key }),
    );
    this.regions.addKey(rkey, mr);
    return rkey;
  }

  #createSrq(pd: ProviderPd, pdId: number, spec: SrqSpec): ProviderSrq {
    const id = this.writer.newId();
    const line = { call: 'createSrq', pd: pdId, requests: spec.requests, maxSge: spec.maxSge } as const;
    const inner = this.writer.record(
      line,
      () => pd.createSrq(spec),
      () => ({ id }),
    );
    const srq: ProviderSrq = {
      post: (batch) =>
        this.writer.record(
          { call: 'postSrq', srq: id, rows: recordedReceives(batch) },
          () => inner.post(batch),
          (taken) => ({ taken }),
        ),
      setLimit: (limit) => this.writer.record({ call: 'setLimit', srq: id, limit }, () => inner.setLimit(limit)),
      close: () => this.#close(id, inner),
    };
    this.#srqs.set(srq, { inner, id });
    this.#outerSrqs.set(inner, srq);
    return srq;
  }

  #createQp(pd: ProviderPd, pdId: number, spec: QpSpec): ProviderQp {
    const { sendCq, receiveCq, srq, ...rest } = spec;
    const [sends, receives] = [this.#cqs.get(sendCq), this.#cqs.get(receiveCq)];
    const shared = srq === undefined ? undefined : this.#srqs.get(srq);
    const queues = { sendCq: sends?.inner ?? sendCq, receiveCq: receives?.inner ?? receiveCq };
    const id = this.writer.newId();
    const ids = { pd: pdId, sendCq: sends?.id ?? 0, receiveCq: receives?.id ?? 0, srq: shared?.id };
    const inner = this.writer.record(
      { call: 'createQp', ...ids, ...rest },
      () => pd.createQp({ ...rest, ...queues, ...(shared && { srq: shared.inner }) }),
      ({ number }) => ({ id, number }),
    );
    const qp = this.#wrapQp(inner, id);
    this.#qps.set(qp, { inner, id });
    return qp;
  }

  #wrapQp(inner: ProviderQp, id: number): ProviderQp {
    const { writer } = this;
    return {
      number: inner.number,
      get state() {
        return inner.state;
      },
      get peer() {
        return inner.peer;
      },
      get doorbellFd() {
        return inner.doorbellFd;
      },
      modify: (to, attributes) =>
        writer.record({ call: 'modify', qp: id, to, attributes: { ...attributes } }, () =>
          inner.modify(to, attributes),
        ),
      postSend: (batch) => {
        // The bytes first: once it is posted, they may change.
        const rows = writer.isOver ? [] : recordedSends(batch, this.regions, writer.maxDataBytes);
        return writer.record(
          { call: 'postSend', qp: id, rows },
          () => inner.postSend(batch),
          (taken) => ({ taken }),
        );
      },
      postReceive: (batch) =>
        writer.record(
          { call: 'postReceive', qp: id, rows: recordedReceives(batch) },
          () => inner.postReceive(batch),
          (taken) => ({ taken }),
        ),
      mapRemote: (rkey, address, sizeBytes) => {
        writer.write({ call: 'mapRemote', qp: id, rkey, address, sizeBytes });
        return inner.mapRemote(rkey, address, sizeBytes);
      },
      close: () => this.#close(id, inner),
    };
  }

  #createAh(pd: ProviderPd, pdId: number, path: PathTo): ProviderAh {
    const id = this.writer.newId();
    const inner = this.writer.record(
      { call: 'createAh', pd: pdId, path: { ...path } },
      () => pd.createAh(path),
      ({ handle }) => ({ id, handle }),
    );
    return { handle: inner.handle, close: () => this.#close(id, inner) };
  }

  #close(id: number, inner: { close(): void }): void {
    this.writer.record({ call: 'close', id }, () => inner.close());
  }

  /** Translates an event to the objects that the program has. */
  #event(device: number, event: DeviceEvent): DeviceEvent {
    const { kind } = event;
    const about = 'qpNumber' in event ? `QP ${event.qpNumber}` : 'portNumber' in event ? event.state : '';
    this.writer.write({ call: 'event', device, kind, about });
    if (event.kind === 'cqOverrun') return { ...event, cq: this.#outerCqs.get(event.cq) ?? event.cq };
    if (event.kind === 'srqLimit') return { ...event, srq: this.#outerSrqs.get(event.srq) ?? event.srq };
    return event;
  }

  #memoryId(memory: SharedMemory): number {
    const id = this.#memories.get(memory) ?? this.writer.newId();
    this.#memories.set(memory, id);
    return id;
  }
}
