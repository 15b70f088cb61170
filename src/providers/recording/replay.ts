// Makes the calls of a recording again, on any provider, and reports what came out differently.

import { UsageError } from '../../errors.ts';
import {
  Device,
  type Provider,
  type Qp,
  type QpAttributes,
  ReceiveBatch,
  SendBatch,
  type Srq,
} from '../../verbs/index.ts';
import type { RecordedCall, RecordedReceive, RecordedSend } from './recording-format.ts';
import { type NumberedCall, RecordingError, readRecording } from './recording-lines.ts';
import { addReceive, addSend } from './recording-rows.ts';
import { failureOf } from './recording-writer.ts';
import { ReplayCompletions } from './replay-completions.ts';
import { type ReplayReport, ReportBuilder } from './replay-report.ts';
import { type Replayed, ReplayWorld } from './replay-world.ts';

export type { ReplayReport } from './replay-report.ts';

export interface ReplayOptions {
  readonly provider: Provider;
  /** Default: the recorded one, if the provider has it, or its first. */
  readonly device?: string | undefined;
  /** How long a completion may take; then it is reported as missing. */
  readonly completionTimeoutMs?: number;
  readonly maxMemoryBytes?: number;
  readonly signal?: AbortSignal;
}

type CallOf<Name extends RecordedCall['call']> = Extract<RecordedCall, { readonly call: Name }>;
type Making = Extract<RecordedCall, { readonly call: `create${string}` | 'openDevice' | 'registerMr' }>;

const ROWS_AT_ONCE = 256;
const DEFAULT_COMPLETION_TIMEOUT_MS = 5000;
const DEFAULT_MAX_MEMORY_BYTES = 1024 ** 3;

/** Rejects with a RecordingError at the first invalid line. */
export async function replay(source: AsyncIterable<Uint8Array>, options: ReplayOptions): Promise<ReplayReport> {
  using player = new Player(options);
  for await (const entry of readRecording(source)) {
    options.signal?.throwIfAborted();
    if ('call' in entry) await player.play(entry);
  }
  return player.finish();
}

class Player implements Disposable {
  readonly #options: ReplayOptions;
  readonly #world: ReplayWorld;
  readonly #report = new ReportBuilder();
  readonly #completions: ReplayCompletions;
  #deviceName = '';

  constructor(options: ReplayOptions) {
    const { maxMemoryBytes = DEFAULT_MAX_MEMORY_BYTES, completionTimeoutMs = DEFAULT_COMPLETION_TIMEOUT_MS } = options;
    this.#options = options;
    this.#world = new ReplayWorld(maxMemoryBytes);
    this.#completions = new ReplayCompletions(this.#world, this.#report, completionTimeoutMs);
  }

  finish(): ReplayReport {
    this.#completions.drain();
    return this.#report.finish(this.#deviceName, this.#completions.heldCount);
  }

  [Symbol.dispose](): void {
    this.#world[Symbol.dispose]();
    this.#completions[Symbol.dispose]();
  }

  async play({ line, call }: NumberedCall): Promise<void> {
    switch (call.call) {
      case 'postSend':
        return this.#postSend(line, call);
      case 'postReceive':
        return this.#postReceive(line, call, this.#world.find(line, 'qp', call.qp)?.object);
      case 'postSrq':
        return this.#postReceive(line, call, this.#world.find(line, 'srq', call.srq)?.object);
      case 'poll':
        this.#world.find(line, 'cq', call.cq);
        for (const completion of call.completions) await this.#completions.expect(line, completion);
        return;
      case 'modify':
        return this.#modify(line, call);
      case 'truncated':
        this.#report.isTruncated = true;
        return;
      // The replay waits by polling, and does not map what another thread mapped.
      case 'event':
      case 'mapRemote':
        return;
      case 'close': {
        const object = this.#world.take(line, call.id)?.object;
        this.#try(line, call, object && (() => object.close()));
        return;
      }
      default:
        this.#make(line, call);
    }
  }

