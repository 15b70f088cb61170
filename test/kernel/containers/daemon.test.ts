// The daemon in a container of its own, with the mounts and the capabilities of docs/containers.md.

import assert from 'node:assert/strict';
import { relative } from 'node:path';
import { before, test } from 'node:test';
import { keptCapabilities, startCapabilities } from '../../../src/proxy/privileges.ts';
import { findCgroup2Mount } from '../../../src/system/index.ts';
import { ContainerWorld } from '../../../workbench/worlds/container-world.ts';
import { DaemonProcess } from '../../../workbench/worlds/daemon-process.ts';
import { eventually } from '../../../workbench/worlds/eventually.ts';
import { sweepDeadTests } from '../../../workbench/worlds/lab-runs.ts';
import { startRedis } from '../../../workbench/worlds/redis.ts';

const port = 6380;

before(sweepDeadTests);

test('a daemon in a container carries for its host and for other containers, and ends in order', async () => {
  await using world = await ContainerWorld.create();
  const { proxy } = world;
  const { path } = proxy.folder;
  const cgroup = `/${relative(findCgroup2Mount() ?? '', proxy.a.cgroup)}`;
  // crun can give all rights here or few, so setpriv leaves it those that it needs.
  const options = [
    '--privileged',
    '--pid=host',
    '--pids-limit=0',
    `--cgroup-parent=${cgroup}`,
    ...['/sys/fs/bpf', '/sys/fs/cgroup', path].map((folder) => `--volume=${folder}:${folder}`),
  ];
  const needed = [...keptCapabilities, ...startCapabilities].map(({ name }) => `+${name.slice(4).toLowerCase()}`);
  const words = ['setpriv', `--bounding-set=-all,${needed.join(',')}`];
  const as = world.a.runWords({ name: 'daemon', network: 'host', options }, words);
  const settings = { ...proxy.settingsOf('a'), cgroup: `/sys/fs/cgroup${cgroup}` };
  const starting = DaemonProcess.start(proxy.a, path, settings, process.env, as);
  const [daemon] = await Promise.all([starting, proxy.start('b')]);
  await daemon.peerUp();
  await using _redis = await startRedis(proxy.b, port);
  await using client = world.a.start({ name: 'client' }, ['sh', '-c', 'echo up; exec sleep infinity']);
  await client.program.line(/^up$/);

  const ping = ['redis-cli', '-h', proxy.b.ipv4, '-p', String(port), 'ping'] as const;
  const onHost = async (): Promise<string> => (await proxy.a.run(ping[0], ping.slice(1))).stdout;
  for (const run of [onHost, () => client.exec(...ping)]) {
    await eventually('it is carried', async () => {
      const carried = daemon.verdict('carried');
      assert.equal(await run(), 'PONG\n');
      return daemon.verdict('carried') > carried;
    });
  }
  assert.doesNotMatch(daemon.program.stderr, /"level":"error"/);
  await daemon.stop();
  assert.deepEqual([daemon.exitCode, daemon.isPinned], [0, false]);
});
