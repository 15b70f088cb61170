// The main thread watches the lanes, and gives its own signs of life to them: a lane that is stuck
// is reported with its stack, and after a time the daemon ends, so that it is started again.

import { MillraceError } from '../errors.ts';
import type { WatchdogSettings } from '../lane/index.ts';
import { threadId } from '../native/index.ts';
import { publishError } from '../status/index.ts';
import { MAIN_THREAD, SignsOfLife, Watchdog } from '../watchdog/index.ts';
import type { Lanes } from './lanes.ts';

/** How often the main thread gives a sign of life, and looks for those of lanes. */
export const SIGN_MS = 500;

type WatchedLanes = Pick<Lanes, 'count' | 'setStuck' | 'stuckMs' | 'placeOf' | 'fail'>;

export class LaneWatch {
  readonly #signs: SignsOfLife;
  readonly #lanes: WatchedLanes;
  readonly #watchdog: Watchdog;
  readonly #onChange: () => void;
  #reported: Promise<void> = Promise.resolve();

  /** `onChange`: a lane is stuck, or goes on. */
  constructor({ signs, stuckMs, giveUpMs }: WatchdogSettings, lanes: WatchedLanes, onChange: () => void) {
    this.#signs = new SignsOfLife(signs);
    this.#lanes = lanes;
    this.#onChange = onChange;
    this.#watchdog = new Watchdog({
      signs: this.#signs,
      threads: Array.from({ length: lanes.count }, (_, lane) => lane + 1),
      intervalMs: SIGN_MS,
      stuckMs,
      giveUpMs,
      onStuck: (thread) => {
        this.#reported = this.#report(thread);
      },
      onRecovered: (thread, silentMs) => this.#recovered(thread, silentMs),
      onGivenUp: (thread, silentMs) => void this.#giveUp(thread, silentMs),
    });
  }

  /** At least every SIGN_MS from the first time on: lanes watch the main thread by it. */
  look(): void {
    if (this.#signs.threadId(MAIN_THREAD) === 0) this.#signs.begin(MAIN_THREAD, threadId());
    this.#signs.give(MAIN_THREAD);
    this.#watchdog.look();
    for (let lane = 0; lane < this.#lanes.count; lane++) {
      const ms = this.#watchdog.stuckMs(lane + 1);
      if (ms > 0) this.#lanes.setStuck(lane, ms);
    }
  }

  async #report(thread: number): Promise<void> {
    const lane = thread - 1;
    this.#lanes.setStuck(lane, this.#watchdog.stuckMs(thread));
    this.#onChange();
    const place = await this.#lanes.placeOf(lane, this.#signs.threadId(thread));
    publish(`lane ${lane} is stuck, and new connections are left to others or to plain TCP: ${place}`);
  }

  async #giveUp(thread: number, silentMs: number): Promise<void> {
    await this.#reported;
    const since = `lane ${thread - 1} gives no sign of life since ${secondsOf(silentMs)}`;
    const message = `${since}: the daemon ends, so that it is started again (watchdog.restartSeconds)`;
    this.#lanes.fail(new MillraceError('MILLRACE_ERR_FAILED', message));
  }

  #recovered(thread: number, silentMs: number): void {
    const lane = thread - 1;
    this.#lanes.setStuck(lane, 0);
    publish(`lane ${lane} goes on, after ${secondsOf(silentMs)}`);
    this.#onChange();
  }
}

/** Why a daemon with stuck lanes is not ready; empty when none is. */
export function stuckReasons(stuckMs: readonly number[]): readonly string[] {
  return stuckMs.flatMap((ms, lane) => (ms === 0 ? [] : [`lane ${lane} gives no sign of life since ${secondsOf(ms)}`]));
}

function secondsOf(ms: number): string {
  return `${Math.round(ms / 1000)} s`;
}

function publish(message: string): void {
  publishError({ where: 'watchdog', message, code: '', peer: '' });
}
