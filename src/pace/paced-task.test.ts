import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, mock, test } from 'node:test';
import { PacedTask } from './paced-task.ts';

/** A task that takes so long of a processor that is made up, by a clock that is made up. */
class Made {
  runs = 0;
  tookMs: number;
  #cpuMs = 0;
  readonly task: PacedTask;

  constructor(tookMs: number) {
    this.tookMs = tookMs;
    this.task = new PacedTask({
      leastPauseMs: 5,
      maxShare: 1 / 20,
      savedMs: 3,
      cpuMs: () => this.#cpuMs,
      run: () => {
        this.runs++;
        this.#cpuMs += this.tookMs;
      },
    });
  }
}

describe('a paced task', () => {
  let nowMs = 1000;
  beforeEach(() => {
    mock.timers.enable({ apis: ['setTimeout', 'setImmediate'] });
    mock.method(performance, 'now', () => nowMs);
  });
  afterEach(() => {
    mock.timers.reset();
    mock.restoreAll();
  });
  const pass = (ms: number): void => {
    nowMs += ms;
    mock.timers.tick(ms);
  };

  test('the first is done in this turn, however many ask; those that ask later share the next', () => {
    const made = new Made(2);
    for (let n = 0; n < 100; n++) made.task.request();
    assert.equal(made.runs, 0, 'not while the kernel still tells');
    pass(0);
    assert.equal(made.runs, 1);
    for (let n = 0; n < 100; n++) made.task.request();
    pass(4);
    assert.equal(made.runs, 1);
    pass(1);
    assert.equal(made.runs, 2, 'of what was saved');
    made.task.request();
    pass(14);
    assert.equal(made.runs, 2, 'nothing is saved any more');
    pass(1);
    assert.equal(made.runs, 3);
    pass(1000);
    assert.equal(made.runs, 3, 'nobody has asked');
  });

  test('a thousand a second take no more than its share of a processor', () => {
    const made = new Made(3);
    for (let ms = 0; ms < 6000; ms++) {
      made.task.request();
      pass(1);
    }
    assert.ok(made.runs * made.tookMs <= 6000 / 20 + 2 * made.tookMs, `${made.runs} runs`);
    assert.ok(made.runs >= 90, `${made.runs} runs`);
  });

  test('one that costs nothing has a pause all the same, and one that fails has its pause, too', () => {
    const made = new Made(0);
    made.task.request();
    pass(0);
    made.task.request();
    pass(4);
    assert.equal(made.runs, 1);
    pass(1);
    assert.equal(made.runs, 2);
    const failing = new PacedTask({
      leastPauseMs: 5,
      maxShare: 1,
      savedMs: 0,
      run: () => {
        throw new Error('no');
      },
    });
    assert.throws(() => failing.run(), /no/);
    assert.throws(() => failing.run(), /no/);
  });

  test('nobody waits longer than the longest pause, however long it takes', () => {
    let runs = 0;
    let cpuMs = 0;
    const run = (): void => {
      runs++;
      cpuMs += 1000;
    };
    const limits = { leastPauseMs: 5, mostPauseMs: 400, maxShare: 1 / 80, savedMs: 0 };
    const task = new PacedTask({ ...limits, cpuMs: () => cpuMs, run });
    for (let turn = 1; turn <= 3; turn++) {
      task.request();
      pass(turn === 1 ? 0 : 400);
      assert.equal(runs, turn);
    }
  });

  test('who runs it now serves those who have asked; after its end nothing runs', () => {
    const made = new Made(1);
    made.task.request();
    made.task.run();
    pass(1000);
    assert.equal(made.runs, 1);
    made.task.request();
    made.task[Symbol.dispose]();
    made.task.request();
    made.task.run();
    pass(1000);
    assert.equal(made.runs, 1);
  });
});
