// Tests what programs notice when the relay is killed: a second of refusals at most, resets instead of hangs, and a clean restart.
// Runs beside other files: it mostly waits.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import { sweepInstances } from '../../../src/steering/index.ts';
import { sweepDeadTests } from '../fixtures/lab-world.ts';
import { attachedTo } from './attached.ts';
import { BehavioursProgram } from './behaviours-program.ts';
import { compile } from './compile.ts';
import { RunningProgram } from './running-program.ts';
import { SteeredWorld } from './steered-world.ts';
import { temporaryFolder } from './temporary-folder.ts';
import { until } from './world.ts';

const holder = join(import.meta.dirname, 'death/hold-connections.ts');
const crowdPort = 7300;
const heldCount = 40;
const rounds = 4;
/** A connect that the hooks still steer is refused until the daemon's last word is a second old; what a busy machine adds is the test's. */
const plainAgainMs = 1000;
const slackMs = 500;
const detachMs = 2000;
const floodPort = 7400;
const endlessBytes = 1e12;

before(sweepDeadTests);

describe('a relay that is killed', { concurrency: false }, () => {
  const program = new BehavioursProgram();
  let world: SteeredWorld;
  let server: RunningProgram;
  before(async () => {
    world = await SteeredWorld.create();
    server = await program.serve(world.b);
    await world.listening(crowdPort + 3);
  });
  after(async () => {
    await world.close();
    program[Symbol.dispose]();
  });

  /** One short conversation after the other, over and over; what it prints is of no interest. */
  const startLoad = (): RunningProgram =>
    RunningProgram.start(
      world.a,
      program.file,
      ['client', world.b.ipv4, ...Array.from({ length: 50 }, () => 'short')],
      {
        endWith: 'SIGKILL',
      },
    );

  /** Until one conversation after the other is right. */
  async function untilServed(): Promise<number> {
    const startMs = performance.now();
    for (;;) {
      const { client } = await program.observe('nonblocking', world.a, server, world.b.ipv4);
      if (client.endsWith('answer 16 from door 0')) return performance.now() - startMs;
      assert.ok(performance.now() - startMs < 10_000, client);
    }
  }

  for (let round = 1; round <= rounds; round++) {
    test(`kill ${round} under load: resets, then plain TCP within a second, then carried again`, async (t) => {
      // A round that failed left none.
      if (world.relays.a.hasExited) await world.restart('a');
      await world.listening(crowdPort);
      const attached = attachedTo(world.a.cgroup);
      assert.ok(attached.includes('steer_connect4'));
      await using load = startLoad();
      await using held = RunningProgram.start(world.a, process.execPath, [
        holder,
        world.b.ipv4,
        String(crowdPort),
        String(heldCount),
      ]);
      await held.line(/^held$/);
      await sleep(Math.random() * 400);
      const killedMs = Date.now();
      await world.relays.a.kill();
      const plainMs = await untilServed();
      const endings = JSON.parse(await held.line(/^\[/)) as { readonly code: string; readonly ms: number }[];
      const lastMs = Math.max(...endings.map(({ ms }) => ms)) - killedMs;
      t.diagnostic(`plain TCP after ${plainMs.toFixed(0)} ms, the last reset after ${lastMs} ms`);
      assert.deepEqual(new Set(endings.map(({ code }) => code)), new Set(['ECONNRESET']));
      assert.ok(lastMs < plainAgainMs, `the last reset came after ${lastMs} ms`);
      assert.ok(plainMs < plainAgainMs + slackMs, `plain TCP again after ${plainMs} ms`);
      const stale = world.relays.a.verdict('carried');
      const { client } = await program.observe('short', world.a, server, world.b.ipv4);
      assert.equal(client, '1000 of 1000 right, no error');
      assert.equal(world.relays.a.verdict('carried'), stale, 'carried by nobody');
      await load.close();
      await world.restart('a');
      await world.listening(crowdPort);
      const before = world.carried();
      const again = await program.observe('threads', world.a, server, world.b.ipv6);
      assert.equal(again.client, '400 of 400 right');
      assert.equal(world.carried() - before, 400);
      // Not once more than before, either.
      await until('only the new programs are attached', () => isDeepStrictEqual(attachedTo(world.a.cgroup), attached));
    });
  }

  test('a transfer that is cut is reset on both sides: nobody takes the end of the relay for the end of the bytes', async () => {
    using folder = temporaryFolder('flood');
    const flood = join(folder.path, 'flood');
    compile([join(import.meta.dirname, 'backpressure/flood.c')], flood);
    await using receiver = RunningProgram.start(world.b, flood, ['receive', String(floodPort)], { endWith: 'SIGKILL' });
    await receiver.line(/^listening$/);
    await world.listening(floodPort);
    const words = ['send', world.b.ipv4, String(floodPort), 'blocking', String(endlessBytes)];
    await using sender = RunningProgram.start(world.a, flood, words, { endWith: 'SIGKILL' });
    await receiver.line(/^accepted$/);
    // It says so first, and stops itself then.
    await until('the receiver stops', () => /\) T /.test(readFileSync(`/proc/${receiver.pid}/stat`, 'utf8')));
    receiver.signal('SIGCONT');
    await sleep(100 + Math.random() * 200);
    await world.relays.a.kill();
    assert.match(await sender.line(/./), /^send (?:ECONNRESET|EPIPE)$/);
    assert.equal(await receiver.line(/./), 'recv ECONNRESET');
    await world.restart('a');
  });

  test('what a killed relay left is swept, and nothing is attached or pinned then', async () => {
    const { a, b } = world.relays;
    await a.kill();
    assert.equal(a.isPinned, true);
    assert.ok(sweepInstances().includes(a.instance));
    assert.equal(a.isPinned, false);
    // The kernel takes its time to let go of them.
    await until('nothing is attached to a', () => attachedTo(world.a.cgroup).length === 0, detachMs);
    const { client } = await program.observe('threads', world.a, server, world.b.ipv4);
    assert.equal(client, '400 of 400 right');
    await b.stop();
    assert.equal(b.isPinned, false);
    await until('nothing is attached to b', () => attachedTo(world.b.cgroup).length === 0, detachMs);
  });
});
