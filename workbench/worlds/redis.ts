// redis in the lab: a server on one host, redis-benchmark on another, and its figures.

import { once } from 'node:events';
import { tmpdir } from 'node:os';
import { createInterface } from 'node:readline';
import { MillraceError } from '../../src/errors.ts';
import type { Host } from '../../src/lab/index.ts';

export interface RedisServer extends AsyncDisposable {
  readonly host: Host;
  readonly port: number;
}

export interface RedisLoad {
  readonly tests: readonly ('get' | 'set' | 'ping_mbulk')[];
  readonly clients: number;
  readonly requests: number;
  readonly payloadBytes: number;
  /** How many requests a client has sent when it waits for an answer. Default: one. */
  readonly pipeline?: number;
}

export interface RedisFigures {
  readonly test: string;
  readonly requestsPerSecond: number;
  readonly p50Ms: number;
  readonly p95Ms: number;
  readonly p99Ms: number;
}

/** Resolves when the server accepts connections; keeps nothing on disk. */
export async function startRedis(host: Host, port = 6379): Promise<RedisServer> {
  const settings = ['--port', String(port), '--bind', host.ipv4, host.ipv6, '--protected-mode', 'no', '--save', ''];
  const child = host.spawn('redis-server', [...settings, '--dir', tmpdir()], { stdio: ['ignore', 'pipe', 'inherit'] });
  const exited = once(child, 'exit');
  const stop = async (): Promise<void> => {
    child.kill('SIGKILL');
    await exited;
  };
  if (child.stdout === null) throw new MillraceError('MILLRACE_ERR_FAILED', 'start redis-server: no standard output');
  const said: string[] = [];
  for await (const line of createInterface(child.stdout)) {
    said.push(line);
    if (!line.includes('Ready to accept connections')) continue;
    // Nobody reads on; a full pipe must not stop the server.
    child.stdout.resume();
    return { host, port, [Symbol.asyncDispose]: stop };
  }
  await stop();
  throw new MillraceError(
    'MILLRACE_ERR_FAILED',
    `start redis-server on ${host.name}: it ended. ${said.slice(-3).join(' ')}`,
  );
}

export async function runRedisBenchmark(
  client: Host,
  server: Pick<RedisServer, 'host' | 'port'>,
  load: RedisLoad,
  signal: AbortSignal,
): Promise<RedisFigures[]> {
  const where = ['-h', server.host.ipv4, '-p', String(server.port)];
  const size = ['-c', String(load.clients), '-n', String(load.requests), '-d', String(load.payloadBytes)];
  const pipeline = ['-P', String(load.pipeline ?? 1)];
  const args = [...where, ...size, ...pipeline, '-t', load.tests.join(','), '--csv'];
  const result = await client.run('redis-benchmark', args, { signal });
  signal.throwIfAborted();
  const figures = result.code === 0 ? parseCsv(result.stdout) : [];
  if (figures.length > 0) return figures;
  const reason = result.stderr.trim().split('\n').at(-1) ?? '';
  throw new MillraceError('MILLRACE_ERR_FAILED', `run redis-benchmark on ${client.name}: no result (${reason})`);
}

/** The columns are found by name, as redis has added some over time. */
export function parseCsv(csv: string): RedisFigures[] {
  const cells = csv
    .split('\n')
    .filter((line) => line.startsWith('"'))
    .map((line) => line.slice(1, -1).split('","'));
  const [header = [], ...rows] = cells;
  const column = (row: readonly string[], name: string): number => Number(row[header.indexOf(name)] ?? Number.NaN);
  return rows.map((row) => ({
    test: row[0] ?? '',
    requestsPerSecond: column(row, 'rps'),
    p50Ms: column(row, 'p50_latency_ms'),
    p95Ms: column(row, 'p95_latency_ms'),
    p99Ms: column(row, 'p99_latency_ms'),
  }));
}
