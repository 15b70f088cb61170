// Tests that a program may have more carried connections from one address than it has ports, to
// several destinations, as by plain TCP.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { before, test } from 'node:test';
import { unlessStarved } from '../../../workbench/worlds/carrying-world.ts';
import { eventually } from '../../../workbench/worlds/eventually.ts';
import { sweepDeadTests } from '../../../workbench/worlds/lab-runs.ts';
import { ProxyWorld } from '../../../workbench/worlds/proxy-world.ts';
import { RunningProgram } from '../../../workbench/worlds/running-program.ts';
import { succeed } from '../../../workbench/worlds/succeed.ts';

const holder = join(import.meta.dirname, '../steering/death/hold-connections.ts');
const firstPort = 7300;
const destinations = 5;
/** Of the client's host, for each destination by plain TCP. */
const ports = 200;
/**
 * By all at once, and once more: ports of connections that have ended are not free for a minute.
 */
const each = 60;

const echo = `for (let n = 0; n < ${destinations}; n++)
  require('node:net').createServer((socket) => socket.pipe(socket).on('error', () => {}))
    .listen({ port: ${firstPort} + n, host: '0.0.0.0', backlog: 1024 }, () => console.log('listening'));`;

before(sweepDeadTests);

test(`${destinations * each} carried connections at once from an address that has ${ports} ports`, async () => {
  await using world = await ProxyWorld.createIdle();
  // Before the daemon starts, which asks how many there are.
  await succeed(world.a, 'sysctl', ['-qw', `net.ipv4.ip_local_port_range=40000 ${40_000 + ports - 1}`]);
  await Promise.all([world.start('a'), world.start('b')]);
  await world.ready();
  await using _server = RunningProgram.start(world.b, process.execPath, ['-e', echo]);
  const all = Array.from({ length: destinations }, (_, n) => firstPort + n);
  await world.listeningAll(all);
  const open = async (): Promise<number> => {
    const { lanes } = await world.running('a').status();
    return lanes.reduce((sum, { connections }) => sum + connections, 0);
  };
  await unlessStarved(world, async () => {
    await eventually('none is left', async () => (await open()) === 0);
    const before = world.carried();
    await using held = new AsyncDisposableStack();
    const programs = all.map((port) => {
      const words = [holder, world.b.ipv4, String(port), String(each), 'once'];
      return held.use(RunningProgram.start(world.a, process.execPath, words));
    });
    await Promise.all(programs.map((program) => program.line(/^held$/)));
    assert.equal(await open(), destinations * each);
    assert.equal(world.carried() - before, destinations * each);
  });
  await world.stop();
});
