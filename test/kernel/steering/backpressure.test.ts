// Tests that a receiver that stops also stops its sender, through the relay as over plain TCP, and that nothing is lost.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Host } from '../../../src/lab/index.ts';
import { sweepDeadTests } from '../fixtures/lab-world.ts';
import { compile } from './compile.ts';
import { RunningProgram } from './running-program.ts';
import { SteeredWorld } from './steered-world.ts';
import { temporaryFolder } from './temporary-folder.ts';
import { succeed } from './world.ts';

const port = 7400;
const offeredBytes = 1_000_000_000;
const mostHeldBytes = 32 * 1024 * 1024;
/** How long the receiver stays stopped after everything between the two is full. MILLRACE_STALL_MS makes it longer. */
const stallMs = Number(process.env.MILLRACE_STALL_MS ?? 3000);
/** Of one core. The relay also tells several times a second that it is alive. */
const mostCpuShare = 0.1;
const tickMs = 10;

before(sweepDeadTests);
const folder = temporaryFolder('flood');
after(() => folder[Symbol.dispose]());
const flood = join(folder.path, 'flood');
compile([join(import.meta.dirname, 'backpressure/flood.c')], flood);

/** What the kernel holds for the sockets of a host: received and not read, sent and not acknowledged, and set aside; see ss(8). */
async function socketBytes(host: Host): Promise<number> {
  const table = await succeed(host, 'ss', ['-tmnH']);
  const sums = [...table.matchAll(/skmem:\(r(\d+),rb\d+,t\d+,tb\d+,f(\d+),w(\d+),/g)].map((match) =>
    match.slice(1).reduce((sum, part) => sum + Number(part), 0),
  );
  return sums.reduce((sum, part) => sum + part, 0);
}

function residentBytes(pid: number): number {
  return 1024 * Number(/VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]);
}

/** User and system time of all threads; fields 14 and 15 of proc_pid_stat(5). */
function cpuMs(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.split(' ') ?? [];
  return tickMs * (Number(fields[11]) + Number(fields[12]));
}

async function full(hosts: readonly Host[]): Promise<void> {
  const lookMs = 300;
  for (let earlier = -1, held = 0, endMs = performance.now() + 20_000; held !== earlier || held === 0; ) {
    assert.ok(performance.now() < endMs, 'it never became full');
    await sleep(lookMs);
    earlier = held;
    held = (await Promise.all(hosts.map(socketBytes))).reduce((sum, part) => sum + part, 0);
  }
}

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
