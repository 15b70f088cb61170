// A guest that scribbles random and adversarial values over all that it shares with the backend, beside an honest one.
//
// On a machine with two processors the scribbler and the thread that serves it would take half of the time from anybody. So
// the honest guest's speed is compared with what it has beside two processes that only burn their time, turn by turn.

import assert from 'node:assert/strict';
import { type ChildProcess, fork, spawn } from 'node:child_process';
import { once } from 'node:events';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { median } from '../../src/bench/measure.ts';
import { BackendProcess } from '../../src/remoting/fixtures/backend-process.ts';

/** Of scribbling in all; more by hand. */
const SECONDS = Number(process.env.MILLRACE_FUZZ_SECONDS ?? 10);
const BURN_MS = 200;
const SCRIBBLE_MS = 500;
const TURNS = (SECONDS * 1000) / SCRIBBLE_MS;

interface Progress {
  readonly rounds: number;
  readonly problem: string;
}

async function ask<T>(child: ChildProcess): Promise<T> {
  const answered = once(child, 'message', { signal: AbortSignal.timeout(10_000) });
  child.send('how far');
  const [answer] = await answered;
  return answer as T;
}

/** Rounds a second in a time that is given. */
async function speedOf(honest: ChildProcess, ms: number): Promise<number> {
  const startMs = performance.now();
  const before = await ask<Progress>(honest);
  await sleep(ms);
  const after = await ask<Progress>(honest);
  assert.equal(after.problem, '');
  return ((after.rounds - before.rounds) * 1000) / (performance.now() - startMs);
}

test('a guest that scribbles over its rings and calls troubles no other', {
  timeout: 60_000 + SECONDS * 3000,
}, async (context) => {
  await using backend = await BackendProcess.start();
  using stack = new DisposableStack();
  const start = (child: ChildProcess): ChildProcess => stack.adopt(child, () => child.kill('SIGKILL'));
  const program = (name: string): URL => new URL(`../../src/remoting/fixtures/${name}-main.ts`, import.meta.url);
  const honest = start(fork(program('honest'), [backend.socketPath, 'soft-shm']));
  await once(honest, 'message');
  const scribbler = start(fork(program('scribbler'), [backend.socketPath, String(Date.now() % 1_000_000)]));
  await once(scribbler, 'message');
  const burners = [1, 2].map(() => start(spawn(process.execPath, ['-e', 'for (;;);'])));
  const signalBurners = (signal: NodeJS.Signals): void => {
    for (const burner of burners) burner.kill(signal);
  };
  const speeds = { beside: [] as number[], scribbled: [] as number[] };
  for (let turn = 0; turn < TURNS; turn++) {
    scribbler.kill('SIGSTOP');
    signalBurners('SIGCONT');
    speeds.beside.push(await speedOf(honest, BURN_MS));
    signalBurners('SIGSTOP');
    scribbler.kill('SIGCONT');
    speeds.scribbled.push(await speedOf(honest, SCRIBBLE_MS));
  }
  const { connections, scribbles } = await ask<{ connections: number; scribbles: number }>(scribbler);
  const { guests, dropped } = await backend.status();
  assert.ok(guests.some(({ label }) => label === 'honest'));
  const kept = median(speeds.scribbled) / median(speeds.beside);
  context.diagnostic(`${scribbles} scribbles, ${connections} connections, ${dropped} dropped, kept ${kept.toFixed(2)}`);
  assert.ok(scribbles > 100_000 && connections > 3, `${scribbles} scribbles in ${connections} connections`);
  assert.ok(dropped > 0, 'no lie was noticed');
  assert.ok(kept >= 0.7, `kept ${kept.toFixed(2)} of its speed`);
});
