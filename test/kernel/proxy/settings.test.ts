// Tests that what the config can choose carries as the default does: receive queues, MTU, GID, redirected legs; and the shortcut beside it.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { sweepDeadTests } from '../fixtures/lab-world.ts';
import { BehavioursProgram } from '../steering/behaviours-program.ts';
import { redirectEverything } from '../steering/carrying-world.ts';
import { compile } from '../steering/compile.ts';
import { isStopped } from '../steering/process-figures.ts';
import { RunningProgram } from '../steering/running-program.ts';
import { temporaryFolder } from '../steering/temporary-folder.ts';
import { until } from '../steering/world.ts';
import type { Settings } from './daemon-process.ts';
import { ProxyWorld, type Wire } from './proxy-world.ts';

const doorPort = 7300;
const floodPort = 7400;
const floodBytes = 20_000_000;

before(sweepDeadTests);
const folder = temporaryFolder('settings');
after(() => folder[Symbol.dispose]());
const flood = join(folder.path, 'flood');
compile([join(import.meta.dirname, '../steering/backpressure/flood.c')], flood);
const program = new BehavioursProgram();
after(() => program[Symbol.dispose]());

/** A short conversation and many checked bytes. */
async function carries(world: ProxyWorld): Promise<void> {
  await using server = await program.serve(world.b);
  await world.listening(doorPort);
  const before = world.carried();
  const { client } = await program.observe('nonblocking', world.a, server, world.b.ipv4);
  assert.match(client, /answer 16 from listener 0$/);
  await using receiver = RunningProgram.start(world.b, flood, ['receive', String(floodPort)], { endWith: 'SIGKILL' });
  await receiver.line(/^listening$/);
  await world.listening(floodPort);
  const words = ['send', world.b.ipv4, String(floodPort), 'blocking', String(floodBytes)];
  await using sender = RunningProgram.start(world.a, flood, words, { endWith: 'SIGKILL' });
  await receiver.line(/^accepted$/);
  // It stops itself a moment later; a SIGCONT before that is lost.
  await until('the receiver has stopped', () => isStopped(receiver.pid));
  receiver.signal('SIGCONT');
  assert.equal(await receiver.line(/./), `${floodBytes} bytes, right`);
  await sender.line(/^offered all/);
  assert.ok(world.carried() >= before + 2);
}

const choices: readonly { what: string; wire: Wire; settings: (world: { folder: string }) => Settings }[] = [
  ...(['shm', 'tcp', 'roce'] as const).map((wire) => ({
    what: `a receive queue for each queue pair, over ${wire}`,
    wire,
    settings: () => ({ channel: { sharedReceiveQueue: false } }),
  })),
  {
    what: 'packets of 1024 bytes from the first GID, over roce',
    wire: 'roce',
    settings: ({ folder: runtimeDir }) => ({ device: { runtimeDir, mtu: 1024, gidIndex: 0 } }),
  },
];

describe('what the config can choose', { concurrency: false }, () => {
  for (const { what, wire, settings } of choices) {
    test(`${what}, carries`, async () => {
      await using world = await ProxyWorld.create({ wire, settings: settings({ folder: join(folder.path, 'soft') }) });
      await carries(world);
      await world.stop();
    });
  }

  test('legs of rules with redirect carry', async () => {
    await using world = await ProxyWorld.create({ rules: redirectEverything });
    await carries(world);
    await world.stop();
  });

  test('a rule with shortcut joins two programs of one host, and the daemon has no part in it', async () => {
    await using world = await ProxyWorld.createIdle();
    await world.start('a', { rules: [`shortcut to ${world.a.ipv4}`] });
    await using server = await program.serve(world.a);
    const before = world.running('a').verdict('shortcut');
    const { client } = await program.observe('nonblocking', world.a, server, world.a.ipv4);
    assert.match(client, /answer 16 from listener 0$/);
    assert.ok(world.running('a').verdict('shortcut') > before);
    assert.equal(world.running('a').verdict('carried'), 0);
  });
});
