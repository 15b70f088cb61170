// A guest that scribbles random and adversarial values over all that it shares with the backend,
// beside a guest that checks its data.
//
// Every guest takes time from the others of a machine with two processors. So the checking guest's
// speed beside the scribbler is compared with what it has beside a busy guest that keeps to the
// protocol and posts as fast as it can, turn by turn. Runs alone: it measures speed.

import assert from 'node:assert/strict';
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { BackendProcess } from '../../../src/remoting/backend/fixtures/backend-process.ts';
import { median } from '../../../workbench/bench/measure.ts';

/** Of scribbling in all; more by hand. */
const SECONDS = Number(process.env.MILLRACE_FUZZ_SECONDS ?? 6);
/**
 * The part of it in which the scribbler makes so many protocol errors that it is dropped all the
 * time.
 */
const LYING_SECONDS = SECONDS * 0.3;
const BUSY_MS = 150;
const SCRIBBLE_MS = 250;
const TURNS = ((SECONDS - LYING_SECONDS) * 1000) / SCRIBBLE_MS;
/** How long work of the turn before may take to end. */
const SETTLE_MS = 10;
/**
 * One protocol error in so many scribbles: some a second, so that the rate of registrations hardly
 * slows it.
 */
const ONE_ERROR_IN = 50_000;
const TIMEOUT_MS = 60_000 + SECONDS * 3000;

interface Progress {
  readonly rounds: number;
  readonly problem: string;
}

interface Scribbled {
  readonly connections: number;
  readonly scribbles: number;
}

/**
 * A backend and guests of it in processes of their own, which are stopped where a test does not let
 * them run.
 */
class World implements AsyncDisposable {
  readonly backend: BackendProcess;
  readonly #children: ChildProcess[] = [];

  constructor(backend: BackendProcess) {
    this.backend = backend;
  }

  async start(name: 'checking' | 'busy' | 'scribbler', ...rest: readonly string[]): Promise<ChildProcess> {
    const program = new URL(`../../../src/remoting/backend/fixtures/${name}-main.ts`, import.meta.url);
    const child = fork(program, [this.backend.socketPath, ...rest]);
    this.#children.push(child);
    await once(child, 'message');
    return child;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const child of this.#children) child.kill('SIGKILL');
    await this.backend[Symbol.asyncDispose]();
  }
}

async function ask<T>(child: ChildProcess): Promise<T> {
  const answered = once(child, 'message', { signal: AbortSignal.timeout(30_000) });
  child.send('how far');
  const [answer] = await answered;
  return answer as T;
}

/** Rounds a second of the checking guest in a time that is given, while one neighbour runs. */
async function speedBeside(neighbour: ChildProcess, checking: ChildProcess, ms: number): Promise<number> {
  neighbour.kill('SIGCONT');
  await sleep(SETTLE_MS);
  const startMs = performance.now();
  const before = await ask<Progress>(checking);
  await sleep(ms);
  const after = await ask<Progress>(checking);
  const seconds = (performance.now() - startMs) / 1000;
  neighbour.kill('SIGSTOP');
  assert.equal(after.problem, '');
  return (after.rounds - before.rounds) / seconds;
}

const someSeed = (): string => String(Date.now() % 1_000_000);

test('a guest that scribbles over its rings and calls errors no other', { timeout: TIMEOUT_MS }, async (context) => {
  await using world = new World(await BackendProcess.start());
  const checking = await world.start('checking');
  const busy = await world.start('busy');
  busy.kill('SIGSTOP');
  const scribbler = await world.start('scribbler', someSeed(), String(ONE_ERROR_IN));
  scribbler.kill('SIGSTOP');
  // What the checking guest keeps, turn by turn: the rest of the machine is about the same for both
  // halves of one.
  const kept: number[] = [];
  for (let turn = 0; turn < TURNS; turn++) {
    const beside = await speedBeside(busy, checking, BUSY_MS);
    kept.push((await speedBeside(scribbler, checking, SCRIBBLE_MS)) / beside);
  }
  for (const child of [busy, scribbler]) child.kill('SIGCONT');
  assert.equal((await ask<Progress>(busy)).problem, '');
  const { connections, scribbles } = await ask<Scribbled>(scribbler);
  context.diagnostic(`${scribbles} scribbles, ${connections} connections, kept ${median(kept).toFixed(2)}`);
  assert.ok(scribbles > 100_000 && connections > 3, `${scribbles} scribbles in ${connections} connections`);
  assert.ok(
    median(kept) >= 0.7,
    `kept ${median(kept).toFixed(2)} of its speed, by turn ${kept.map((part) => part.toFixed(2)).join(' ')}`,
  );
});

test('a guest that is dropped for protocol errors and reconnects all the time spoils nothing of another', {
  timeout: TIMEOUT_MS,
}, async (context) => {
  // As often as it likes: this tests how the backend finds protocol errors.
  await using world = new World(await BackendProcess.start({ registrationsPerSecond: 1e6 }));
  const checking = await world.start('checking');
  const scribbler = await world.start('scribbler', someSeed());
  const before = await ask<Progress>(checking);
  await sleep(LYING_SECONDS * 1000);
  const after = await ask<Progress>(checking);
  assert.equal(after.problem, '');
  assert.ok(after.rounds > before.rounds, 'the checking guest stands still');
  const { connections, scribbles } = await ask<Scribbled>(scribbler);
  const { dropped } = await world.backend.status();
  context.diagnostic(`${scribbles} scribbles, ${connections} connections, ${dropped} dropped`);
  assert.ok(dropped > 0, 'no protocol error was found');
});
