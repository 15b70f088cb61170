// Log lines for people: time, level and message of a JSON line, without the fields that the message
// says already.

import type { DestinationStream } from 'pino';
import { printable } from '../text/index.ts';

/** Wraps a destination: takes pino's JSON lines, passes on readable ones. */
export function textLines(target: DestinationStream): DestinationStream {
  return { write: (line) => target.write(textOf(line)) };
}

function textOf(line: string): string {
  const { time, level, msg } = JSON.parse(line) as { time: string; level: string; msg?: string };
  // hh:mm:ss.mmm of 2026-01-31T12:34:56.789Z.
  return `${time.slice(11, 23)} ${level.toUpperCase().padEnd(5)} ${printable(msg ?? '')}\n`;
}
