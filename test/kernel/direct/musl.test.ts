// Tests that programs of musl are direct with the same library: with each other, and with programs
// of glibc.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { DirectWorld } from '../../../workbench/worlds/direct-world.ts';
import { eventually } from '../../../workbench/worlds/eventually.ts';
import { sweepDeadTests } from '../../../workbench/worlds/lab-runs.ts';
import { RunningProgram } from '../../../workbench/worlds/running-program.ts';
import { compile, compileMusl } from '../steering/compile.ts';

before(sweepDeadTests);

const CONNECTIONS = 4;
const ROUNDS = 20;
const FIRST_PORT = 7460;

describe('threaded programs with checked traffic', { concurrency: false }, () => {
  const sources = [join(import.meta.dirname, 'steady/main.c')];
  const glibc = compile(sources);
  const musl = compileMusl(sources);
  let world: DirectWorld;
  let port = FIRST_PORT;
  before(async () => {
    world = await DirectWorld.start();
  });
  after(() => world?.close());

  for (const [name, client, server] of [
    ['both of musl', musl, musl],
    ['the client of musl, the server of glibc', musl, glibc],
    ['the client of glibc, the server of musl', glibc, musl],
  ] as const) {
    test(name, async () => {
      const at = String(port++);
      const earlier = world.promoted();
      await using _server = RunningProgram.start(world.b, server, ['serve', at]);
      await world.listening(Number(at));
      const words = ['call', world.b.ipv4, at, String(CONNECTIONS)];
      await using program = RunningProgram.start(world.a, client, words, { isWritable: true });
      await eventually('all are direct', () => world.promoted() === earlier + CONNECTIONS);
      // Each connection has a message more between two rests, by its rings.
      for (let round = 0; round < ROUNDS; round++) {
        program.write('rest');
        await program.line(/^resting$/);
        program.write('go');
      }
      program.write('stop');
      assert.match(await program.line(/^exact/), /^exact [1-9]\d*$/);
      await program.exit();
      assert.equal(program.exitCode, 0, program.stderr);
      assert.equal(world.promoted(), earlier + CONNECTIONS);
    });
  }
});
