// `millrace bench`: measures rows against their rivals.

import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { AddCommand, World } from '../../src/cli/index.ts';
import { type ExitCode, exitCode, table } from '../../src/cli/index.ts';
import { makeFolder } from '../../src/system/index.ts';
import {
  type BenchDocument,
  describeMachine,
  measureRow,
  plot,
  type Result,
  type Row,
  selectRows,
  tableHeader,
  tableRows,
} from '../bench/index.ts';

interface Options {
  readonly trial?: boolean;
  readonly quick?: boolean;
  readonly json?: boolean;
  readonly list?: boolean;
  readonly plot?: string;
}

/** With --quick a row takes well under 45 s. */
const plans = {
  trial: { rounds: 5, roundMs: 40 },
  quick: { rounds: 5, roundMs: 200 },
  full: { rounds: 11, roundMs: 1000 },
} as const;

export const addBench: AddCommand = (program, { world, finish }) => {
  program
    .command('bench')
    .description('measure benchmarks (rows) against their rivals, in one run')
    .argument('[ids...]', 'ids, groups such as steer, or patterns such as native.* (default: all)')
    .option('--quick', 'fewer and shorter rounds, under 45 s per row')
    .option('--trial', 'only show that the rows run: rounds so short that their figures mean little')
    .option('--list', 'list the ids and what they measure')
    .option('--plot <dir>', 'write an SVG per row into this folder')
    .option('--json', 'print one JSON document')
    .action((ids: string[], options: Options) => finish(() => bench(ids, options, world)));
};

async function bench(ids: readonly string[], options: Options, world: World): Promise<ExitCode> {
  const chosen = selectRows(ids);
  if (options.list) {
    list(chosen, options, world);
    return exitCode.ok;
  }
  if (options.plot !== undefined) makeFolder(options.plot);
  const plan = plans[options.trial ? 'trial' : options.quick ? 'quick' : 'full'];
  const results: Result[] = [];
  for (const row of chosen) {
    const onRound = (done: number, of: number): void => progress(world, `${row.id}: round ${done + 1} of ${of}`);
    results.push(await measureRow(row, { ...plan, signal: world.signal, onRound }));
  }
  progress(world, '');
  if (options.plot !== undefined) {
    for (const result of results) await writeFile(join(options.plot, `${result.id}.svg`), plot(result));
  }
  if (options.json) {
    const document: BenchDocument = { v: 1, machine: describeMachine(), results };
    world.stdout.write(`${JSON.stringify(document)}\n`);
  } else {
    const cells = chosen.flatMap((row, index) => tableRows(row, results[index]));
    world.stdout.write(`${table(tableHeader, cells).join('\n')}\n`);
  }
  return exitCode.ok;
}

function list(rows: readonly Row[], options: Options, world: World): void {
  if (options.json) {
    world.stdout.write(`${JSON.stringify(rows.map(({ id, what, unit, better }) => ({ id, what, unit, better })))}\n`);
    return;
  }
  const cells = rows.map(({ id, what, unit, better }) => [id, unit, better, what]);
  world.stdout.write(`${table(['id', 'unit', 'better', 'what'], cells).join('\n')}\n`);
}

/** One line that is rewritten on a terminal; nothing elsewhere, where it would only fill logs. */
function progress(world: World, text: string): void {
  if (world.stderr.isTTY) world.stderr.write(`\r\x1b[K${text}`);
}
