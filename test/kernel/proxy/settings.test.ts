// Tests that what the config can choose is done, and carries as the default does: receive queues,
// MTU, redirected legs; and the shortcut beside it. The GID that a device is to use is tested where
// devices have several: test/vm/proxy/proxy.test.ts.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { redirectEverything } from '../../../workbench/worlds/daemon-process.ts';
import { eventually } from '../../../workbench/worlds/eventually.ts';
import { sweepDeadTests } from '../../../workbench/worlds/lab-runs.ts';
import { ProxyWorld } from '../../../workbench/worlds/proxy-world.ts';
import { RunningProgram } from '../../../workbench/worlds/running-program.ts';
import { temporaryFolder } from '../../../workbench/worlds/temporary-folder.ts';
import { BehavioursProgram } from '../steering/behaviours-program.ts';
import { compile } from '../steering/compile.ts';
import { isStopped } from '../steering/process-figures.ts';

const listenPort = 7300;
const floodPort = 7400;
const floodBytes = 20_000_000;
/** Less than the device would choose by itself. */
const MTU = 512;
/** UDP, BTH, RETH, immediate data and ICRC. */
const MOST_HEADER_BYTES = 8 + 12 + 16 + 4 + 4;

before(sweepDeadTests);
const folder = temporaryFolder('settings');
after(() => folder[Symbol.dispose]());
const flood = compile([join(import.meta.dirname, '../steering/backpressure/flood.c')]);
const program = new BehavioursProgram();

/** A short conversation and many checked bytes. */
async function carries(world: ProxyWorld): Promise<void> {
  await using server = await program.serve(world.b);
  await world.listening(listenPort);
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
  await eventually('the receiver has stopped', () => isStopped(receiver.pid));
  receiver.signal('SIGCONT');
  assert.equal(await receiver.line(/./), `${floodBytes} bytes, right`);
  await sender.line(/^offered all/);
  assert.ok(world.carried() >= before + 2);
}

/** The longest UDP datagram of RoCEv2 that came to host b while `talk` went on. */
async function longestPacket(world: ProxyWorld, talk: () => Promise<void>): Promise<number> {
  // Cut packets up before they are on the cable, where a recording shows each.
  await world.call('ip', ['link', 'set', 'eth0', 'gso_max_segs', '1']);
  const file = join(folder.path, 'talk.pcap');
  const words = ['-q', '-i', 'eth0', '-f', `udp dst port 4791 and src host ${world.a.ipv4}`, '-w', file];
  const watching = RunningProgram.start(world.b, 'dumpcap', words, { endWith: 'SIGINT' });
  await eventually('the recording has begun', () => /^File: /m.test(watching.stderr));
  await talk();
  await watching.close();
  const { stdout } = await world.b.run('tshark', ['-r', file, '-T', 'fields', '-e', 'udp.length']);
  return Math.max(...stdout.trim().split('\n').map(Number));
}

describe('what the config can choose', { concurrency: false }, () => {
  for (const wire of ['shm', 'tcp', 'roce'] as const) {
    test(`a receive queue for each queue pair, over ${wire}, carries`, async () => {
      await using world = await ProxyWorld.create({ wire, settings: { channel: { sharedReceiveQueue: false } } });
      await carries(world);
      await world.stop();
    });
  }

  test('packets of 512 bytes are no longer than that', async () => {
    const device = { runtimeDir: join(folder.path, 'soft'), mtu: MTU };
    await using world = await ProxyWorld.create({ wire: 'roce', settings: { device } });
    const longest = await longestPacket(world, () => carries(world));
    assert.ok(longest > MTU && longest <= MTU + MOST_HEADER_BYTES, `a packet of ${longest} bytes`);
    await world.stop();
  });

  test('legs of rules with redirect carry, past TCP', async () => {
    await using world = await ProxyWorld.create({ rules: redirectEverything });
    await carries(world);
    const redirected = world.running('a').redirected();
    assert.ok(redirected > 0, 'nothing was redirected');
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
