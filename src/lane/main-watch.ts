// A lane watches the main thread, which cannot say itself that it is stuck: the lane writes the
// line and, after a time, ends the process, so that it is started again.

import { write } from 'node:fs';
import { isatty } from 'node:tty';
import { endProcess } from '../native/index.ts';
import { LANE_BEAT_NS } from '../steering/index.ts';
import { MAIN_THREAD, placeOfMain, type SignsOfLife, Watchdog } from '../watchdog/index.ts';
import type { WatchdogSettings } from './messages.ts';

const STDERR = 2;
const EXIT_FAILED = 1;
/** Who reads the log may be what the main thread waits for. */
const WRITE_MS = 1000;

interface MainWatchOptions {
  readonly settings: Omit<WatchdogSettings, 'signs'>;
  readonly signs: SignsOfLife;
  /** Runs Node's loop until the promise settles. */
  readonly wait: (work: Promise<void>) => void;
}

export class MainWatch {
  readonly #options: MainWatchOptions;
  #watchdog: Watchdog | undefined;
  #reported: Promise<void> = Promise.resolve();

  constructor(options: MainWatchOptions) {
    this.#options = options;
  }

  /** At each sign of life of the lane. */
  look(): void {
    const { signs, settings, wait } = this.#options;
    // It gives signs from the end of its start on.
    if (signs.threadId(MAIN_THREAD) === 0) return;
    this.#watchdog ??= new Watchdog({
      signs,
      threads: [MAIN_THREAD],
      intervalMs: LANE_BEAT_NS / 1e6,
      stuckMs: settings.stuckMs,
      giveUpMs: settings.giveUpMs,
      onStuck: () => {
        if (!signs.isFirstToReport(MAIN_THREAD)) return;
        this.#reported = this.#report();
        wait(this.#reported);
      },
      onRecovered: () => {},
      onGivenUp: (_, silentMs) => wait(this.#end(silentMs)),
    });
    this.#watchdog.look();
  }

  async #report(): Promise<void> {
    const { signs, settings } = this.#options;
    const place = await placeOfMain(signs.threadId(MAIN_THREAD));
    await this.#write(`the main thread gives no sign of life since ${settings.stuckMs / 1000} s: ${place}`);
  }

  async #end(silentMs: number): Promise<void> {
    await this.#reported;
    const seconds = Math.round(silentMs / 1000);
    await this.#write(
      `the main thread gives no sign of life since ${seconds} s: the daemon ends, so that it is started again`,
    );
    endProcess(EXIT_FAILED);
  }

  /**
   * As the log of the main thread writes it. Not by this thread, which must not wait for a reader.
   */
  async #write(msg: string): Promise<void> {
    const time = new Date().toISOString();
    const { node } = this.#options.settings;
    const json = { level: 'fatal', time, node, event: 'error', where: 'watchdog', code: '', peer: '', msg };
    const line = isatty(STDERR) ? `${time.slice(11, 23)} FATAL ${msg}` : JSON.stringify(json);
    const { promise, resolve } = Promise.withResolvers<void>();
    const timer = setTimeout(resolve, WRITE_MS);
    write(STDERR, `${line}\n`, () => resolve());
    await promise;
    clearTimeout(timer);
  }
}
