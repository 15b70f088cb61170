// The programs nobody here wrote that are run over plain TCP and carried, and how many connections
// each makes.

import type { World } from '../../../workbench/worlds/world.ts';
import { BehavioursProgram } from './behaviours-program.ts';
import { tryIperf } from './programs/iperf.ts';
import { tryNginx } from './programs/nginx.ts';
import { tryNodeHttp } from './programs/node-http.ts';
import { tryPostgres } from './programs/postgres.ts';
import { tryRedis } from './programs/redis.ts';
import { tryRsync } from './programs/rsync.ts';

export interface Program {
  readonly name: string;
  readonly run: (world: World) => Promise<unknown>;
  /** Fewer than this were not all of its connections. */
  readonly connections: number;
  /** It never blocks in a call on a socket. */
  readonly isEventLoop?: boolean;
}

export const programs: readonly Program[] = [
  { name: 'redis with redis-cli and redis-benchmark', run: tryRedis, connections: 270, isEventLoop: true },
  { name: 'nginx with curl and wrk', run: tryNginx, connections: 54, isEventLoop: true },
  { name: 'PostgreSQL with psql and pgbench', run: tryPostgres, connections: 18 },
  { name: 'iperf3 up, down and both ways', run: tryIperf, connections: 15 },
  { name: 'rsync of a tree', run: tryRsync, connections: 3 },
  { name: 'Node with HTTP/1.1 and HTTP/2', run: tryNodeHttp, connections: 42, isEventLoop: true },
  { name: 'a statically linked program', run: tryStatic, connections: 6 },
];

async function tryStatic(world: World): Promise<unknown> {
  const program = new BehavioursProgram('static');
  await using server = await program.serve(world.b);
  const names = ['bulk', 'half-close', 'epoll-edge'];
  await world.listeningAll(program.portsOf(names));
  const results = [];
  for (const name of names) {
    for (const address of [world.b.ipv4, world.b.ipv6]) {
      const { client, server: told } = await program.observe(name, world.a, server, address);
      results.push({ name, client, told });
    }
  }
  return results;
}
