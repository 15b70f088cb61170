// Programs built on event loops, unchanged, on the shortcut: the same results as by TCP, and it is
// really taken.

import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { RunningProgram } from '../../../workbench/worlds/running-program.ts';
import { ShortcutWorld } from './shortcut/shortcut-world.ts';

const skip = process.getuid?.() !== 0 ? 'needs root' : false;
const peer = join(import.meta.dirname, 'shortcut/http-peer.ts');
const port = '6390';

describe('programs on the shortcut', { skip }, () => {
  let world: ShortcutWorld;
  before(async () => {
    world = await ShortcutWorld.create();
  });
  after(() => world[Symbol.asyncDispose]());

  /** How many messages took it meanwhile. */
  async function redirectedDuring(work: () => Promise<void>): Promise<number> {
    const { redirected } = world.counters;
    await work();
    return world.counters.redirected - redirected;
  }

  async function run(command: string, args: readonly string[], input = ''): Promise<string> {
    const result = await world.short.run(command, args, { input, signal: AbortSignal.timeout(60_000) });
    assert.equal(result.code, 0, `${command} ${args.join(' ')}: ${result.stderr}${result.stdout}`);
    return result.stdout;
  }

  test('redis keeps what it was given, from a byte to 1 MB, and answers 30 clients', async () => {
    const words = ['--port', port, '--save', '', '--appendonly', 'no'];
    await using server = RunningProgram.start(world.short, 'redis-server', words);
    await server.line(/Ready to accept connections/i);
    const cli = (...args: readonly string[]): Promise<string> => run('redis-cli', ['-p', port, ...args]);
    const redirected = await redirectedDuring(async () => {
      for (const size of [1, 1000, 100_000, 1_000_000]) {
        const value = randomBytes(size / 2 + 1).toString('hex');
        assert.equal((await run('redis-cli', ['-p', port, '-x', 'SET', 'key'], value)).trim(), 'OK');
        const got = (await cli('GET', 'key')).trimEnd();
        assert.equal(createHash('sha1').update(got).digest('hex'), createHash('sha1').update(value).digest('hex'));
      }
      const load = ['-p', port, '-c', '30', '-n', '20000', '-t', 'set,get,incr,lrange_100', '-q'];
      assert.match(await run('redis-benchmark', load), /GET: .* requests per second/);
      assert.match(await run('redis-benchmark', [...load, '-P', '16', '-d', '500']), /requests per second/);
      assert.ok(Number(await cli('GET', 'counter:__rand_int__')) >= 20_000);
    });
    assert.ok(redirected > 100_000, `${redirected} redirected`);
  });

  test('a Node server and client speak HTTP/1.1 and HTTP/2, both ways, up to 20 MB', async () => {
    for (const address of ['127.0.0.1', '::1']) {
      await using server = RunningProgram.start(world.short, process.execPath, [peer, 'serve', address]);
      await server.line(/^ready$/);
      const redirected = await redirectedDuring(async () => {
        assert.equal((await run(process.execPath, [peer, 'call', address])).trim(), '168 right');
      });
      assert.ok(redirected > 300, `${redirected} redirected`);
    }
  });

  test('iperf3 carries one stream, three, and both ways at once', async () => {
    await using server = RunningProgram.start(world.short, 'iperf3', ['-s', '-p', '5300', '--forceflush']);
    await server.line(/listening/);
    const redirected = await redirectedDuring(async () => {
      for (const more of [[], ['-P', '3'], ['-R'], ['--bidir']]) {
        const told = await run('iperf3', ['-c', '127.0.0.1', '-p', '5300', '-n', '200M', '-J', ...more]);
        assert.ok(!told.includes('"error"'), told.slice(-500));
      }
    });
    assert.ok(redirected > 1000, `${redirected} redirected`);
  });
});
