// A program in a network namespace of its own, as in a container: steered by its cgroup, carried by
// the host's daemon.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { text } from 'node:stream/consumers';
import { before, test } from 'node:test';
import { eventually } from '../../../workbench/worlds/eventually.ts';
import { sweepDeadTests } from '../../../workbench/worlds/lab-runs.ts';
import { ProxyWorld } from '../../../workbench/worlds/proxy-world.ts';
import { RunningProgram } from '../../../workbench/worlds/running-program.ts';

const port = 7000;

before(sweepDeadTests);

test('a program in another network namespace is carried, and both ends see the true addresses', async () => {
  await using world = await ProxyWorld.create({ hosts: 3 });
  const { a, b } = world;
  const c = world.lab.host('c');
  const serve = `require('net').createServer((s) => s.end(s.remoteAddress + ':' + s.remotePort)).listen(${port}, '0.0.0.0')`;
  await using _server = RunningProgram.start(b, process.execPath, ['-e', serve]);
  await world.listening(port);

  // In a's cgroup, and in c's namespace.
  const connect = `const s = require('net').connect(${port}, '${b.ipv4}', () => process.stdout.write(
    s.localAddress + ':' + s.localPort + ' ' + s.remoteAddress + ':' + s.remotePort + ' '));
    s.pipe(process.stdout)`;
  const enter = `echo 0 > ${a.cgroup}/cgroup.procs && exec nsenter --net=${c.namespaceFile} "$@"`;
  const converse = async (): Promise<void> => {
    const client = spawn('sh', ['-c', enter, 'sh', process.execPath, '-e', connect], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const [here, there, seen] = (await text(client.stdout)).trim().split(' ');
    assert.ok(here?.startsWith(`${c.ipv4}:`), here);
    assert.equal(there, `${b.ipv4}:${port}`);
    assert.equal(seen, here);
  };
  // Something stays in the namespace, as the first process of a container does.
  await using _first = RunningProgram.start(c, 'sleep', ['600']);
  // By its first connect the daemon learns of the namespace.
  await converse();
  assert.equal(world.carried(), 0);
  await eventually('it is carried', async () => {
    await converse();
    return world.carried() > 0;
  });
});
