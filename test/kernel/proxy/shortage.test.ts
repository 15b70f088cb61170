// A daemon whose process gets no more descriptors at all: whatever happens meanwhile, it lives,
// says so, and does its work again when there are some.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { noDescriptors } from '../../../src/native/fixtures/no-descriptors.ts';
import type { DaemonProcess } from '../../../workbench/worlds/daemon-process.ts';
import { eventually } from '../../../workbench/worlds/eventually.ts';
import { sweepDeadTests } from '../../../workbench/worlds/lab-runs.ts';
import { ProxyWorld, type Wire } from '../../../workbench/worlds/proxy-world.ts';
import { AttacksProgram } from '../attacks/attacks-program.ts';

const port = 7001;
const laterPort = 7002;
const allRight = { right: 5, wrong: 0, failed: 0, error: '-' };

before(sweepDeadTests);
const program = new AttacksProgram();
after(() => program[Symbol.dispose]());

/** Its log; a daemon that has died tells why. */
function logOf(daemon: DaemonProcess): DaemonProcess['log'] {
  assert.equal(daemon.hasExited, false, daemon.program.stderr);
  return daemon.log;
}

for (const wire of ['shm', 'tcp'] satisfies Wire[]) {
  describe(`without a descriptor, over ${wire}`, { concurrency: false }, () => {
    let world: ProxyWorld;
    before(async () => {
      world = await ProxyWorld.create({ wire });
      await program.serve(world.b, port);
      await world.listening(port);
    });
    after(() => world?.close());

    const check = (): Promise<object> => program.check(world.a, [world.b.ipv4, port, 5]);

    test('a daemon whose peer starts again, whose config is read again and whose listeners change goes on', async () => {
      const a = world.running('a');
      // The link is made when something is carried.
      assert.deepEqual(await check(), allRight);
      {
        await using _ = await noDescriptors(a.pid);
        // Links and control connections break, and cannot be made again.
        await world.running('b').kill();
        await world.start('b');
        await eventually('a has noticed', () =>
          logOf(a).some(({ msg }) => /link 0 to b .*(down|recovering)/.test(msg)),
        );
        a.signal('SIGHUP');
        await program.serve(world.a, laterPort);
        assert.deepEqual(await check(), allRight, 'by plain TCP');
        assert.notDeepEqual(logOf(a), []);
      }
      await world.ready();
      await world.listening(port);
      await eventually('it carries again', async () => {
        const before = world.carried();
        assert.deepEqual(await check(), allRight);
        return world.carried() - before === 5;
      });
      assert.equal((await a.status()).overload.isOverloaded, false);
      await eventually('what came meanwhile is announced', () =>
        world.running('b').isAnnounced(`${world.a.ipv4}:${laterPort}`),
      );
      await world.stop();
    });
  });
}
