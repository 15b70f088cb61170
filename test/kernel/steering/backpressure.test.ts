// Tests that a receiver that stops also stops its sender, through the relay as over plain TCP, and that nothing is lost.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { sweepDeadTests } from '../fixtures/lab-world.ts';
import { compile } from './compile.ts';
import { cpuMs, full, residentBytes, socketBytes } from './process-figures.ts';
import { RunningProgram } from './running-program.ts';
import { SteeredWorld } from './steered-world.ts';
import { temporaryFolder } from './temporary-folder.ts';

const port = 7400;
const offeredBytes = 1_000_000_000;
const mostHeldBytes = 32 * 1024 * 1024;
/** How long the receiver stays stopped after everything between the two is full. MILLRACE_STALL_MS makes it longer. */
const stallMs = Number(process.env.MILLRACE_STALL_MS ?? 3000);
/** Of one core. The relay also tells several times a second that it is alive. */
const mostCpuShare = 0.1;

before(sweepDeadTests);
const folder = temporaryFolder('flood');
after(() => folder[Symbol.dispose]());
const flood = join(folder.path, 'flood');
compile([join(import.meta.dirname, 'backpressure/flood.c')], flood);

describe('a stopped receiver stops its sender', { concurrency: false }, () => {
  let world: SteeredWorld;
  before(async () => {
    world = await SteeredWorld.create();
  });
  after(() => world.close());

  for (const mode of ['blocking', 'level', 'edge']) {
    test(`a ${mode} sender waits, little is held meanwhile, and all bytes are right`, async (t) => {
      const { a, b, relays } = world;
      await using receiver = RunningProgram.start(b, flood, ['receive', String(port)], { endWith: 'SIGKILL' });
      await receiver.line(/^listening$/);
      await world.listening(port);
      const carried = world.carried();
      const restingBytes = residentBytes(relays.a.pid) + (await socketBytes(a)) + (await socketBytes(b));
      const words = ['send', b.ipv4, String(port), mode, String(offeredBytes)];
      await using sender = RunningProgram.start(a, flood, words, { endWith: 'SIGKILL' });
      await receiver.line(/^accepted$/);
      await full([a, b]);
      const startMs = performance.now();
      const before = { sender: cpuMs(sender.pid), relay: cpuMs(relays.a.pid) };
      await sleep(stallMs);
      const heldBytes = residentBytes(relays.a.pid) + (await socketBytes(a)) + (await socketBytes(b)) - restingBytes;
      const passedMs = performance.now() - startMs;
      const cpu = {
        sender: (cpuMs(sender.pid) - before.sender) / passedMs,
        relay: (cpuMs(relays.a.pid) - before.relay) / passedMs,
      };
      t.diagnostic(`held ${(heldBytes / 2 ** 20).toFixed(1)} MiB; CPU ${JSON.stringify(cpu)}`);
      assert.equal(sender.hasExited, false);
      assert.match(readFileSync(`/proc/${sender.pid}/stat`, 'utf8'), /\) S /);
      assert.ok(heldBytes < mostHeldBytes, `${heldBytes} bytes are held`);
      assert.ok(cpu.sender < mostCpuShare && cpu.relay < mostCpuShare, JSON.stringify(cpu));
      receiver.signal('SIGCONT');
      assert.match(await sender.line(/./), /^offered all/);
      assert.equal(await receiver.line(/./), `${offeredBytes} bytes, right`);
      assert.equal(world.carried(), carried + 1);
    });
  }
});
