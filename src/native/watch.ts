// A descriptor on Node's own event loop, for programs that must not block their thread.

import { MillraceError } from '../errors.ts';
import { addon, type WatchHandle } from './addon.ts';
import { checkValue } from './result.ts';

export class FdWatch implements Disposable {
  #handle: WatchHandle | undefined;

  /**
   * Calls back whenever the descriptor is readable: read it, or it calls again at once. Close the
   * watch before the descriptor.
   */
  static start(fd: number, onReadable: () => void): FdWatch {
    return new FdWatch(checkValue(addon.watchStart(fd, onReadable), 'uv_poll_start', `descriptor ${fd}`));
  }

  private constructor(handle: WatchHandle) {
    this.#handle = handle;
  }

  /** Whether the watch keeps the process alive. At first it does not. */
  hold(isHeld: boolean): void {
    if (this.#handle === undefined) throw new MillraceError('MILLRACE_ERR_CLOSED', 'this FdWatch is closed');
    addon.watchHold(this.#handle, isHeld ? 1 : 0);
  }

  close(): void {
    if (this.#handle === undefined) return;
    addon.watchStop(this.#handle);
    this.#handle = undefined;
  }

  [Symbol.dispose](): void {
    this.close();
  }
}
