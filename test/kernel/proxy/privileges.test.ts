// Tests what a running daemon may do, and that it can do all of its work with that.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { capabilityNamesOf, threadPrivileges } from '../../../src/native/privileges.ts';
import { keptCapabilities, startCapabilities } from '../../../src/proxy/privileges.ts';
import { DaemonProcess } from '../../../workbench/worlds/daemon-process.ts';
import { eventually } from '../../../workbench/worlds/eventually.ts';
import { sweepDeadTests } from '../../../workbench/worlds/lab-runs.ts';
import { ProxyWorld } from '../../../workbench/worlds/proxy-world.ts';
import type { RunningProgram } from '../../../workbench/worlds/running-program.ts';
import { BehavioursProgram } from '../steering/behaviours-program.ts';

const listenPort = 7300;
const kept = keptCapabilities.map(({ name }) => name);

before(sweepDeadTests);
const program = new BehavioursProgram();

/** Starts a program with these capabilities at most. */
function only(names: readonly string[]): readonly string[] {
  const list = names.map((name) => `+${name.slice('CAP_'.length).toLowerCase()}`);
  return ['setpriv', `--bounding-set=${['-all', ...list].join()}`, '--inh-caps=-all'];
}

function assertLimited({ pid }: DaemonProcess): void {
  const threads = threadPrivileges(pid);
  assert.ok(threads.length > 4);
  for (const { name, sets, hasNoNewPrivileges } of threads) {
    assert.equal(hasNoNewPrivileges, true, name);
    assert.deepEqual([sets.CapInh, sets.CapAmb], [0n, 0n], name);
    for (const mask of [sets.CapPrm, sets.CapEff, sets.CapBnd]) {
      assert.deepEqual(new Set(capabilityNamesOf(mask)), new Set(kept), name);
    }
  }
}

for (const wire of ['shm', 'tcp', 'roce'] as const) {
  describe(`a daemon that was started with the capabilities of the docs, on ${wire}`, { concurrency: false }, () => {
    let world: ProxyWorld;
    let server: RunningProgram;
    let a: DaemonProcess;
    before(async () => {
      world = await ProxyWorld.createIdle({ wire });
      server = await program.serve(world.b);
      await world.start('b');
      const enough = [...keptCapabilities, ...startCapabilities].map(({ name }) => name);
      const settings = world.settingsOf('a');
      a = await DaemonProcess.start(world.a, world.folder.path, settings, process.env, only(enough));
      await a.peerUp();
    });
    after(() => world?.close());

    async function converse(): Promise<boolean> {
      const before = a.verdict('carried');
      const { client } = await program.observe('nonblocking', world.a, server, world.b.ipv4);
      assert.match(client, /answer 16 from listener 0$/);
      return a.verdict('carried') > before;
    }

    async function announced(): Promise<void> {
      await eventually('the server is announced', () => a.isAnnounced(`${world.b.ipv4}:${listenPort}`));
    }

    test('keeps in all threads what it needs, and nothing else', async () => {
      assertLimited(a);
      assertLimited(world.running('b'));
      await announced();
      assert.equal(await converse(), true);
    });

    test('takes over rules, and sees its peer go and come', async () => {
      a.configure({ ...world.settingsOf('a'), rules: [] });
      a.signal('SIGHUP');
      await a.logged(/reloaded: taken over: rules$/);
      assert.equal(await converse(), false);
      a.configure(world.settingsOf('a'));
      a.signal('SIGHUP');
      await a.logged(/reloaded: taken over: rules$/, 2);
      await world.running('b').stop();
      await world.start('b');
      await Promise.all([a.peerUp(), world.running('b').peerUp()]);
      await announced();
      assert.equal(await converse(), true);
      assertLimited(a);
    });

    test('leaves nothing when it stops', async () => {
      await a.stop();
      assert.equal(a.exitCode, 0);
      assert.equal(a.isPinned, false);
      assert.deepEqual(
        a.log.filter(({ level }) => level === 'error'),
        [],
      );
    });
  });
}

describe('a daemon that cannot give up its privileges', () => {
  test('says so, and goes on', async () => {
    await using world = await ProxyWorld.createIdle();
    const as = only([...kept, 'CAP_PERFMON', 'CAP_SYS_TIME']);
    await using a = await DaemonProcess.start(world.a, world.folder.path, world.settingsOf('a'), process.env, as);
    await a.logged(/^give up CAP_SYS_TIME CAP_PERFMON in \d+ threads, .*: EPERM; the daemon goes on/);
    for (const { sets, name } of threadPrivileges(a.pid))
      assert.deepEqual(new Set(capabilityNamesOf(sets.CapPrm)), new Set(kept), name);
    assert.equal((await a.status()).state, 'ready');
    await a.stop();
    assert.equal(a.exitCode, 0);
  });
});
