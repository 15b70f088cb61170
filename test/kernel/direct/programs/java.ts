// OpenJDK with blocking sockets in threads and with a selector (NIO), each as the server and as the
// client of both.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { RunningProgram } from '../../../../workbench/worlds/running-program.ts';
import type { World } from '../../../../workbench/worlds/world.ts';

const source = join(import.meta.dirname, 'Echo.java');
const folder = join(import.meta.dirname, '../../../../build/test-programs');
/** It starts in half of the time, and lives for a second. */
const quick = ['-XX:TieredStopAtLevel=1', '-XX:+UseSerialGC', '-Xmx256m', '-Xshare:auto'];

/** The classes stay in the build folder until the source changes. */
function compileJava(): string {
  const digest = createHash('sha256').update(readFileSync(source)).digest('hex');
  const classes = join(folder, `java-${digest.slice(0, 16)}`);
  if (existsSync(classes)) return classes;
  mkdirSync(folder, { recursive: true });
  const draft = `${classes}.${process.pid}`;
  const { status, stderr, error } = spawnSync('javac', ['-d', draft, source], { encoding: 'utf8', timeout: 60_000 });
  if (error !== undefined) throw error;
  assert.equal(status, 0, stderr);
  try {
    renameSync(draft, classes);
  } catch {
    // Another process compiled the same at once.
    rmSync(draft, { recursive: true, force: true });
  }
  return classes;
}

export async function tryJava(world: World): Promise<unknown> {
  const words = [...quick, '-cp', compileJava(), 'Echo'];
  await using server = RunningProgram.start(world.b, 'java', [...words, 'server']);
  await server.line(/^ready$/);
  await world.listeningAll([7301, 7302]);
  const results = await world.call('java', [...words, 'client', world.b.ipv4, world.b.ipv6]);
  return { results, said: server.stderr };
}
