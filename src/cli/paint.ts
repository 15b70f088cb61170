// Colours and tables for people; not used with --json.

import { styleText } from 'node:util';
import type { OutputStream, World } from './world.ts';

type Style = 'bold' | 'dim' | 'green' | 'red' | 'yellow' | 'cyan';

export type Paint = (style: Style, text: string) => string;

/** Colours for one stream: only on a terminal, and not when NO_COLOR is set. */
export function painter(stream: OutputStream, env: World['env']): Paint {
  const isPlain = (env.NO_COLOR !== undefined && env.NO_COLOR !== '') || stream.isTTY !== true || env.TERM === 'dumb';
  return isPlain ? (_style, text) => text : (style, text) => styleText(style, text, { validateStream: false });
}

type Align = 'left' | 'right';

/**
 * Columns as wide as their widest cell. Cells are padded before they are painted, because colour
 * codes have no width.
 */
export function table(
  header: readonly string[],
  rows: readonly (readonly string[])[],
  align: readonly Align[] = [],
): string[] {
  const widths = header.map((title, column) =>
    Math.max(title.length, ...rows.map((row) => (row[column] ?? '').length)),
  );
  const line = (cells: readonly string[]): string =>
    widths
      .map((width, column) => {
        const cell = cells[column] ?? '';
        return align[column] === 'right' ? cell.padStart(width) : cell.padEnd(width);
      })
      .join('  ')
      .trimEnd();
  return [header, ...rows].map(line);
}
