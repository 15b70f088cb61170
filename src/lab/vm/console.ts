// What a guest said on its serial line and QEMU on its standard error: the end of it, for error messages.

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

  /** Indented, ready to stand below a message; empty when nothing was said. */
  lines(count: number): string {
    const lines = this.text.trimEnd().split('\n');
    return lines[0] === '' && lines.length === 1
      ? ''
      : lines
          .slice(-count)
          .map((line) => `\n  ${line}`)
          .join('');
  }

  /** Why the kernel gave up, if it did. */
  get panic(): string | null {
    return (
      /Kernel panic - not syncing: (.+)/.exec(this.text)?.[1] ?? /millrace-init: (.+)/.exec(this.text)?.[1] ?? null
    );
  }
}
