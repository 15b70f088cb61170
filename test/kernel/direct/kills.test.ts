// Tests what is left when something is killed: daemons under load, a program with bytes on their
// way. The connections are direct, between two hosts.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { Traffic } from '../../../workbench/soak/traffic.ts';
import { addTotals } from '../../../workbench/soak/traffic-protocol.ts';
import { eventually } from '../../../workbench/worlds/eventually.ts';
import { sweepDeadTests } from '../../../workbench/worlds/lab-runs.ts';
import { MirroredWorld } from '../../../workbench/worlds/mirrored-world.ts';
import { RunningProgram } from '../../../workbench/worlds/running-program.ts';
import { compile } from '../steering/compile.ts';

before(sweepDeadTests);

/** From each host. */
const CONNECTIONS = 20;
const KILLS = 4;
const PORT = 7400;

test('daemons are killed under load: no connection breaks, no byte is wrong, nothing stays', async (t) => {
  // Offered early, so that connections of all kinds are direct at some time.
  await using world = await MirroredWorld.start({ env: { MILLRACE_DIRECT_AFTER: '4' } });
  const { a, b } = world;
  const orders = { port: PORT, connections: CONNECTIONS };
  await using one = await Traffic.start(a, { ...orders, targets: [b.ipv4, b.ipv6], seed: 1 });
  await using other = await Traffic.start(b, { ...orders, targets: [a.ipv4, a.ipv6], seed: 2 });
  one.start();
  other.start();
  let promoted = 0;
  for (let kill = 0; kill < KILLS; kill++) {
    const name = kill % 2 === 0 ? 'a' : 'b';
    const daemon = world.daemon(name);
    await eventually('connections are direct', async () => (await daemon.status()).direct.mirrored > 0);
    promoted += (await daemon.status()).direct.promoted;
    await daemon.kill();
    // Everything goes on by TCP meanwhile.
    await sleep(300);
    await world.startDaemon(name);
  }
  await Promise.all([one.stop(), other.stop()]);
  const totals = await one.totals();
  addTotals(totals, await other.totals());
  assert.deepEqual([...one.outcomes, ...other.outcomes], []);
  const bytes = Object.values(totals).reduce((sum, row) => sum + row.bytes, 0);
  t.diagnostic(`${promoted} connections were promoted, ${bytes} bytes exact`);
  for (const name of ['a', 'b'] as const) {
    await eventually('nothing is left', async () => {
      const { programs, connections } = (await world.daemon(name).status()).direct;
      return programs === 0 && connections === 0;
    });
  }
});

/** Root may have as much room in TCP as it wants; others leave what does not fit to their lane. */
const users = { root: [], nobody: ['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups'] } as const;
const SIZES = { few: 1000, many: 4_000_000 } as const;

describe('a program ends with bytes on their way', { concurrency: false }, () => {
  const program = compile([join(import.meta.dirname, 'killed/main.c')]);
  let world: MirroredWorld;
  let port = PORT;
  before(async () => {
    world = await MirroredWorld.start();
  });
  after(() => world?.close());

  for (const how of ['kill', 'close', 'shut', 'exit']) {
    for (const [user, as] of Object.entries(users)) {
      for (const [size, bytes] of Object.entries(SIZES)) {
        test(`by ${how}, as ${user}: all that it could write arrive, if ${size}, and then the end`, async () => {
          const at = String(++port);
          const earlier = await world.promoted();
          await using receiver = RunningProgram.start(world.b, program, ['receive', at], { isWritable: true });
          await world.listening(port);
          const [command, ...args] = [...as, program, how, world.b.ipv4, at, String(bytes)];
          await using sender = RunningProgram.start(world.a, command, args);
          const sent = (await sender.line(/^sent \d+$/)).slice('sent '.length);
          if (how !== 'shut') await sender.exit();
          assert.equal((await world.promoted()) - earlier, 1);
          receiver.write('go');
          assert.equal(await receiver.line(/^received /), `received ${sent} right end`);
          await sender.exit();
          assert.equal(sender.exitCode, how === 'kill' ? null : 0, sender.stderr);
        });
      }
    }
  }
});
