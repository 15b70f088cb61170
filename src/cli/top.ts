// `millrace top`: what a daemon carries at the moment, refreshed in place on a terminal and as plain blocks elsewhere.

import { setTimeout as sleep } from 'node:timers/promises';
import { InvalidArgumentError } from 'commander';
import type { ApiClient } from '../server/index.ts';
import type { AddCommand } from './command.ts';
import { addDaemonOptions, clientOf, type DaemonOptions } from './daemon-options.ts';
import { type ExitCode, exitCode } from './exit-code.ts';
import { painter } from './paint.ts';
import { Screen } from './screen.ts';
import { figuresOf, type Look } from './top-figures.ts';
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
    .description('Rates by peer, link, lane and connection, CPU and memory, until q or Ctrl-C.')
    .option('--interval <seconds>', 'between two looks', seconds, DEFAULT_INTERVAL_S)
    .option('--once', 'look twice, show once, end')
    .option('--json', 'for programs, one line a look');
  addDaemonOptions(top).action((options: Options) => finish(() => watch(options, world)));
};

async function watch(options: Options, world: World): Promise<ExitCode> {
  const client = await clientOf(options, world);
  const quit = new AbortController();
  const signal = AbortSignal.any([world.signal, quit.signal]);
  let isInterrupted = false;
  // Before anything is drawn: an error belongs on the screen that stays.
  let before = await look(client, world, signal);
  const isLive = world.stdout.isTTY === true && options.json !== true && options.once !== true;
  using screen = isLive
    ? new Screen(world.stdin, world.stdout, (key) => {
        isInterrupted = key === 'ctrl-c';
        quit.abort();
      })
    : null;
  screen?.draw([`looking for ${options.interval} s`]);
  try {
    do {
      await sleep(options.interval * 1000, undefined, { signal });
      const now = await look(client, world, signal);
      show(before, now, options, world, screen);
      before = now;
    } while (options.once !== true);
    return exitCode.ok;
  } catch (error) {
    if (!signal.aborted) throw error;
    return isInterrupted || world.signal.aborted ? exitCode.interrupted : exitCode.ok;
  }
}

async function look(client: ApiClient, world: World, signal: AbortSignal): Promise<Look> {
  const [status, connections] = await Promise.all([client.status({ signal }), client.connections({}, { signal })]);
  return { atMs: world.nowMs(), status, connections };
}

function show(before: Look, now: Look, { json }: Options, world: World, screen: Screen | null): void {
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
  throw new InvalidArgumentError('expected seconds, 0.01 to 3600');
}
