// redis: a script of redis-cli, a large value and redis-benchmark; what is compared is the answers
// and the final state.

import { createHash } from 'node:crypto';
import { RunningProgram } from '../../../../workbench/worlds/running-program.ts';
import { temporaryFolder } from '../../../../workbench/worlds/temporary-folder.ts';
import type { World } from '../../../../workbench/worlds/world.ts';

const port = 6379;
const requests = 5000;
const largeBytes = 20_000_000;

const script = [
  'SET greeting "hello"',
  'APPEND greeting " world"',
  'GET greeting',
  'STRLEN greeting',
  'INCRBY hits 41',
  'INCR hits',
  'RPUSH queue a b c d e',
  'LPOP queue 2',
  'LRANGE queue 0 -1',
  'HSET user name mill kind race',
  'HGETALL user',
  'SADD set 3 1 2 3',
  'SCARD set',
  'ZADD scores 3 c 1 a 2 b',
  'ZRANGE scores 0 -1 WITHSCORES',
  'MULTI',
  'INCR hits',
  'GET hits',
  'EXEC',
  "EVAL \"for i=1,1000 do redis.call('SET', 'key:' .. i, i) end return redis.call('DBSIZE')\" 0",
  'NOSUCHCOMMAND',
  'GET missing',
];

export async function tryRedis(world: World): Promise<unknown> {
  using folder = temporaryFolder('redis');
  const words = ['--port', String(port), '--bind', '*', '-::*', '--protected-mode', 'no', '--dir', folder.path];
  const memoryOnly = ['--save', '', '--appendonly', 'no', '--enable-debug-command', 'yes'];
  await using server = RunningProgram.start(world.b, 'redis-server', [...words, ...memoryOnly]);
  await server.line(/Ready to accept connections/);
  await world.listening(port);
  const cli = (address: string, args: readonly string[], input = ''): Promise<string> =>
    world.call('redis-cli', ['-h', address, '-p', String(port), ...args], input);
  const answers = await cli(world.b.ipv4, [], `${script.join('\n')}\n`);
  const large = Buffer.alloc(largeBytes, 'millrace ').toString();
  const stored = await cli(world.b.ipv6, ['-x', 'SET', 'large'], large);
  const fetched = createHash('sha256')
    .update(await cli(world.b.ipv4, ['GET', 'large']))
    .digest('hex');
  const common = ['-h', world.b.ipv4, '-p', String(port), '-n', String(requests), '-q', '--csv'];
  const plain = await world.call('redis-benchmark', [...common, '-c', '50', '-t', 'set,get,incr,lpush,mset']);
  const pipelined = await world.call('redis-benchmark', [...common, '-c', '10', '-P', '16', '-t', 'incr,rpush']);
  const named = (csv: string): string[] => csv.split('\n').map((line) => line.split(',')[0] ?? '');
  return {
    answers,
    stored,
    fetched,
    benchmarks: [...named(plain), ...named(pipelined)],
    counter: await cli(world.b.ipv6, ['GET', 'counter:__rand_int__']),
    list: await cli(world.b.ipv6, ['LLEN', 'mylist']),
    digest: await cli(world.b.ipv6, ['DEBUG', 'DIGEST']),
  };
}
