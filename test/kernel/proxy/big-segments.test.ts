// Tests what a daemon does to its host's loopback device, and that it is undone.

import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { readLink } from '../../../src/native/index.ts';
import { BIG_BYTES } from '../../../src/proxy/big-segments.ts';
import { command } from '../../../workbench/worlds/daemon-process.ts';
import { sweepDeadTests } from '../../../workbench/worlds/lab-runs.ts';
import { ProxyWorld } from '../../../workbench/worlds/proxy-world.ts';

const fixture = join(import.meta.dirname, 'loopback-limits.ts');
const usual = { gsoMaxSize: 65_536, gsoIpv4MaxSize: 65_536 };
const big = { gsoMaxSize: BIG_BYTES, gsoIpv4MaxSize: BIG_BYTES };

before(sweepDeadTests);

describe('segments of up to 512 KiB on the loopback device', { concurrency: false }, () => {
  let world: ProxyWorld;
  before(async () => {
    world = await ProxyWorld.createIdle();
  });
  after(() => world?.close());

  /** Of host a; set to that before. */
  async function limits(...bytes: readonly number[]): Promise<unknown> {
    const { code, stdout, stderr } = await world.a.run(process.execPath, [fixture, ...bytes.map(String)]);
    assert.equal(code, 0, stderr);
    return JSON.parse(stdout);
  }

  test('there are as long as the daemon runs', async () => {
    assert.deepEqual(await limits(), usual);
    const daemon = await world.start('a');
    assert.deepEqual(await limits(), big);
    await daemon.stop();
    assert.deepEqual(await limits(), usual);
  });

  test('there are none where the config says so', async () => {
    const daemon = await world.start('a', { bigSegments: false });
    assert.deepEqual(await limits(), usual);
    await daemon.stop();
  });

  test('end with the next daemon, when one was killed', async () => {
    await (await world.start('a')).kill();
    assert.deepEqual(await limits(), big);
    await (await world.start('a')).stop();
    assert.deepEqual(await limits(), usual);
  });

  test('what somebody else has chosen comes back, or stays where it is chosen meanwhile', async () => {
    const chosen = { gsoMaxSize: 131_072, gsoIpv4MaxSize: 131_072 };
    assert.deepEqual(await limits(131_072), chosen);
    const daemon = await world.start('a');
    assert.deepEqual(await limits(), big);
    await daemon.stop();
    assert.deepEqual(await limits(), chosen);
    const other = await world.start('a');
    const later = { gsoMaxSize: 100_000, gsoIpv4MaxSize: 100_000 };
    assert.deepEqual(await limits(100_000), later);
    await other.stop();
    assert.deepEqual(await limits(), later);
  });

  test('a daemon that cannot start leaves those of another alone', async () => {
    await limits(65_536);
    const daemon = await world.start('a');
    const twin = {
      ...world.settingsOf('a'),
      instance: 'twin',
      api: { http: false, socket: join(world.folder.path, 'twin.sock') },
    };
    const file = join(world.folder.path, 'twin.yaml');
    writeFileSync(file, JSON.stringify(twin));
    const { code, stderr } = await world.a.run(command, ['up', '--config', file]);
    assert.notEqual(code, 0);
    assert.match(stderr, /the port is in use/);
    assert.deepEqual(await limits(), big);
    await daemon.stop();
    assert.deepEqual(await limits(), usual);
  });

  test('who may not set them is told so', async () => {
    const words = ['--bounding-set=-net_admin', process.execPath, fixture, '100000'];
    const { code, stderr } = await world.a.run('setpriv', words);
    assert.notEqual(code, 0);
    assert.match(stderr, /rtnetlink: EPERM \(set device 1\)/);
  });

  test('a device that is not there is a clear error', () => {
    assert.throws(() => readLink(1_000_000), { code: 'ENODEV', message: /rtnetlink.*read device 1000000/ });
  });
});
