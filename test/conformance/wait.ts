// Waiting for what a device does: ask again after each turn of the event loop, and after a while
// each millisecond, until a deadline.

import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Completion, CompletionBatch, type Cq } from '../../src/verbs/index.ts';

const DEADLINE_MS = 10_000;

/** One turn of the event loop, in which devices, sockets and timers do their work. */
export function turn(): Promise<void> {
  return new Promise((resolve) => {
    setImmediate(resolve);
  });
}

/** What has not come for so long comes by a timer: others may have the processor meanwhile. */
const SPIN_MS = 3;

/** A turn, or a millisecond when the wait has become long. */
function turnOrNap(startMs: number): Promise<void> {
  return performance.now() - startMs < SPIN_MS ? turn() : sleep(1);
}

/** Resolves with the time it took in ms. */
export async function until(what: string, isSo: () => boolean, deadlineMs: number = DEADLINE_MS): Promise<number> {
  const startMs = performance.now();
  while (!isSo()) {
    if (performance.now() - startMs > deadlineMs) throw new Error(`waited ${deadlineMs} ms for: ${what}`);
    await turnOrNap(startMs);
  }
  return performance.now() - startMs;
}

/** What is in the CQ now. */
export function reap(cq: Cq, atMost = 64): Completion[] {
  using batch = new CompletionBatch(atMost);
  return poll(cq, batch);
}

function poll(cq: Cq, batch: CompletionBatch): Completion[] {
  const count = cq.poll(batch);
  return Array.from({ length: count }, (_, index) => batch.toCompletion(index));
}

/** For all who wait for one completion: it is read before anybody else polls. */
const single = new CompletionBatch(1);

/** The next `count` completions, in order. Throws with what did come. */
export async function drain(cq: Cq, count: number, deadlineMs: number = DEADLINE_MS): Promise<Completion[]> {
  if (count < 1) return [];
  using own = count === 1 ? undefined : new CompletionBatch(Math.min(count, 1024));
  const batch = own ?? single;
  const completions: Completion[] = [];
  const startMs = performance.now();
  let lastMs = startMs;
  while (completions.length < count) {
    const polled = cq.poll(batch);
    for (let index = 0; index < polled; index++) completions.push(batch.toCompletion(index));
    if (polled > 0) {
      lastMs = performance.now();
      continue;
    }
    if (performance.now() - startMs > deadlineMs) {
      assert.fail(`${completions.length} of ${count} completions in ${deadlineMs} ms: ${format(completions)}`);
    }
    await turnOrNap(lastMs);
  }
  return completions;
}

/**
 * Turns the event loop a number of times, and returns the completions that came meanwhile: for
 * those that must not come.
 */
export async function settle(cq: Cq, turns = 200): Promise<Completion[]> {
  using batch = new CompletionBatch();
  const completions: Completion[] = [];
  for (let index = 0; index < turns; index++) {
    completions.push(...poll(cq, batch));
    await turn();
  }
  return completions;
}

function format(completions: readonly Completion[]): string {
  const last = completions.slice(-20).map(({ wrId, status }) => `${wrId}:${status}`);
  return `${completions.length > 20 ? '... ' : ''}${last.join(' ') || 'none'}`;
}
