// Text that programs and peers chose, made fit for a terminal and for a log of lines.

import { stripVTControlCharacters } from 'node:util';

/** What moves the cursor, breaks the line, turns the direction of writing, or shows nothing. */
const unprintable = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\u2028\u2029]/gu;

/**
 * A process or a peer may call itself anything: nothing of it may move the cursor or look like a
 * second line. What is longer than `maxLength` is cut.
 */
export function printable(text: string, maxLength = Number.POSITIVE_INFINITY): string {
  const clean = stripVTControlCharacters(text).replace(unprintable, (character) => {
    const code = character.codePointAt(0) ?? 0;
    return code < 0x100 ? `\\x${code.toString(16).padStart(2, '0')}` : `\\u{${code.toString(16)}}`;
  });
  // Not in the middle of a surrogate pair.
  return clean.length <= maxLength ? clean : clean.slice(0, maxLength).replace(/[\ud800-\udbff]$/, '');
}
