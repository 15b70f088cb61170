// Tests that programs that use io_uring are left to TCP, whatever the other end is, and get the
// right bytes.

import assert from 'node:assert/strict';
import { globSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { sweepDeadTests } from '../../../workbench/worlds/lab-runs.ts';
import { MirroredWorld } from '../../../workbench/worlds/mirrored-world.ts';
import { RunningProgram } from '../../../workbench/worlds/running-program.ts';
import { compile } from '../steering/compile.ts';

before(sweepDeadTests);

const port = 7401;
/** As the program has it. */
const sizes = Array.from({ length: 400 }, (_, number) => 1 + ((number * 7919) % 60_000));
const right = `${sizes.reduce((sum, size) => sum + size)} bytes\n`;

describe('programs with io_uring', { concurrency: false }, () => {
  const program = compile(globSync(join(import.meta.dirname, 'uring/*.c')).sort(), 'dynamic', ['-luring']);
  let world: MirroredWorld;
  before(async () => {
    world = await MirroredWorld.start();
  });
  after(() => world?.close());

  /** How many of its connections were promoted. */
  async function talk(client: string, server: string): Promise<number> {
    const earlier = await world.promoted();
    await using echo = RunningProgram.start(world.b, program, ['server', String(port), server]);
    await echo.line(/^ready$/);
    for (const address of [world.b.ipv4, world.b.ipv6]) {
      assert.equal(await world.call(program, ['client', address, String(port), client]), right);
    }
    assert.equal(echo.stderr, '');
    return (await world.promoted()) - earlier;
  }

  test('by sockets its connections are direct', async () => {
    assert.equal(await talk('sockets-sockets', 'sockets'), 2);
  });

  for (const way of ['syscall', 'liburing', 'sockets+syscall', 'sockets+liburing']) {
    test(`a client stays with TCP that works by ${way}`, async () => {
      assert.equal(await talk(way, 'sockets'), 0);
    });
    test(`a server stays with TCP that works by ${way}`, async () => {
      assert.equal(await talk('sockets', way), 0);
    });
  }

  test('a client that sets up an io_uring later goes back to TCP', async () => {
    assert.equal(await talk('sockets-syscall', 'sockets'), 2);
  });

  test('a server that sets up an io_uring later goes back to TCP, and later connections stay there', async () => {
    assert.equal(await talk('sockets', 'sockets-syscall'), 1);
  });
});
