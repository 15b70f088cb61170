// Tests that connections stay open while daemons stop, die, or read their config again: they go on
// by TCP meanwhile, and the same connections become direct again.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { eventually } from '../../../workbench/worlds/eventually.ts';
import { sweepDeadTests } from '../../../workbench/worlds/lab-runs.ts';
import { MirroredWorld } from '../../../workbench/worlds/mirrored-world.ts';
import { RunningProgram } from '../../../workbench/worlds/running-program.ts';
import { compile } from '../steering/compile.ts';

before(sweepDeadTests);

const CONNECTIONS = 8;
const PORT = '7450';
/** A daemon that waited for direct connections to end would be killed long before. */
const settings = { drainSeconds: 3600 };
/** A daemon that starts must not wait for the traffic. */
const nicely = ['-n', '19'] as const;

describe('connections that stay open', { concurrency: false }, () => {
  const undo = new AsyncDisposableStack();
  let world: MirroredWorld;
  let client: RunningProgram;

  before(async () => {
    const program = compile([join(import.meta.dirname, 'steady/main.c')]);
    world = undo.use(await MirroredWorld.start({ settings, wire: 'tcp' }));
    undo.use(RunningProgram.start(world.b, 'nice', [...nicely, program, 'serve', PORT]));
    await world.listening(Number(PORT));
    const words = [...nicely, program, 'call', world.b.ipv4, PORT, String(CONNECTIONS)];
    client = undo.use(RunningProgram.start(world.a, 'nice', words, { isWritable: true }));
    await allDirect();
  });
  after(() => undo.disposeAsync());

  /** All connections are direct, and bytes have come through both rings of each. */
  async function allDirect(): Promise<void> {
    for (const name of ['a', 'b'] as const) {
      await eventually(`the connections of ${name} are direct`, async () => {
        const all = await world.daemon(name).connections();
        const used = all.filter(({ mode, bytesIn, bytesOut }) => mode === 'direct' && bytesIn && bytesOut);
        return used.length === CONNECTIONS;
      });
    }
  }

  async function noneDirect(...names: readonly ('a' | 'b')[]): Promise<void> {
    for (const name of names) {
      await eventually(`no connection of ${name} is direct`, async () => {
        return (await world.daemon(name).status()).direct.mirrored === 0;
      });
    }
  }

  test('a daemon that stops in order does not wait for them, and the next one has them again', async () => {
    const daemon = world.daemon('a');
    await daemon.stop();
    assert.equal(daemon.exitCode, 0);
    await noneDirect('b');
    await world.startDaemon('a');
    await allDirect();
  });

  test('a daemon is killed, and the next one has them again', async () => {
    await world.daemon('b').kill();
    await noneDirect('a');
    await world.startDaemon('b');
    await allDirect();
  });

  test('a reload changes nothing for them, unless their peer leaves and comes back', async () => {
    const daemon = world.daemon('a');
    const { promoted } = (await daemon.status()).direct;
    const reload = async (changed: object): Promise<readonly string[]> => {
      daemon.configure({ ...world.settingsOf('a'), ...changed });
      return daemon.api.reload();
    };
    const lines = await reload({ direct: { enabled: false, ringBytes: 65_536 } });
    assert.deepEqual(lines, ['nothing changed', 'needs a restart: direct']);
    await reload({ drainSeconds: 10, rules: ['connect to 192.0.2.1'] });
    await allDirect();
    assert.equal((await daemon.status()).direct.promoted, promoted);
    // The other daemon hears of it later: the programs tell each other.
    await reload({ peers: [] });
    await noneDirect('a', 'b');
    await reload({});
    await allDirect();
  });

  test('every byte of theirs was right', async () => {
    client.write('stop');
    assert.match(await client.line(/^exact/), /^exact [1-9]\d*$/);
    await client.exit();
    assert.equal(client.exitCode, 0, client.stderr);
  });
});
