// A thread for guests, from the side of the backend's main thread: serves one guest after the
// other, reports, and ends.

import { Worker } from 'node:worker_threads';
import { MillraceError } from '../../../errors.ts';
import { EventFd, loadAcquire } from '../../../native/index.ts';
import type { GuestReport, GuestStatus } from '../../../status/index.ts';
import { closeHostTransport } from '../../transports/index.ts';
import { HostShare, hostLimits } from '../guest/host-share.ts';
import type { FromGuestWorker, GuestSettings, GuestWorkerData, ToGuestWorker } from './guest-messages.ts';

const isSource = import.meta.url.endsWith('.ts');
const program = new URL(isSource ? './guest-worker.ts' : './guest-worker.js', import.meta.url);
/** A thread that has not ended by then is terminated. */
const CLOSE_MS = 3000;
/** A thread that has not reported by then is left out of the status. */
const REPORT_MS = 1000;

interface GuestEnd {
  readonly reason: string;
  readonly isProtocolError: boolean;
}

interface Serving {
  readonly settings: GuestSettings;
  readonly startMs: number;
  readonly ended: PromiseWithResolvers<GuestEnd>;
  before: { readonly atMs: number; readonly counts: GuestReport['counts'] | undefined };
}

interface GuestThreadOptions {
  /** Of `HostShare`; default: one of its own. */
  readonly host?: SharedArrayBuffer;
  readonly onExit?: () => void;
  readonly runs?: URL;
}

export class GuestThread {
  readonly #worker: Worker;
  /**
   * The number of the last guest whose descriptors the thread has adopted, or is about to adopt.
   */
  readonly #adopted = new Int32Array(new SharedArrayBuffer(4));
  readonly #wake = EventFd.create();
  readonly #exited = Promise.withResolvers<void>();
  readonly #asked = new Map<number, (report: GuestReport | undefined) => void>();
  #serving: Serving | undefined;
  #lastAsk = 0;
  #isOver = false;

  /** `onExit`: the thread has ended. Tests choose another program. */
  constructor({ host, onExit, runs = program }: GuestThreadOptions = {}) {
    const shared = host ?? HostShare.create(hostLimits()).memory;
    const ownShare = HostShare.nothing();
    const workerData: GuestWorkerData = { wakeFd: this.#wake.fd, adopted: this.#adopted, host: shared, ownShare };
    try {
      this.#worker = new Worker(runs, { workerData });
    } catch (error) {
      this.#wake.close();
      throw error;
    }
    let reason = 'its thread has ended';
    this.#worker.on('message', (message: FromGuestWorker) => {
      if (message.kind === 'report') this.#answer(message.ask, message.report);
      else this.#end(message);
    });
    this.#worker.on('error', (error) => {
      reason = error instanceof Error ? (error.stack ?? error.message) : String(error);
    });
    this.#worker.on('exit', () => {
      this.#isOver = true;
      this.#wake.close();
      new HostShare(shared, ownShare).clear();
      onExit?.();
      for (const ask of this.#asked.keys()) this.#answer(ask, undefined);
      this.#closeLeft();
      this.#end({ reason, isProtocolError: false });
      this.#exited.resolve();
    });
  }

  /** Whether it can serve another guest. */
  get isFree(): boolean {
    return !this.#isOver && this.#serving === undefined;
  }

  get guest(): GuestSettings | undefined {
    return this.#serving?.settings;
  }

  /** Takes over what the transport names. Resolves when everything that the guest had is freed. */
  serve(settings: GuestSettings): Promise<GuestEnd> {
    if (!this.isFree)
      throw new MillraceError('MILLRACE_ERR_USAGE', 'serve a guest: its thread has ended, or serves one already');
    const startMs = Date.now();
    const ended = Promise.withResolvers<GuestEnd>();
    this.#serving = { settings, startMs, ended, before: { atMs: startMs, counts: undefined } };
    this.#tell({ kind: 'serve', settings });
    return ended.promise;
  }

  /** Undefined when there is no guest any more. */
  async status(): Promise<GuestStatus | undefined> {
    const serving = this.#serving;
    if (serving === undefined) return undefined;
    const report = await this.#ask();
    if (report === undefined || this.#serving !== serving) return undefined;
    const nowMs = Date.now();
    const { atMs, counts } = serving.before;
    const seconds = Math.max(0.001, (nowMs - atMs) / 1000);
    const rate = (name: 'calls' | 'posted' | 'completions'): number =>
      (report.counts[name] - (counts?.[name] ?? 0)) / seconds;
    serving.before = { atMs: nowMs, counts: report.counts };
    const { id, transport } = serving.settings;
    const perSecond = { calls: rate('calls'), posted: rate('posted'), completions: rate('completions') };
    return { ...report, id, peer: transport.peer, connectedMs: nowMs - serving.startMs, perSecond };
  }

  /** Frees everything that the guest has. Resolves when that is done. */
  async drop(): Promise<void> {
    const ended = this.#serving?.ended.promise;
    this.#tell({ kind: 'drop' });
    await ended;
  }

  /** Ends the guest and the thread. */
  async close(): Promise<void> {
    this.#tell({ kind: 'exit' });
    const timer = setTimeout(() => void this.#worker.terminate(), CLOSE_MS);
    await this.#exited.promise;
    clearTimeout(timer);
  }

  async #ask(): Promise<GuestReport | undefined> {
    const ask = ++this.#lastAsk;
    const { promise, resolve } = Promise.withResolvers<GuestReport | undefined>();
    this.#asked.set(ask, resolve);
    this.#tell({ kind: 'report', ask });
    const timer = setTimeout(() => this.#answer(ask, undefined), REPORT_MS);
    const report = await promise;
    clearTimeout(timer);
    return report;
  }

  #tell(message: ToGuestWorker): void {
    if (this.#isOver) return;
    this.#worker.postMessage(message);
    this.#wake.signal();
  }

  #answer(ask: number, report: GuestReport | undefined): void {
    this.#asked.get(ask)?.(report);
    this.#asked.delete(ask);
  }

  /**
   * Closes the descriptors of a guest that the thread has not adopted: nobody else knows of them.
   */
  #closeLeft(): void {
    const settings = this.#serving?.settings;
    // Partner: the store in guest-worker.ts, before it adopts them.
    if (settings === undefined || loadAcquire(this.#adopted, 0) === (settings.id | 0)) return;
    closeHostTransport(settings.transport);
  }

  #end(end: GuestEnd): void {
    const serving = this.#serving;
    this.#serving = undefined;
    serving?.ended.resolve(end);
  }
}
