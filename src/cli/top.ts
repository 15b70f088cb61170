// `millrace top`: shows the current rates of a daemon, refreshed in place on a terminal and as
// plain blocks elsewhere.

import { setTimeout as sleep } from 'node:timers/promises';
import { InvalidArgumentError } from 'commander';
import type { ApiClient } from '../server/index.ts';
import type { AddCommand } from './command.ts';
import { addDaemonOptions, clientOf, type DaemonOptions } from './daemon-options.ts';
import { type ExitCode, exitCode } from './exit-code.ts';
import { painter } from './paint.ts';
import { Screen } from './screen.ts';
import { figuresOf, type Sample } from './top-figures.ts';
import { viewOf } from './top-view.ts';
import type { World } from './world.ts';

interface Options extends DaemonOptions {
  readonly interval: number;
  readonly once?: true;
  readonly json?: true;
}

const DEFAULT_INTERVAL_S = 1;

export const addTop: AddCommand = (program, { world, finish }) => {
  const top = program
    .command('top')
    .description('Show the rates of peers, links, lanes and connections, CPU and memory, until q or Ctrl-C.')
    .option('--interval <seconds>', 'time between two samples', seconds, DEFAULT_INTERVAL_S)
    .option('--once', 'take two samples, print the rates, and end')
    .option('--json', 'print JSON, one line per sample');
  addDaemonOptions(top).action((options: Options) => finish(() => watch(options, world)));
};

async function watch(options: Options, world: World): Promise<ExitCode> {
  const client = await clientOf(options, world);
  const quit = new AbortController();
  const signal = AbortSignal.any([world.signal, quit.signal]);
  let isInterrupted = false;
  // The first sample is taken before anything is drawn, so that an error stays on the terminal.
  let before = await takeSample(client, world, signal);
  const isLive = world.stdout.isTTY === true && options.json !== true && options.once !== true;
  using screen = isLive
    ? new Screen(world.stdin, world.stdout, (key) => {
        isInterrupted = key === 'ctrl-c';
        quit.abort();
      })
    : null;
  screen?.draw([`measuring for ${options.interval} s`]);
  try {
    do {
      await sleep(options.interval * 1000, undefined, { signal });
      const now = await takeSample(client, world, signal);
      show(before, now, options, world, screen);
      before = now;
    } while (options.once !== true);
    return exitCode.ok;
  } catch (error) {
    if (!signal.aborted) throw error;
    return isInterrupted || world.signal.aborted ? exitCode.interrupted : exitCode.ok;
  }
}

async function takeSample(client: ApiClient, world: World, signal: AbortSignal): Promise<Sample> {
  const [status, connections] = await Promise.all([client.status({ signal }), client.connections({}, { signal })]);
  return { atMs: world.nowMs(), status, connections };
}

function show(before: Sample, now: Sample, { json }: Options, world: World, screen: Screen | null): void {
  const figures = figuresOf(before, now);
  if (json) {
    world.stdout.write(`${JSON.stringify({ ...figures, memory: now.status.memory })}\n`);
    return;
  }
  const lines = viewOf(figures, now.status, painter(world.stdout, world.env));
  if (screen === null) world.stdout.write(`${lines.join('\n')}\n\n`);
  else screen.draw(lines);
}

function seconds(text: string): number {
  const value = Number(text);
  if (value >= 0.01 && value <= 3600) return value;
  throw new InvalidArgumentError('Give seconds from 0.01 to 3600.');
}
