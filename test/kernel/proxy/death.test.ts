// Tests what programs notice when a daemon is killed, theirs or the other: resets in bounded time,
// plain TCP, and a clean restart. Runs alone: it measures how long programs wait.

import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import { sweepInstances } from '../../../src/steering/index.ts';
import { eventually } from '../../../workbench/worlds/eventually.ts';
import { remainsOf, sweepDeadTests } from '../../../workbench/worlds/lab-runs.ts';
import { type Name, ProxyWorld, type Wire } from '../../../workbench/worlds/proxy-world.ts';
import { RunningProgram } from '../../../workbench/worlds/running-program.ts';
import { attachedTo } from '../native/kernel-objects.ts';
import { BehavioursProgram } from '../steering/behaviours-program.ts';
import { compile } from '../steering/compile.ts';

const holder = join(import.meta.dirname, '../steering/death/hold-connections.ts');
const crowdPort = 7300;
const heldCount = 40;
const floodPort = 7400;
const endlessBytes = 1e12;
const channel = { heartbeatMs: 100, deadMs: 400, recoverySeconds: 1 };
/**
 * Of a daemon that is gone, the hooks know after a second, its peer after deadMs and
 * recoverySeconds; a busy machine adds to it.
 */
const plainAgainMs = 1500;
const lastResetMs: Readonly<Record<Name, number>> = { a: 1000, b: 400 + 1000 + 1000 };
const detachMs = 2000;

before(sweepDeadTests);
const flood = compile([join(import.meta.dirname, '../steering/backpressure/flood.c')]);
const program = new BehavioursProgram();

function testDeaths(wire: Wire, victims: readonly Name[]): void {
  let world: ProxyWorld;
  let server: RunningProgram;
  before(async () => {
    world = await ProxyWorld.create({ wire, settings: { channel } });
    server = await program.serve(world.b);
    await world.listening(crowdPort + 3);
  });
  after(() => world?.close());

  /** One short conversation after the other, over and over; what it prints is of no interest. */
  const startLoad = (): RunningProgram => {
    const words = ['client', world.b.ipv4, ...Array.from({ length: 50 }, () => 'short')];
    return RunningProgram.start(world.a, program.file, words, { endWith: 'SIGKILL' });
  };

  /** Until a conversation is right. */
  async function untilServed(): Promise<number> {
    const startMs = performance.now();
    for (;;) {
      const { client } = await program.observe('nonblocking', world.a, server, world.b.ipv4);
      if (client.endsWith('answer 16 from listener 0')) return performance.now() - startMs;
      assert.ok(performance.now() - startMs < 10_000, client);
    }
  }

  async function restart(victim: Name): Promise<void> {
    await world.start(victim);
    await world.ready();
  }

  for (const [index, victim] of victims.entries()) {
    test(`kill ${index + 1}, of ${victim} under load: resets, then plain TCP, then carried again`, async (t) => {
      // A round that failed left none.
      if (world.daemons[victim].hasExited) await restart(victim);
      await world.listening(crowdPort);
      const attached = attachedTo(world[victim].cgroup);
      assert.ok(attached.includes('steer_connect4'));
      await using load = startLoad();
      const words = [holder, world.b.ipv4, String(crowdPort), String(heldCount)];
      await using held = RunningProgram.start(world.a, process.execPath, words);
      await held.line(/^held$/);
      await sleep(Math.random() * 300);
      const killedMs = Date.now();
      await world.daemons[victim].kill();
      const plainMs = await untilServed();
      const endings = JSON.parse(await held.line(/^\[/)) as { readonly code: string; readonly ms: number }[];
      const lastMs = Math.max(...endings.map(({ ms }) => ms)) - killedMs;
      t.diagnostic(`plain TCP after ${plainMs.toFixed(0)} ms, the last reset after ${lastMs} ms`);
      assert.deepEqual(new Set(endings.map(({ code }) => code)), new Set(['ECONNRESET']));
      assert.ok(lastMs < lastResetMs[victim], `the last reset came after ${lastMs} ms`);
      assert.ok(plainMs < plainAgainMs, `plain TCP again after ${plainMs} ms`);
      const stale = world.carried();
      const { client } = await program.observe('short', world.a, server, world.b.ipv4);
      assert.equal(client, '1000 of 1000 right, no error');
      assert.equal(world.carried(), stale, 'carried by nobody');
      await load.close();
      await restart(victim);
      await world.listening(crowdPort);
      const before = world.carried();
      const again = await program.observe('threads', world.a, server, world.b.ipv6);
      assert.equal(again.client, '400 of 400 right');
      assert.equal(world.carried() - before, 400);
      // Not once more than before, either.
      await eventually('only the new programs are attached', () =>
        isDeepStrictEqual(attachedTo(world[victim].cgroup), attached),
      );
    });
  }

  for (const victim of new Set(victims)) {
    test(`a transfer that is cut by the end of ${victim} is reset on both sides: nobody takes it for the end of the bytes`, async () => {
      await using receiver = RunningProgram.start(world.b, flood, ['receive', String(floodPort)], {
        endWith: 'SIGKILL',
      });
      await receiver.line(/^listening$/);
      await world.listening(floodPort);
      const words = ['send', world.b.ipv4, String(floodPort), 'blocking', String(endlessBytes)];
      await using sender = RunningProgram.start(world.a, flood, words, { endWith: 'SIGKILL' });
      await receiver.line(/^accepted$/);
      // It says so first, and stops itself then.
      await eventually('the receiver stops', () => /\) T /.test(readFileSync(`/proc/${receiver.pid}/stat`, 'utf8')));
      receiver.signal('SIGCONT');
      await sleep(100 + Math.random() * 200);
      await world.daemons[victim].kill();
      assert.match(await sender.line(/./), /^send (?:ECONNRESET|EPIPE)$/);
      assert.equal(await receiver.line(/./), 'recv ECONNRESET');
      await restart(victim);
    });
  }

  test('what a killed daemon left is swept; in the end nothing is attached, pinned or left in a folder', async () => {
    const { a, b } = world.daemons;
    await a.kill();
    assert.equal(a.isPinned, true);
    assert.ok(sweepInstances().includes(a.instance));
    assert.equal(a.isPinned, false);
    // The kernel takes its time to let go of them.
    await eventually('nothing is attached to a', () => attachedTo(world.a.cgroup).length === 0, detachMs);
    const { client } = await program.observe('threads', world.a, server, world.b.ipv4);
    assert.equal(client, '400 of 400 right');
    await restart('a');
    await world.stop();
    assert.equal(b.isPinned, false);
    for (const host of [world.a, world.b]) {
      await eventually(`nothing is attached to ${host.name}`, () => attachedTo(host.cgroup).length === 0, detachMs);
    }
    const left = readdirSync(world.folder.path, { recursive: true, encoding: 'utf8' });
    assert.deepEqual(
      left.filter((name) => name !== 'soft' && !name.endsWith('.yaml')),
      [],
    );
    const { labId } = world.a;
    await world.close();
    assert.deepEqual(remainsOf(labId), []);
  });
}

describe('a daemon that is killed', { concurrency: false }, () => {
  testDeaths('shm', ['a', 'b', 'a']);
});

describe('a daemon that is killed while it carries over roce', { concurrency: false }, () => {
  testDeaths('roce', ['b']);
});
