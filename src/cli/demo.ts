// `millrace demo`, which is `npm start`: two hosts on this machine, redis between them, and what came of it.

import { InvalidArgumentError } from 'commander';
import { type RedisFigures, runRedisBenchmark, startRedis } from '../bench/redis.ts';
import { diagnose } from '../doctor/index.ts';
import { Lab } from '../lab/index.ts';
import type { AddCommand } from './command.ts';
import { featureLines } from './doctor.ts';
import { type ExitCode, exitCode } from './exit-code.ts';
import { painter, table } from './paint.ts';
import type { World } from './world.ts';

interface Options {
  readonly json?: boolean;
  readonly requests: number;
  readonly clients: number;
}

const payloadBytes = 2048;

export const addDemo: AddCommand = (program, { world, finish }) => {
  program
    .command('demo')
    .description('two hosts on this machine, redis between them, and the figures (npm start)')
    .option('--requests <n>', 'requests a test', positive, 50_000)
    .option('--clients <n>', 'connections', positive, 30)
    .option('--json', 'print the figures as one JSON document')
    .action((options: Options) => finish(() => demo(options, world)));
};

async function demo(options: Options, world: World): Promise<ExitCode> {
  const { signal } = world;
  const startMs = world.nowMs();
  const paint = painter(world.stderr, world.env);
  const say = (text: string): void => void world.stderr.write(`${text}\n`);
  const step = (text: string): void => say(paint('bold', text));

  step('This machine');
  for (const line of featureLines(await diagnose({ signal }), paint)) say(`  ${line}`);

  step('Two hosts');
  let figures: RedisFigures[];
  {
    await using lab = await Lab.create({ hosts: ['client', 'server'], signal });
    for (const { name, ipv4, ipv6 } of lab.hosts) say(`  ${name.padEnd(8)}${ipv4.padEnd(14)}${ipv6}`);
    await using server = await startRedis(lab.host('server'));
    step(`redis-benchmark on client, redis-server on server: ${options.clients} connections, 2 KiB values`);
    const load = { tests: ['set', 'get'], clients: options.clients, requests: options.requests, payloadBytes } as const;
    figures = await runRedisBenchmark(lab.host('client'), server, load, signal);
    say('  carried by the kernel: plain TCP');
  }
  report(figures, options, world);
  const seconds = ((world.nowMs() - startMs) / 1000).toFixed(1);
  say(
    `${seconds} s in all; both hosts are gone again. Next: ./millrace lab up, ./millrace doctor, ./millrace bench --quick`,
  );
  return exitCode.ok;
}

function report(figures: readonly RedisFigures[], options: Options, world: World): void {
  if (options.json) {
    world.stdout.write(`${JSON.stringify({ v: 1, carriedBy: 'plain', ...options, payloadBytes, figures })}\n`);
    return;
  }
  const rows = figures.map(({ test, requestsPerSecond, p50Ms, p95Ms, p99Ms }) => [
    test,
    requestsPerSecond.toFixed(0),
    ...[p50Ms, p95Ms, p99Ms].map((ms) => ms.toFixed(3)),
  ]);
  const header = ['test', 'requests/s', 'p50 ms', 'p95 ms', 'p99 ms'];
  const lines = table(header, rows, ['left', 'right', 'right', 'right', 'right']);
  world.stdout.write(`${lines.map((line) => `  ${line}`).join('\n')}\n`);
}

function positive(text: string): number {
  const value = Number(text);
  if (Number.isSafeInteger(value) && value > 0) return value;
  throw new InvalidArgumentError('expected a positive whole number');
}
