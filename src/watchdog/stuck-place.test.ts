// Where a stuck thread is: workers of this thread, and its own main thread asked by one of them.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { describe, test } from 'node:test';
import { Worker } from 'node:worker_threads';
import { EventFd } from '../native/index.ts';
import { placeOfWorker } from './stuck-place.ts';

const timeout = 60_000;

/** A thread that is stuck in that way. */
class StuckThread implements AsyncDisposable {
  readonly #worker: Worker;
  readonly #free: EventFd;
  /** The kernel's number of it. */
  readonly id: number;

  static async start(how: 'script' | 'call'): Promise<StuckThread> {
    const free = EventFd.create();
    const workerData = how === 'call' ? free.fd : undefined;
    const worker = new Worker(new URL('./fixtures/stuck-thread.ts', import.meta.url), { workerData });
    const [id] = (await once(worker, 'message')) as [number];
    return new StuckThread(worker, free, id);
  }

  private constructor(worker: Worker, free: EventFd, id: number) {
    this.#worker = worker;
    this.#free = free;
    this.id = id;
  }

  place(): Promise<string> {
    return placeOfWorker(this.#worker, this.id);
  }

  /** It is on its way there when it has told its number. */
  async placeLike(pattern: RegExp): Promise<void> {
    for (let tries = 0, place = ''; !pattern.test(place); tries++) {
      assert.ok(tries < 10, place);
      place = await this.place();
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#free.signal();
    await this.#worker.terminate();
    this.#free.close();
  }
}

describe('the place of a stuck thread', () => {
  test('is its stack where it runs a script, which goes on afterwards', { timeout }, async () => {
    await using _ = await StuckThread.start('call');
    await using thread = await StuckThread.start('script');
    const frames = String.raw`turnForEver \(stuck-thread\.ts:\d+\) < \(anonymous\) \(stuck-thread\.ts:\d+\)`;
    const pattern = new RegExp(`^in ${frames}.*; thread ${thread.id} is [A-Z] \\(`);
    await thread.placeLike(pattern);
    await thread.placeLike(pattern);
  });

  test('is what the kernel knows where it waits in a call', { timeout }, async () => {
    await using thread = await StuckThread.start('call');
    await thread.placeLike(new RegExp(`^not in JavaScript; thread ${thread.id} is S \\(sleeping\\)`));
  });

  test('says so when the thread has ended', { timeout }, async () => {
    const thread = await StuckThread.start('script');
    await thread[Symbol.asyncDispose]();
    assert.equal(await thread.place(), `not in JavaScript; thread ${thread.id} is ended`);
  });

  test('of the main thread is told by a worker', { timeout }, async () => {
    const reached = new SharedArrayBuffer(4096);
    const workerData = { reached, threadId: process.pid };
    const worker = new Worker(new URL('./fixtures/watching-thread.ts', import.meta.url), { workerData });
    await once(worker, 'message');
    waitForWorker(reached);
    const bytes = new Uint8Array(reached, 12, new Int32Array(reached)[1]).slice();
    assert.match(new TextDecoder().decode(bytes), /^in waitForWorker \(stuck-place\.test\.ts:\d+\)/);
    await worker.terminate();
  });
});

/** Does not return to the event loop. */
function waitForWorker(reached: SharedArrayBuffer): void {
  const words = new Int32Array(reached);
  Atomics.store(words, 2, 1);
  Atomics.notify(words, 2);
  while (Atomics.load(words, 0) === 0);
}
