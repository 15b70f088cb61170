// The error of a config file: all of its problems at once, each with its line and column.

import { UsageError } from '../errors.ts';
import { printable } from '../text/index.ts';

export type Path = readonly (string | number)[];

export interface Problem {
  /** Empty for the file as a whole. */
  readonly path: Path;
  /** What is wrong, and what to do. */
  readonly message: string;
  /** The place is that of the key, not of its value. */
  readonly isKey?: true;
}

export interface PlacedProblem extends Problem {
  /** Counted from 1. */
  readonly line: number;
  readonly column: number;
}

/** More than a person reads; a file that is no config at all has thousands. */
const MAX_TOLD = 50;
/** Of a key or value that a message repeats. */
export const MAX_SHOWN = 80;

export class ConfigError extends UsageError {
  readonly source: string;
  readonly problems: readonly PlacedProblem[];

  constructor(source: string, problems: readonly PlacedProblem[], options?: ErrorOptions) {
    const sorted = problems.toSorted((left, right) => left.line - right.line || left.column - right.column);
    const lines = sorted.slice(0, MAX_TOLD).map((problem) => formatProblem(source, problem));
    if (sorted.length > MAX_TOLD) lines.push(`${source}: and ${sorted.length - MAX_TOLD} more`);
    super(lines.join('\n'), options);
    this.name = 'ConfigError';
    this.source = source;
    this.problems = sorted;
  }
}

function formatProblem(source: string, { line, column, path, message }: PlacedProblem): string {
  const where = formatPath(path);
  return `${source}:${line}:${column}: ${where === '' ? '' : `${where}: `}${message}`;
}

/** `peers[2].address` */
export function formatPath(path: Path): string {
  return path
    .map((part, index) => {
      if (typeof part === 'number') return `[${part}]`;
      return `${index === 0 ? '' : '.'}${printable(part, MAX_SHOWN)}`;
    })
    .join('');
}
