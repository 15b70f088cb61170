// The lanes of a daemon: started all or none, told one by one or all at once, and heard together.

import { MillraceError } from '../errors.ts';
import { type FromLane, type LaneConnections, type LaneReport, LaneThread, type ToLane } from '../lane/index.ts';

type LaneSettings = Parameters<typeof LaneThread.start>[0];

export class Lanes implements AsyncDisposable {
  readonly #threads: LaneThread[] = [];
  readonly #failure = Promise.withResolvers<never>();
  #onMessage: (message: FromLane) => void = () => {};
  /** Of those who wait for it in this turn. */
  #settling: Promise<void> | undefined;

  static async start(count: number, settings: Omit<LaneSettings, 'index' | 'lanes'>): Promise<Lanes> {
    await using undo = new AsyncDisposableStack();
    const lanes = undo.use(new Lanes());
    for (let index = 0; index < count; index++) await lanes.#start({ ...settings, index, lanes: count });
    undo.move();
    return lanes;
  }

  private constructor() {
    this.#failure.promise.catch(() => {});
  }

  /** The daemon cannot go on with them. */
  fail(error: MillraceError): void {
    this.#failure.reject(error);
  }

  /** For how long each lane has been stuck; 0: it is not. */
  get stuckMs(): readonly number[] {
    return this.#threads.map(({ stuckMs }) => stuckMs);
  }

  setStuck(lane: number, ms: number): void {
    const thread = this.#threads[lane];
    if (thread !== undefined) thread.stuckMs = ms;
  }

  /** Where a lane is, for people. `threadId` is the kernel's number of it. */
  async placeOf(lane: number, threadId: number): Promise<string> {
    return (await this.#threads[lane]?.place(threadId)) ?? '';
  }

  get count(): number {
    return this.#threads.length;
  }

  /** Rejects when a lane has died: the daemon cannot go on without it. */
  get failed(): Promise<never> {
    return this.#failure.promise;
  }

  /**
   * What lanes say from now on. They say nothing of their own accord before they are told of a
   * peer.
   */
  onMessage(listener: (message: FromLane) => void): void {
    this.#onMessage = listener;
  }

  laneOf(link: number): number {
    return link % this.#threads.length;
  }

  tell(lane: number, message: ToLane): void {
    this.#threads[lane]?.tell(message);
  }

  tellAll(message: ToLane): void {
    for (const thread of this.#threads) thread.tell(message);
  }

  /**
   * Resolves when all lanes have heard what they were told before. Lanes are asked once for all who
   * wait for it in this turn.
   */
  settled(): Promise<void> {
    this.#settling ??= Promise.resolve().then(async () => {
      this.#settling = undefined;
      await Promise.all(this.#threads.map((thread) => thread.settled()));
    });
    return this.#settling;
  }

  async reports(): Promise<readonly LaneReport[]> {
    const reports = await Promise.all(this.#threads.map((thread) => thread.report()));
    return reports.filter((report) => report !== undefined);
  }

  async connections(): Promise<LaneConnections> {
    const all = await Promise.all(this.#threads.map((thread) => thread.connections()));
    return { carried: all.flatMap(({ carried }) => carried), mirrored: all.flatMap(({ mirrored }) => mirrored) };
  }

  /** Resets what is still open. */
  async close(): Promise<void> {
    await Promise.all(this.#threads.map((thread) => thread.close()));
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #start(settings: Omit<LaneSettings, 'wakeFd'>): Promise<void> {
    const onDeath = (reason: string): void =>
      this.#failure.reject(new MillraceError('MILLRACE_ERR_FAILED', `lane ${settings.index} died: ${reason}`));
    this.#threads.push(await LaneThread.start(settings, (message) => this.#onMessage(message), onDeath));
  }
}
