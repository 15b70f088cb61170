// The last output of a guest's serial line and of QEMU's standard error, for error messages.

import { stripVTControlCharacters } from 'node:util';

/** Enough for a kernel panic with its call trace. */
const maxCharacters = 64 * 1024;

export class ConsoleTail {
  #text = '';

  add(chunk: Uint8Array): void {
    this.#text = (this.#text + Buffer.from(chunk).toString('latin1')).slice(-maxCharacters);
  }

  get text(): string {
    return stripVTControlCharacters(this.#text.replaceAll('\r', ''));
  }

  /** Indented lines to follow a message; empty without output. */
  lines(count: number): string {
    const lines = this.text.trimEnd().split('\n');
    return lines[0] === '' && lines.length === 1
      ? ''
      : lines
          .slice(-count)
          .map((line) => `\n  ${line}`)
          .join('');
  }

  /** The reason of the kernel's panic, if there was one. */
  get panic(): string | null {
    return (
      /Kernel panic - not syncing: (.+)/.exec(this.text)?.[1] ?? /millrace-init: (.+)/.exec(this.text)?.[1] ?? null
    );
  }
}
