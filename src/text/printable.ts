// Words that programs and peers chose, made fit for a terminal and for a log of lines.

import { stripVTControlCharacters } from 'node:util';

/** A process may call itself anything: nothing of it may move the cursor, or look like a second line. */
export function printable(text: string): string {
  return stripVTControlCharacters(text).replace(/\p{Cc}/gu, (character) => {
    const code = character.codePointAt(0) ?? 0;
    return `\\x${code.toString(16).padStart(2, '0')}`;
  });
}
