// iperf3 up, down, both ways and with several streams: that it finishes, and between which
// addresses it says it ran.

import assert from 'node:assert/strict';
import { RunningProgram } from '../../../../workbench/worlds/running-program.ts';
import type { World } from '../../../../workbench/worlds/world.ts';

const port = 5201;

interface Report {
  readonly error?: string;
  readonly start: { readonly connected: readonly { readonly local_host: string; readonly remote_host: string }[] };
  readonly end: {
    readonly sum_sent: { readonly bytes: number };
    readonly sum_received: { readonly bytes: number };
  };
}

/**
 * More than all buffers hold on the way: its server does not count what it has not read in the end.
 */
const runs = {
  up: ['-n', '128M'],
  down: ['-n', '128M', '-R'],
  both: ['-n', '64M', '--bidir'],
  streams: ['-n', '128M', '-P', '4'],
  small: ['-n', '32M', '-l', '256'],
} as const;

export async function tryIperf(world: World): Promise<unknown> {
  await using server = RunningProgram.start(world.b, 'iperf3', ['-s', '-p', String(port), '--forceflush']);
  await server.line(/Server listening/);
  await world.listening(port);
  const results: Record<string, unknown> = {};
  for (const [name, words] of Object.entries(runs)) {
    for (const address of [world.b.ipv4, world.b.ipv6]) {
      if (address === world.b.ipv6 && name !== 'up') continue;
      const report = JSON.parse(
        await world.call('iperf3', ['-c', address, '-p', String(port), '-J', ...words]),
      ) as Report;
      assert.equal(report.error, undefined);
      // Its last client may be gone before it is done. It listens anew for each.
      await server.line(/Server listening/);
      await world.listeningAgain(port);
      results[`${name} ${address}`] = {
        hosts: report.start.connected.map((one) => `${one.local_host} ${one.remote_host}`),
        isSent: report.end.sum_sent.bytes > 1_000_000,
        isReceived: report.end.sum_received.bytes > 1_000_000,
      };
    }
  }
  return results;
}
