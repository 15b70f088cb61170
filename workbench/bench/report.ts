// The report of a bench run: one JSON document for programs, table rows for people.

import { readFileSync } from 'node:fs';
import { availableParallelism, cpus, release, totalmem } from 'node:os';
import type { Result, Round } from './measure.ts';
import type { Limit, Rival, Row } from './row.ts';

interface Machine {
  readonly cpu: string;
  readonly cores: number;
  readonly memoryGiB: number;
  readonly kernel: string;
  readonly system: string;
  readonly node: string;
}

export interface BenchDocument {
  readonly v: 1;
  readonly machine: Machine;
  readonly results: readonly Result[];
}

export function describeMachine(): Machine {
  return {
    cpu: cpus()[0]?.model.trim() ?? 'unknown',
    cores: availableParallelism(),
    memoryGiB: Math.round(totalmem() / 2 ** 30),
    kernel: release(),
    system: systemName(),
    node: process.version,
  };
}

function systemName(): string {
  try {
    return /^PRETTY_NAME="?([^"\n]*)/m.exec(readFileSync('/etc/os-release', 'utf8'))?.[1] ?? 'unknown';
  } catch {
    return 'unknown';
  }
}

export const tableHeader = ['id', 'ours', 'against', 'ratio', 'spread', 'threshold', 'goal', 'reached'] as const;

/** One line per rival; a row without rivals has one line. */
export function tableRows(row: Row, result: Result): string[][] {
  const rivals = Object.keys(result.ratio ?? {}) as Rival[];
  const ours = `${format(result.ours)} ${result.unit}`;
  if (rivals.length === 0) {
    const figures = result.rounds.map((round) => round.ours);
    return [[row.id, ours, '', '', spread(figures), ...limits(row, result.ours)]];
  }
  return rivals.map((rival, index) => {
    const theirs = `${rival} ${format(result.against?.[rival] ?? Number.NaN)} ${result.unit}`;
    const ratio = result.ratio?.[rival] ?? Number.NaN;
    const ratios = result.rounds.map((round: Round) => round.ours / (round[rival] ?? Number.NaN));
    const first = index === 0 ? [row.id, ours] : ['', ''];
    return [...first, theirs, format(ratio), spread(ratios), ...limits(row, ratio, rival)];
  });
}

function limits(row: Row, value: number, rival?: Rival): string[] {
  const threshold = limitFor(row.threshold, rival);
  const goal = limitFor(row.goal, rival);
  const reaches = (limit: number | undefined): boolean =>
    limit !== undefined && (row.better === 'higher' ? value >= limit : value <= limit);
  const reached = reaches(goal) ? 'goal' : reaches(threshold) ? 'threshold' : 'neither';
  return [threshold, goal]
    .map((limit) => (limit === undefined ? '' : format(limit)))
    .concat(threshold === undefined ? '' : reached);
}

function limitFor(limit: Limit | undefined, rival: Rival | undefined): number | undefined {
  return typeof limit === 'object' ? rival && limit[rival] : limit;
}

function spread(values: readonly number[]): string {
  return `${format(Math.min(...values))} – ${format(Math.max(...values))}`;
}

/** Three significant digits; further ones would be noise. */
function format(value: number): string {
  if (!Number.isFinite(value)) return '?';
  if (Math.abs(value) >= 100) return value.toFixed(0);
  return value.toPrecision(3);
}
