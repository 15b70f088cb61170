import assert from 'node:assert/strict';
import { describe, mock, test } from 'node:test';
import { Heartbeat } from './heartbeat.ts';
import { LineBudget, MAX_LINES_AT_ONCE, MAX_LINES_PER_SECOND } from './line-budget.ts';
import { WaitingRoom } from './waiting-room.ts';

const MAX_WAITING = 64;

/** The clock in the hands of the test. */
function stopClock(): Disposable {
  mock.timers.enable({ apis: ['setTimeout', 'setInterval'] });
  return { [Symbol.dispose]: () => mock.timers.reset() };
}

describe('the heartbeat', () => {
  test('a pong without a ping is refused', () => {
    using _clock = stopClock();
    using heartbeat = new Heartbeat({ heartbeatMs: 10, deadMs: 40, ping: () => {}, onDead: () => {} });
    assert.throws(() => heartbeat.answered(7), /a pong without a ping/);
    heartbeat.answered(1);
    assert.throws(() => heartbeat.answered(1), /a pong without a ping/);
    assert.ok(heartbeat.roundTripMs >= 0);
  });

  test('a peer that is silent, or talks but does not answer, is dead, and one that answers is not', () => {
    using _clock = stopClock();
    const deaths: string[] = [];
    const onDead = (reason: string): void => void deaths.push(reason);
    {
      using _silent = new Heartbeat({ heartbeatMs: 10, deadMs: 40, ping: () => {}, onDead });
      mock.timers.tick(39);
      assert.deepEqual(deaths, []);
      mock.timers.tick(1);
      assert.deepEqual(deaths.splice(0), ['silent for 40 ms']);
    }
    {
      using talker = new Heartbeat({ heartbeatMs: 10, deadMs: 40, ping: () => {}, onDead });
      for (let tick = 0; tick < 64; tick++) {
        talker.heard();
        mock.timers.tick(10);
      }
      assert.deepEqual(deaths.splice(0), ['64 pings without an answer']);
    }
    {
      const pings: number[] = [];
      using heartbeat = new Heartbeat({ heartbeatMs: 10, deadMs: 40, ping: (n) => void pings.push(n), onDead });
      for (let tick = 0; tick < 200; tick++) {
        heartbeat.heard();
        for (const number of pings.splice(0)) heartbeat.answered(number);
        mock.timers.tick(10);
      }
      assert.deepEqual(deaths, []);
    }
  });

  test('the second of two sends no pings while those of the first come, and finds out as soon that they do not', () => {
    using _clock = stopClock();
    const deaths: string[] = [];
    const pings: number[] = [];
    const [ping, onDead] = [(n: number) => void pings.push(n), (reason: string) => void deaths.push(reason)];
    using second = new Heartbeat({ heartbeatMs: 10, deadMs: 40, isSecond: true, ping, onDead });
    for (let tick = 0; tick < 200; tick++) {
      second.heard();
      mock.timers.tick(10);
    }
    assert.deepEqual([pings, deaths], [[1], []], 'the first tells how long a round trip takes');
    mock.timers.tick(20);
    assert.deepEqual([pings, deaths], [[1, 2, 3], []]);
    mock.timers.tick(10);
    assert.deepEqual(deaths, ['silent for 40 ms']);
  });
});

describe('the budget of lines', () => {
  test('a burst is taken, more is refused, and time fills it again', () => {
    const budget = new LineBudget(0);
    for (let line = 0; line < MAX_LINES_AT_ONCE; line++) budget.spend(0);
    assert.throws(() => budget.spend(0), /more than 1024 lines a second/);
    for (let line = 1; line < MAX_LINES_PER_SECOND; line++) budget.spend(1000);
    assert.throws(() => budget.spend(1000), /more than 1024 lines a second/);
    const steady = new LineBudget(0);
    for (let line = 0; line < 20_000; line++) steady.spend(line);
  });
});

describe('the waiting room', () => {
  test('that one source has filled has room for others, whatever the time, and not for more of it', () => {
    const room = new WaitingRoom({ maxWaiting: 4, helloMs: 3000, graceMs: 60_000 });
    const sentAway: string[] = [];
    const enter = (name: string, address: string): boolean =>
      room.enter(() => void sentAway.push(name), address) !== undefined;
    for (const name of ['a1', 'a2', 'a3', 'a4']) assert.ok(enter(name, '10.0.0.1'));
    assert.equal(enter('a5', '10.0.0.1'), false);
    assert.ok(enter('b1', '10.0.0.2'));
    assert.ok(enter('c1', '10.0.0.3'));
    assert.deepEqual(sentAway.splice(0), ['a5', 'a1', 'a2']);
    assert.equal(enter('b2', '10.0.0.2'), false, 'then all have two or fewer');
    // Addresses of one IPv6 network are of one source, however they are written.
    const second = new WaitingRoom({ maxWaiting: 3, helloMs: 3000, graceMs: 60_000 });
    const also = (address: string): boolean => second.enter(() => void sentAway.push(address), address) !== undefined;
    for (const address of ['fd00::1', 'fd00:0:0:0:1:2:3:4', 'fd00::5:6']) assert.ok(also(address));
    assert.equal(also('fd00::7'), false);
    assert.ok(also('fd00:0:0:1::1'));
    assert.deepEqual(sentAway, ['b2', 'fd00::7', 'fd00::1']);
    for (const each of [room, second]) each.close('over');
  });

  test('who says nothing is sent away in time, and who left is not', () => {
    using _clock = stopClock();
    const room = new WaitingRoom({ maxWaiting: 64, helloMs: 3000 });
    const sentAway: string[] = [];
    room.enter((reason) => void sentAway.push(`first: ${reason}`));
    const second = room.enter((reason) => void sentAway.push(`second: ${reason}`));
    mock.timers.tick(2999);
    second?.leave();
    second?.leave();
    assert.deepEqual([sentAway, room.size], [[], 1]);
    mock.timers.tick(1);
    assert.deepEqual([sentAway, room.size], [['first: no hello within 3000 ms'], 0]);
  });

  test('a full room turns newcomers away, or the one who waited long', () => {
    for (const [graceMs, isOldestExpelled] of [
      [60_000, false],
      [0, true],
    ] as const) {
      const room = new WaitingRoom({ maxWaiting: MAX_WAITING, helloMs: 3000, graceMs });
      const sentAway: number[] = [];
      for (let index = 0; index <= MAX_WAITING; index++) {
        const guest = room.enter(() => void sentAway.push(index));
        assert.equal(guest === undefined, index === MAX_WAITING && !isOldestExpelled);
      }
      assert.deepEqual(sentAway.splice(0), [isOldestExpelled ? 0 : MAX_WAITING]);
      assert.equal(room.size, MAX_WAITING);
      room.close('shutdown');
      assert.deepEqual([sentAway.length, room.size], [MAX_WAITING, 0]);
    }
  });
});
