// A terminal that shows one picture at a time, and is restored afterwards.

import type { Readable } from 'node:stream';
import type { OutputStream } from './world.ts';

/** What a terminal adds to a stream. */
interface TerminalInput extends Readable {
  readonly isTTY?: boolean;
  setRawMode?(isRaw: boolean): unknown;
}

const ENTER = '\u001b[?1049h\u001b[?25l';
const LEAVE = '\u001b[?25h\u001b[?1049l';
const HOME = '\u001b[H';
const CLEAR_LINE = '\u001b[K';
const CLEAR_BELOW = '\u001b[J';
const CTRL_C = '\u0003';
/** For a terminal that does not report its size, or reports 0. */
const DEFAULT_ROWS = 24;

export class Screen implements Disposable {
  readonly #output: OutputStream & { readonly rows?: number };
  readonly #input: TerminalInput;
  readonly #onKey: (chunk: Buffer | string) => void;
  #isClosed = false;

  /** In raw mode Ctrl-C is a key like others, so `onQuit` is told which key ended it. */
  constructor(input: Readable, output: OutputStream, onQuit: (key: 'q' | 'ctrl-c') => void) {
    this.#output = output;
    this.#input = input;
    this.#onKey = (chunk) => {
      const keys = String(chunk);
      if (keys.includes(CTRL_C)) onQuit('ctrl-c');
      else if (/q/i.test(keys)) onQuit('q');
    };
    output.write(ENTER);
    if (this.#input.isTTY === true) {
      this.#input.setRawMode?.(true);
      this.#input.on('data', this.#onKey);
      this.#input.resume();
    }
  }

  /**
   * Lines that do not fit are left out, because scrolling would smear the picture. The terminal
   * cuts long lines.
   */
  draw(lines: readonly string[]): void {
    const { rows = 0 } = this.#output;
    const shown = lines.slice(0, (rows > 1 ? rows : DEFAULT_ROWS) - 1);
    const picture = shown.map((line) => `${line}${CLEAR_LINE}\r\n`).join('');
    // Wrapping is off while drawing, so that a long line stays one.
    this.#output.write(`${HOME}\u001b[?7l${picture}\u001b[?7h${CLEAR_BELOW}`);
  }

  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    if (this.#input.isTTY === true) {
      this.#input.off('data', this.#onKey);
      this.#input.setRawMode?.(false);
      this.#input.pause();
    }
    this.#output.write(LEAVE);
  }

  [Symbol.dispose](): void {
    this.close();
  }
}
