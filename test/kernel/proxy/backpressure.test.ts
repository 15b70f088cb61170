// Tests that a receiver that stops also stops its sender through two daemons, that little is held
// meanwhile, and that others go on. Runs alone: it measures memory, processor time and speed.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { sweepDeadTests } from '../../../workbench/worlds/lab-runs.ts';
import { ProxyWorld } from '../../../workbench/worlds/proxy-world.ts';
import { RunningProgram } from '../../../workbench/worlds/running-program.ts';
import { compile } from '../steering/compile.ts';
import { cpuMs, full, residentBytes, socketBytes } from '../steering/process-figures.ts';

const port = 7400;
const iperfPort = 5201;
const offeredBytes = 400_000_000;
const mostHeldBytes = 32 * 1024 * 1024;
/**
 * How long the receiver stays stopped after everything between the two is full. MILLRACE_STALL_MS
 * changes it.
 */
const stallMs = 1500;
/** Of one core. Both daemons also tell several times a second that they are alive. */
/**
 * A lane that spins would have all of a core. A thread that has become idle collects its heap once.
 */
const mostCpuShare = 0.25;
const leastSpeedShare = 0.8;
/** What iperf3 sends at a time, by wire: it takes it a quarter to half of a second. */
const measuredBytes = { shm: '1G', roce: '200M' };
/** Pairs of these; when the machine is too busy to tell by the fewest, more are looked at. */
const fewestRounds = 3;
const mostRounds = 20;

before(sweepDeadTests);
const flood = compile([join(import.meta.dirname, '../steering/backpressure/flood.c')]);

interface Flow extends AsyncDisposable {
  readonly sender: RunningProgram;
  readonly receiver: RunningProgram;
}

/** A sender whose receiver has accepted and stopped. */
async function startStalled(world: ProxyWorld, mode: string): Promise<Flow> {
  const { a, b } = world;
  const receiver = RunningProgram.start(b, flood, ['receive', String(port)], { endWith: 'SIGKILL' });
  await receiver.line(/^listening$/);
  await world.listening(port);
  const words = ['send', b.ipv4, String(port), mode, String(offeredBytes)];
  const sender = RunningProgram.start(a, flood, words, { endWith: 'SIGKILL' });
  await receiver.line(/^accepted$/);
  return {
    sender,
    receiver,
    [Symbol.asyncDispose]: async () => {
      await Promise.all([sender.close(), receiver.close()]);
    },
  };
}

/** Bytes a second that one stream of iperf3 gets from host a to host b. */
async function speed(world: ProxyWorld, server: RunningProgram, bytes: string): Promise<number> {
  const words = ['-c', world.b.ipv4, '-p', String(iperfPort), '-n', bytes, '-J'];
  const report = JSON.parse(await world.call('iperf3', words)) as {
    readonly end: { readonly sum_received: { readonly bits_per_second: number } };
  };
  // Its last client may be gone before it is done. It listens anew for each.
  await server.line(/Server listening/);
  await world.listeningAgain(iperfPort);
  return report.end.sum_received.bits_per_second / 8;
}

function median(values: readonly number[]): number {
  return values.toSorted((left, right) => left - right)[Math.floor(values.length / 2)] ?? 0;
}

function megabytes(bytes: number): string {
  return (bytes / 1e6).toFixed(0);
}

for (const wire of ['shm', 'roce'] as const) {
  describe(`a stopped receiver stops its sender over ${wire}`, { concurrency: false }, () => {
    let world: ProxyWorld;
    let iperf: RunningProgram;
    before(async () => {
      world = await ProxyWorld.create({ wire });
      iperf = RunningProgram.start(world.b, 'iperf3', ['-s', '-p', String(iperfPort), '--forceflush']);
      await iperf.line(/Server listening/);
      await world.listening(iperfPort);
      // From now on the rings are in memory, and count for nobody.
      await speed(world, iperf, measuredBytes[wire]);
    });
    after(async () => {
      await iperf?.close();
      await world?.close();
    });

    const held = async (): Promise<number> => {
      const { a, b, daemons } = world;
      const kernels = (await socketBytes(a)) + (await socketBytes(b));
      return kernels + residentBytes(daemons.a.pid) + residentBytes(daemons.b.pid);
    };

    test('the sender waits, little is held in kernels and daemons, nobody is busy, and all bytes are right', async (t) => {
      const { a, b, daemons } = world;
      const carried = world.carried();
      const restingBytes = await held();
      await using flow = await startStalled(world, wire === 'shm' ? 'blocking' : 'edge');
      const { sender, receiver } = flow;
      await full([a, b]);
      const watched = { sender: sender.pid, a: daemons.a.pid, b: daemons.b.pid };
      const before = Object.values(watched).map(cpuMs);
      const startMs = performance.now();
      await sleep(Number(process.env.MILLRACE_STALL_MS ?? stallMs));
      const heldBytes = (await held()) - restingBytes;
      const passedMs = performance.now() - startMs;
      const shares = Object.values(watched).map((pid, index) => (cpuMs(pid) - (before[index] ?? 0)) / passedMs);
      t.diagnostic(`held ${(heldBytes / 2 ** 20).toFixed(1)} MiB; shares of a core: ${shares.join(', ')}`);
      assert.equal(sender.hasExited, false);
      assert.match(readFileSync(`/proc/${sender.pid}/stat`, 'utf8'), /\) S /);
      assert.ok(heldBytes < mostHeldBytes, `${heldBytes} bytes are held`);
      assert.ok(Math.max(...shares) < mostCpuShare, shares.join(', '));
      receiver.signal('SIGCONT');
      assert.match(await sender.line(/./), /^offered all/);
      assert.equal(await receiver.line(/./), `${offeredBytes} bytes, right`);
      assert.equal(world.carried(), carried + 1);
    });

    test('another stream on the same ring keeps four fifths of its speed', async (t) => {
      const alone: number[] = [];
      const beside: number[] = [];
      // By the fastest or by the middle: whatever else runs on the machine slows some of them, and
      // one may be fast by chance. A stalled stream in the way would slow all.
      const share = (): number => Math.max(Math.max(...beside) / Math.max(...alone), median(beside) / median(alone));
      while (alone.length < fewestRounds || (share() < leastSpeedShare && alone.length < mostRounds)) {
        alone.push(await speed(world, iperf, measuredBytes[wire]));
        await using _ = await startStalled(world, 'blocking');
        await full([world.a, world.b]);
        beside.push(await speed(world, iperf, measuredBytes[wire]));
      }
      const figures = [alone, beside].map((values) =>
        [Math.max(...values), median(values)].map(megabytes).join(' and '),
      );
      t.diagnostic(
        `best and median of ${alone.length} in MB/s: alone ${figures[0]}, beside a stalled one ${figures[1]}`,
      );
      assert.ok(share() >= leastSpeedShare, `it keeps ${share().toFixed(2)}`);
    });
  });
}
