// A daemon that runs out of descriptors: it leaves new connections to plain TCP before it has used
// the last, keeps a reserve for its peers and its API, and carries again when there is room.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { eventually } from '../../../workbench/worlds/eventually.ts';
import { sweepDeadTests } from '../../../workbench/worlds/lab-runs.ts';
import { ProxyWorld } from '../../../workbench/worlds/proxy-world.ts';
import { RunningProgram } from '../../../workbench/worlds/running-program.ts';
import { AttacksProgram } from '../attacks/attacks-program.ts';
import { BehavioursProgram } from '../steering/behaviours-program.ts';

const holder = join(import.meta.dirname, 'hold-in-turn.ts');
const listenPort = 7300;
const backPort = 7001;
/** Of a's daemon. It has some 180 of them without connections. */
const descriptors = 512;
/** More than it has room for. */
const count = 400;

before(sweepDeadTests);
const program = new BehavioursProgram();
const attacks = new AttacksProgram();
after(() => attacks[Symbol.dispose]());

describe('a daemon with few descriptors', { concurrency: false }, () => {
  let world: ProxyWorld;
  before(async () => {
    world = await ProxyWorld.createIdle();
    await Promise.all([world.start('a', {}, ['prlimit', `--nofile=${descriptors}:${descriptors}`]), world.start('b')]);
    await world.ready();
    await program.serve(world.b);
    await attacks.serve(world.a, backPort);
    await world.listening(listenPort);
  });
  after(() => world?.close());

  const hold = (...words: readonly string[]): RunningProgram =>
    RunningProgram.start(world.a, process.execPath, [holder, world.b.ipv4, String(listenPort), ...words], {
      isWritable: true,
    });
  const isOverloaded = async (): Promise<boolean> => (await world.running('a').status()).overload.isOverloaded;
  const back = (): string => `${world.a.ipv4}:${backPort}`;
  const lines = (): number => world.running('a').log.filter(({ msg }) => msg.startsWith('overload: 4')).length;

  /** Connects from host b to a server of host a. */
  async function carriedBack(): Promise<number> {
    const before = world.running('b').verdict('carried');
    const checked = await attacks.check(world.b, [world.a.ipv4, backPort, 5]);
    assert.deepEqual(checked, { right: 5, wrong: 0, failed: 0, error: '-' });
    return world.running('b').verdict('carried') - before;
  }

  test('leaves new connections to plain TCP, of its own host and of peers, and goes on with all others', async () => {
    const a = world.running('a');
    await eventually('the server is announced to b', () => world.running('b').isAnnounced(back()));
    assert.equal(await carriedBack(), 5);
    await using held = hold(String(count));
    assert.equal(await held.line(/^\{/), `{"answered":${count}}`);
    const { overload, peers, verdicts } = await a.status();
    assert.deepEqual([overload.isOverloaded, overload.maxDescriptors], [true, descriptors]);
    assert.ok(overload.descriptors < descriptors, JSON.stringify(overload));
    assert.equal(peers[0]?.state, 'up');
    assert.ok((verdicts.carried ?? 0) > 100 && (verdicts.overloaded ?? 0) > 100, JSON.stringify(verdicts));
    assert.match((await a.api.explain(String(held.pid))).join('\n'), /the daemon has few descriptors left/);
    await a.logged(/^overload: \d+ or more of 512 descriptors are in use; new connections are plain TCP/);
    await eventually('b is told', () => !world.running('b').isAnnounced(back()));
    assert.equal(await carriedBack(), 0);
    assert.equal((await world.running('b').peer()).state, 'up');
    await held.close();
    await eventually('it has room again', async () => !(await isOverloaded()));
    await eventually('the server is announced to b again', () => world.running('b').isAnnounced(back()));
    assert.equal(await carriedBack(), 5);
    await using again = hold('20');
    const carried = world.carried();
    assert.equal(await again.line(/^\{/), '{"answered":20}');
    assert.equal(world.carried() - carried, 20);
  });

  test('answers every connect of a burst, if only by a reset, and says so once', async (t) => {
    await eventually('it has room', async () => !(await isOverloaded()));
    await using held = hold(String(3 * count), 'at-once');
    const { answered = 0, ECONNRESET = 0 } = JSON.parse(await held.line(/^\{/)) as Record<string, number>;
    assert.equal(answered + ECONNRESET, 3 * count);
    t.diagnostic(`${answered} answered, ${ECONNRESET} reset`);
    assert.ok(answered > 100, `${answered} were answered`);
    const { overload, peers } = await world.running('a').status();
    assert.ok(overload.descriptors < descriptors);
    assert.equal(peers[0]?.state, 'up');
    assert.equal(lines(), 1, 'once a minute');
    await held.close();
    await eventually('it has room again', async () => !(await isOverloaded()));
    await world.stop();
  });
});
