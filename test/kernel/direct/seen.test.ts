// What people see of direct connections: `millrace conn`, `explain`, `top` and events take it from
// these answers of daemons.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Host } from '../../../src/lab/index.ts';
import type { ConnectionStatus } from '../../../src/status/index.ts';
import { eventually } from '../../../workbench/worlds/eventually.ts';
import { sweepDeadTests } from '../../../workbench/worlds/lab-runs.ts';
import { MirroredWorld } from '../../../workbench/worlds/mirrored-world.ts';
import type { Name } from '../../../workbench/worlds/proxy-world.ts';
import { RunningProgram } from '../../../workbench/worlds/running-program.ts';

const PORT = 7000;
const server = `require('node:net').createServer((socket) => socket.pipe(socket)).listen(${PORT}, () => console.log('up'))`;
/** Says its address, and sends as long as somebody answers. */
const client = `const socket = require('node:net').connect(${PORT}, process.argv[1], () => {
  console.log(socket.localAddress + ':' + socket.localPort);
  socket.write('x');
});
let count = 0;
socket.on('data', () => (++count < 100 ? socket.write('x') : setTimeout(() => socket.write('x'), 10)));`;

before(sweepDeadTests);

describe('direct connections are seen', { concurrency: false }, () => {
  let world: MirroredWorld;
  before(async () => {
    world = await MirroredWorld.start();
  });
  after(() => world?.close());

  const isFree: readonly string[] = ['-u', 'LD_PRELOAD'];

  async function serve(host: Host, env: readonly string[] = []): Promise<RunningProgram> {
    const program = RunningProgram.start(host, 'env', [...env, process.execPath, '-e', server]);
    await program.line(/^up$/);
    return program;
  }

  /** A program that is connected, and its address. */
  async function connect(host: Host, to: string): Promise<{ program: RunningProgram; local: string }> {
    const program = RunningProgram.start(host, process.execPath, ['-e', client, to]);
    return { program, local: await program.line(/:\d+$/) };
  }

  async function direct(name: Name, pid: number): Promise<ConnectionStatus> {
    let found: ConnectionStatus | undefined;
    await eventually(`a direct connection of process ${pid}`, async () => {
      const all = await world.daemon(name).api.connections({ mode: 'direct' });
      found = all.find((one) => one.pid === pid);
      return found !== undefined;
    });
    return found ?? assert.fail();
  }

  test('between two hosts: with the peer, the wire, both programs and their bytes', async () => {
    await using there = await serve(world.b);
    const { program, local } = await connect(world.a, world.b.ipv4);
    await using here = program;
    const remote = `${world.b.ipv4}:${PORT}`;
    const one = await direct('a', here.pid);
    assert.deepEqual([one.local, one.remote, one.direction], [local, remote, 'out']);
    assert.deepEqual([one.state, one.peer, one.wire, one.heldBytes], ['open', 'b', 'shm', null]);
    assert.ok(one.command !== '' && one.lane >= 0);
    const other = await direct('b', there.pid);
    assert.deepEqual([other.local, other.remote, other.direction, other.peer], [remote, local, 'in', 'a']);
    await eventually('bytes are counted', async () => {
      const { bytesIn, bytesOut } = await direct('a', here.pid);
      return bytesIn !== null && bytesOut !== null && bytesIn > 10 && bytesOut > 10;
    });
    const line = `${local} -> ${remote}: direct, with a program on the host of b, over shm`;
    const { api } = world.daemon('a');
    assert.equal((await api.explain(`${local}->${remote}`)).at(-1), line);
    assert.ok((await api.explain(String(here.pid))).includes(line));
  });

  test('within a host: with the other program, and without figures', async () => {
    await using there = await serve(world.b);
    const { program, local } = await connect(world.b, '127.0.0.1');
    await using here = program;
    const one = await direct('b', here.pid);
    assert.deepEqual([one.local, one.direction, one.peer, one.wire], [local, 'out', '', '']);
    assert.deepEqual([one.bytesIn, one.bytesOut], [null, null]);
    const other = await direct('b', there.pid);
    assert.deepEqual([other.remote, other.direction], [local, 'in']);
    const lines = await world.daemon('b').api.explain(String(here.pid));
    assert.match(lines.join('\n'), new RegExp(`: direct, with \\S+\\(${there.pid}\\) on this host$`));
  });

  test('a connection whose other end has no library: explain says so, and that its peer is down', async () => {
    await using _there = await serve(world.b, isFree);
    const { program } = await connect(world.a, world.b.ipv4);
    await using here = program;
    const explained = async (pattern: RegExp): Promise<void> => {
      await eventually(`explain says ${pattern}`, async () =>
        (await world.daemon('a').api.explain(String(here.pid))).some((line) => pattern.test(line)),
      );
    };
    await explained(/: not direct yet: the program on the host of b has not offered it: it has no library, or/);
    await world.daemon('b').kill();
    await explained(/: not direct yet: peer b is (down|connecting|recovering)/);
  });
});

/** Says its address, and sends large pieces until it is ended, or has sent a GiB. */
const bulkClient = `const socket = require('node:net').connect(${PORT}, process.argv[1], () => {
  console.log(socket.localAddress + ':' + socket.localPort);
  let left = 4096;
  const more = () => left-- > 0 && socket.write(Buffer.alloc(256 * 1024), more);
  more();
});`;
const drain = `require('node:net').createServer((socket) => socket.resume()).listen(${PORT}, () => console.log('up'))`;

test('a connection that moves bulk over the wire tcp goes back to TCP, and explain says why', async () => {
  await using world = await MirroredWorld.start({ wire: 'tcp' });
  await using there = RunningProgram.start(world.b, process.execPath, ['-e', drain]);
  await there.line(/^up$/);
  await using here = RunningProgram.start(world.a, process.execPath, ['-e', bulkClient, world.b.ipv4]);
  const local = await here.line(/:\d+$/);
  const line = `${local} -> ${world.b.ipv4}:${PORT}: not direct any more: it moves large pieces, `;
  const { api } = world.daemon('a');
  await eventually('explain says so', async () =>
    (await api.explain(String(here.pid))).some((each) => each.startsWith(line)),
  );
  assert.ok((await api.status()).direct.promoted >= 1);
});
