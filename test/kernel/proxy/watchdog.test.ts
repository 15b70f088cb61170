// Threads of a daemon that are stuck: reported with where they are, left out, and ended with the
// daemon when they stay so.

import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { metricsText } from '../../../src/telemetry/index.ts';
import { eventually } from '../../../workbench/worlds/eventually.ts';
import { sweepDeadTests } from '../../../workbench/worlds/lab-runs.ts';
import { ProxyWorld } from '../../../workbench/worlds/proxy-world.ts';
import type { RunningProgram } from '../../../workbench/worlds/running-program.ts';
import { AttacksProgram } from '../attacks/attacks-program.ts';

const port = 7001;
const allRight = { right: 5, wrong: 0, failed: 0, error: '-' };

before(sweepDeadTests);
const program = new AttacksProgram();
after(() => program[Symbol.dispose]());

describe('a stuck thread', { concurrency: false }, () => {
  let world: ProxyWorld;
  before(async () => {
    world = await ProxyWorld.create({ settings: { watchdog: { stuckSeconds: 1, restartSeconds: 3600 } } });
    await program.serve(world.b, port);
    await world.listening(port);
  });
  after(() => world?.close());

  /** Resolves when the thread of a's daemon stands still. */
  async function freeze(thread: number): Promise<RunningProgram> {
    const freezer = program.start(world.a, ['freeze', thread]);
    await freezer.line(/^frozen$/);
    return freezer;
  }

  const check = (): Promise<object> => program.check(world.a, [world.b.ipv4, port, 5]);
  const reason = /gives no sign of life since \d+ s/;

  test('that is a lane is told once, by log, status, metrics and explain, and goes on', async () => {
    const a = world.running('a');
    await using freezer = await freeze(threadOf(a.pid, 'lane-0'));
    await a.logged(/^lane 0 is stuck, .*: not in JavaScript; thread \d+ is t \(tracing stop\)/);
    const { lanes, notReady } = await a.status();
    assert.ok((lanes[0]?.stuckSeconds ?? 0) >= 1, JSON.stringify(lanes));
    assert.match(notReady.join(), reason);
    const carried = world.carried();
    assert.deepEqual(await check(), allRight, 'by plain TCP');
    assert.equal(world.carried(), carried);
    const plain = (await a.connections()).findLast(({ remote }) => remote === `${world.b.ipv4}:${port}`);
    assert.match(plain?.reason ?? '', reason);
    assert.match((await a.api.explain(String(plain?.pid))).join('\n'), reason);
    assert.match(await metricsText(await a.status()), /^millrace_lane_stuck_seconds\{lane="0"\} [1-9]/m);
    freezer.write('go');
    await freezer.exit();
    await a.logged(/^lane 0 goes on, after \d+ s$/);
    assert.equal(a.log.filter(({ msg }) => msg.startsWith('lane 0 is stuck')).length, 1);
    await world.ready();
    await eventually('it carries again', async () => {
      const before = world.carried();
      assert.deepEqual(await check(), allRight);
      return world.carried() > before;
    });
    assert.deepEqual((await a.status()).notReady, []);
  });

  test('does not keep a daemon from ending in order', async () => {
    const a = world.running('a');
    await using _ = await freeze(threadOf(a.pid, 'lane-0'));
    await a.logged(/^lane 0 is stuck/, 2);
    a.signal('SIGTERM');
    await a.exit();
    assert.equal(a.exitCode, 0);
  });

  for (const { who, thread } of [
    { who: 'lane 0', thread: 'lane-0' },
    { who: 'the main thread', thread: undefined },
  ]) {
    test(`that stays so ends the daemon, and another one carries: ${who}`, async () => {
      const a = await world.start('a', { watchdog: { stuckSeconds: 1, restartSeconds: 2 } });
      await world.ready();
      await world.listening(port);
      const carried = world.carried();
      assert.deepEqual(await check(), allRight);
      assert.ok(world.carried() > carried);
      await using _ = await freeze(thread === undefined ? a.pid : threadOf(a.pid, thread));
      await a.exit();
      assert.equal(a.exitCode, 1);
      assert.match(a.program.stderr, new RegExp(`${who} gives no sign of life since \\d+ s: the daemon ends`));
      assert.match(a.program.stderr, /not in JavaScript; thread \d+ is t \(tracing stop\)/);
      assert.deepEqual(await check(), allRight, 'by plain TCP');
    });
  }
});

function threadOf(pid: number, name: string): number {
  const found = readdirSync(`/proc/${pid}/task`).find(
    (thread) => readFileSync(`/proc/${pid}/task/${thread}/comm`, 'utf8').trim() === name,
  );
  assert.ok(found !== undefined, `process ${pid} has no thread ${name}`);
  return Number(found);
}
