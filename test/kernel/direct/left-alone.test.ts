// Steering leaves a connect alone where both programs have the library, and carries all others that
// its rules are about.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { ConnectionStatus } from '../../../src/status/index.ts';
import { eventually } from '../../../workbench/worlds/eventually.ts';
import { sweepDeadTests } from '../../../workbench/worlds/lab-runs.ts';
import { MirroredWorld } from '../../../workbench/worlds/mirrored-world.ts';
import { RunningProgram } from '../../../workbench/worlds/running-program.ts';

const server = `require('node:net').createServer((socket) => socket.pipe(socket))
  .listen(Number(process.argv[1]), () => console.log('up'))`;
const client = `const socket = require('node:net').connect(Number(process.argv[2]), process.argv[1], () => socket.write('x'));
socket.on('data', () => setImmediate(() => socket.write('x')));`;

before(sweepDeadTests);

describe('steering and the library', { concurrency: false }, () => {
  let world: MirroredWorld;
  before(async () => {
    world = await MirroredWorld.start({ isCarrying: true });
  });
  after(() => world?.close());

  const without = ['env', '-u', 'LD_PRELOAD', process.execPath];

  async function serve(port: number, command: readonly string[] = [process.execPath]): Promise<RunningProgram> {
    const [program, ...words] = [...command, '-e', server, String(port)];
    const there = RunningProgram.start(world.b, program, words);
    await there.line(/^up$/);
    const isLibrary = command.length === 1;
    await eventually(`port ${port} is announced`, () =>
      world.daemon('a').isAnnounced(`${world.b.ipv4}:${port}`, isLibrary),
    );
    return there;
  }

  function connect(port: number, [program = '', ...words]: readonly string[] = [process.execPath]): RunningProgram {
    return RunningProgram.start(world.a, program, [...words, '-e', client, world.b.ipv4, String(port)]);
  }

  async function connectionOf(pid: number): Promise<ConnectionStatus> {
    let found: ConnectionStatus | undefined;
    await eventually(`a connection of process ${pid}`, async () => {
      found = (await world.daemon('a').connections()).find((one) => one.pid === pid);
      return found !== undefined;
    });
    return found ?? assert.fail();
  }

  test('the very first connect of a program to another one with the library becomes direct', async () => {
    await using _there = await serve(7001);
    const before = world.daemon('a').verdict('direct');
    await using here = connect(7001);
    const { mode, peer, wire } = await connectionOf(here.pid);
    assert.deepEqual([mode, peer, wire], ['direct', 'b', 'shm']);
    assert.equal(world.daemon('a').verdict('direct'), before + 1);
    const lines = await world.daemon('a').api.explain(String(here.pid));
    assert.ok(
      lines.includes('=> do both programs have the library? yes: it is left alone, and becomes direct when it is used'),
    );
    assert.match(lines.at(-1) ?? '', /: direct, with a program on the host of b, over shm$/);
  });

  test('a server or a client without the library: the connection is carried', async () => {
    await using _there = await serve(7002, without);
    await using here = connect(7002);
    assert.equal((await connectionOf(here.pid)).mode, 'carried');
    await using _other = await serve(7003);
    await using plain = connect(7003, without);
    assert.equal((await connectionOf(plain.pid)).mode, 'carried');
    await eventually('explain says that it is carried', async () =>
      (await world.daemon('a').api.explain(String(here.pid))).some((line) =>
        line.endsWith('not direct yet: it is carried, so its other end is the daemon'),
      ),
    );
  });

  test('a daemon that is started again knows of the listeners when their programs have found it', async () => {
    await using _there = await serve(7004);
    await using here = connect(7004);
    assert.equal((await connectionOf(here.pid)).mode, 'direct');
    await world.daemon('b').kill();
    await world.startDaemon('b');
    await world.ready();
    await eventually('it is announced again', () => world.daemon('a').isAnnounced(`${world.b.ipv4}:7004`, true));
  });
});
