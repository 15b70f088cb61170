import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { SpinPolicy, tunings } from '../spin/index.ts';
import { LaneLoop, type LoopedSession } from './lane-loop.ts';

/** Runs a loop over one session for some turns, and says how long each of them waited. */
function waits(session: LoopedSession, turns: number): number[] {
  const timeouts: number[] = [];
  const loop = {
    hasWork: false,
    turn: (timeoutNs: number): number => {
      timeouts.push(timeoutNs);
      return 0;
    },
  };
  const laneLoop = new LaneLoop({
    loop,
    sessions: () => [session],
    mirrors: { collect: () => 0, ring: () => {}, prepareSleep: () => true },
    spinPolicy: new SpinPolicy(tunings.lane, 0),
    isRunning: () => timeouts.length < turns,
    isAwaiting: () => false,
  });
  laneLoop.run();
  return timeouts;
}

describe('the loop of a lane', () => {
  test('blocks when all sessions can be woken', () => {
    assert.deepEqual(waits({ turn: () => 0, prepareSleep: () => true }, 3), [0, -1, -1]);
  });

  test('polls again at once when a record comes at the last moment, each time', () => {
    let waiting = 0;
    const session: LoopedSession = {
      turn: () => {
        const done = waiting;
        waiting = 0;
        return done;
      },
      // A record that arrives between the last poll and the announcement of sleep.
      prepareSleep: () => {
        waiting = 1;
        return false;
      },
    };
    assert.deepEqual(new Set(waits(session, 50)), new Set([0]));
  });

  test('naps where a session can neither be woken nor go on', () => {
    const [first, second, ...others] = waits({ turn: () => 0, prepareSleep: () => false }, 10);
    assert.deepEqual([first, second], [0, 0]);
    assert.ok(others.every((timeoutNs) => timeoutNs > 0));
  });
});