  /** Calls that do not wait. */
  #make(line: number, call: Exclude<RecordedCall, CallOf<'close' | 'poll' | 'modify' | 'event'>>): void {
    const world = this.#world;
    switch (call.call) {
      case 'grant': {
        const [mr, qp] = [world.find(line, 'mr', call.mr), world.find(line, 'qp', call.qp)];
        const rkey = this.#try(line, call, mr && qp && (() => mr.object.grant(qp.object, call.access)));
        if (mr !== undefined && rkey !== undefined && call.rkey !== undefined) world.addRkey(call.rkey, rkey, mr);
        return;
      }
      case 'revoke': {
        const mr = world.find(line, 'mr', call.mr);
        this.#try(line, call, mr && (() => mr.object.revoke(world.rkey(call.rkey) ?? call.rkey)));
        return;
      }
      case 'setLimit': {
        const srq = world.find(line, 'srq', call.srq);
        this.#try(line, call, srq && (() => srq.object.setLimit(call.limit)));
        return;
      }
      case 'arm': {
        const cq = world.find(line, 'cq', call.cq);
        this.#try(line, call, cq && (() => cq.object.arm(call.solicitedOnly)));
        return;
      }
      case 'openDevice':
      case 'createPd':
      case 'createChannel':
      case 'createCq':
      case 'registerMr':
      case 'createSrq':
      case 'createQp':
      case 'createAh':
        this.#create(line, call);
    }
  }

  #create(line: number, call: Making): void {
    if (call.error === undefined && call.id === undefined)
      throw new RecordingError(line, 'it made nothing, and did not fail');
    const making = this.#making(line, call);
    const made = this.#try(line, call, making);
    if (call.id !== undefined && made !== undefined) this.#world.add(line, call.id, made);
    else if (call.id !== undefined) this.#world.addMissing(line, call.id);
    // It failed in the recording, which therefore never closes it.
    else made?.object.close();
    if (made?.kind === 'mr' && 'rkey' in call) this.#world.addRkey(call.rkey ?? 0, made.object.rkey, made);
    if (made?.kind === 'ah' && 'handle' in call) this.#world.addHandle(call.handle ?? 0, made.object.handle);
  }

  /** Undefined when something that it needs could not be made. */
  #making(line: number, call: Making): (() => Replayed) | undefined {
    const world = this.#world;
    switch (call.call) {
      case 'openDevice':
        return () => ({ kind: 'device', object: this.#open(call.name) });
      case 'createPd': {
        const device = world.find(line, 'device', call.device);
        return device && (() => ({ kind: 'pd', object: device.object.createPd() }));
      }
      case 'createChannel': {
        const device = world.find(line, 'device', call.device);
        return device && (() => ({ kind: 'channel', object: device.object.createChannel() }));
      }
      case 'createCq': {
        const device = world.find(line, 'device', call.device);
        const channel = call.channel === undefined ? undefined : world.find(line, 'channel', call.channel);
        const options = { entries: call.entries, ...(channel && { channel: channel.object }) };
        return device && (() => ({ kind: 'cq', object: device.object.createCq(options) }));
      }
      case 'registerMr': {
        const pd = world.find(line, 'pd', call.pd);
        const memory = world.memory(line, call.memory, call.memoryBytes);
        const { offset, sizeBytes, access, address = 0, lkey = 0 } = call;
        return (
          pd &&
          (() => ({ kind: 'mr', object: pd.object.register(memory, { offset, sizeBytes, access }), address, lkey }))
        );
      }
      case 'createSrq': {
        const pd = world.find(line, 'pd', call.pd);
        return pd && (() => ({ kind: 'srq', object: pd.object.createSrq(call) }));
      }
      case 'createAh': {
        const pd = world.find(line, 'pd', call.pd);
        return pd && (() => ({ kind: 'ah', object: pd.object.createAh(ownPath(pd.object.device)) }));
      }
      case 'createQp':
        return this.#makingQp(line, call);
    }
  }

  #makingQp(line: number, call: CallOf<'createQp'>): (() => Replayed) | undefined {
    const world = this.#world;
    const [pd, sendCq] = [world.find(line, 'pd', call.pd), world.find(line, 'cq', call.sendCq)];
    const receiveCq = world.find(line, 'cq', call.receiveCq);
    const srq = call.srq === undefined ? undefined : world.find(line, 'srq', call.srq);
    if (!pd || !sendCq || !receiveCq || (call.srq !== undefined && !srq)) return undefined;
    const { type, sendRequests, receiveRequests, maxSge, maxInlineBytes, signalAll, number = 0, id = 0 } = call;
    const sizes = { type, sendRequests, receiveRequests, maxSge, maxInlineBytes, signalAll };
    const queues = { sendCq: sendCq.object, receiveCq: receiveCq.object, ...(srq && { srq: srq.object }) };
    const state = { number, hasSrq: srq !== undefined, isOutside: false, isSilent: false };
    const { device } = pd.object;
    return () => ({ kind: 'qp', id, device, ...state, object: pd.object.createQp({ ...sizes, ...queues }) });
  }

  #modify(line: number, call: CallOf<'modify'>): void {
    const qp = this.#world.find(line, 'qp', call.qp);
    if (qp === undefined) {
      this.#report.skipped++;
      return;
    }
    const { path: _path, destQpNumber, pathMtu, ...attributes } = call.attributes;
    if (call.to === 'RESET') {
      qp.isOutside = false;
      qp.isSilent = false;
    } else if (destQpNumber !== undefined) {
      const peer = this.#world.qpByRecordedNumber(destQpNumber);
      if (peer === undefined) {
        qp.isOutside = true;
        this.#report.isOutside(line, `the peer of QP ${qp.number}, QP ${destQpNumber}, is not in the recording`);
      } else {
        const mtu = Math.min(pathMtu ?? 4096, qp.device.port().activeMtu, peer.device.port().activeMtu);
        Object.assign(attributes, { path: ownPath(peer.device), destQpNumber: peer.object.number, pathMtu: mtu });
      }
    }
    if (qp.isOutside) this.#report.skipped++;
    else this.#try(line, call, () => qp.object.modify(call.to, defined(attributes)));
  }

  async #postSend(line: number, call: CallOf<'postSend'>): Promise<void> {
    const qp = this.#world.find(line, 'qp', call.qp);
    const recorded = call.error === undefined ? call.rows.slice(0, call.taken ?? 0) : call.rows;
    const rows = recorded.map((row) => this.#world.request(row));
    if (qp === undefined || qp.isOutside || rows.includes(undefined)) {
      this.#report.skipped++;
      return;
    }
    for (const row of recorded) this.#report.unrecordedRanges += this.#world.fill(row);
    await this.#post(line, call, rows as readonly RecordedSend[], (some) => postSends(qp.object, some));
  }

  async #postReceive(
    line: number,
    call: CallOf<'postReceive' | 'postSrq'>,
    queue: Qp | Srq | undefined,
  ): Promise<void> {
    const recorded = call.error === undefined ? call.rows.slice(0, call.taken ?? 0) : call.rows;
    const rows = recorded.map(({ wrId, sges }) => ({ wrId, sges: sges.map((each) => this.#world.sge(each)) }));
    if (queue === undefined) this.#report.skipped++;
    else await this.#post(line, call, rows, (some) => postReceives(queue, some));
  }

  /** All of them, however little room there is at a time. */
  async #post<Row>(
    line: number,
    call: RecordedCall,
    rows: readonly Row[],
    post: (rows: readonly Row[]) => number,
  ): Promise<void> {
    for (let done = 0; done < rows.length; ) {
      let taken = 0;
      const next = rows.slice(done, done + ROWS_AT_ONCE);
      const isPosted = (): boolean => {
        taken = this.#try(line, call, () => post(next)) ?? next.length;
        // A post that failed in the recording is tried once.
        return taken > 0 || call.error !== undefined;
      };
      if (!(await this.#completions.until(isPosted))) {
        this.#report.differs(line, `the queue had no room for ${rows.length - done} requests that were taken then`);
        return;
      }
      this.#report.requests += taken;
      done += call.error === undefined ? taken : next.length;
    }
  }

  #open(recordedName: string): Device {
    const { provider, device } = this.#options;
    const names = provider.listDevices().map(({ name }) => name);
    const name = device ?? (names.includes(recordedName) ? recordedName : names[0]);
    if (name === undefined || !names.includes(name)) throw new UsageError(`replay: there is no device ${name ?? ''}`);
    this.#deviceName = name;
    return new Device(provider.openDevice(name));
  }

  /**
   * Undefined when it failed, or when there was nothing to do it with. Whether it should fail is
   * compared.
   */
  #try<T>(line: number, { call, error }: RecordedCall, carryOut: (() => T) | undefined): T | undefined {
    if (carryOut === undefined) {
      this.#report.skipped++;
      return undefined;
    }
    this.#report.calls++;
    try {
      const value = carryOut();
      if (error !== undefined)
        this.#report.differs(line, `${call} worked; recorded was ${error.code}: ${error.message}`);
      return value;
    } catch (thrown) {
      const { code, message } = failureOf(thrown);
      if (error?.code !== code) {
        this.#report.differs(line, `${call} failed with ${code}: ${message}; recorded was ${error?.code ?? 'success'}`);
      }
      return undefined;
    }
  }
}

/**
 * Where the peers of a device's QPs find it; of all that a path says, this is what a replay can
 * know.
 */
function ownPath(device: Device): { gid: string; lid: number } {
  const { gids, gidIndex = 0, lid } = device.port();
  return { gid: gids[gidIndex] ?? '::', lid };
}

function defined(attributes: object): QpAttributes {
  return Object.fromEntries(Object.entries(attributes).filter(([, value]) => value !== undefined));
}

function postSends(qp: Qp, rows: readonly RecordedSend[]): number {
  using batch = new SendBatch({ capacity: rows.length, maxSge: mostSges(rows) });
  for (const row of rows) addSend(batch, row);
  return qp.postSend(batch);
}

function postReceives(queue: Qp | Srq, rows: readonly RecordedReceive[]): number {
  using batch = new ReceiveBatch({ capacity: rows.length, maxSge: mostSges(rows) });
  for (const row of rows) addReceive(batch, row);
  return 'postReceive' in queue ? queue.postReceive(batch) : queue.post(batch);
}

function mostSges(rows: readonly { readonly sges: readonly unknown[] }[]): number {
  return Math.max(1, ...rows.map(({ sges }) => sges.length));
}
