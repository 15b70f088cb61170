// memcached with several connections of a client at once; every value is compared by the client.

import { join } from 'node:path';
import { RunningProgram } from '../../../../workbench/worlds/running-program.ts';
import type { World } from '../../../../workbench/worlds/world.ts';
import { python } from './python.ts';

const port = 11211;
const client = join(import.meta.dirname, 'memcached-client.py');

export async function tryMemcached(world: World): Promise<unknown> {
  const words = ['-u', 'nobody', '-l', '0.0.0.0,::', '-p', String(port), '-U', '0', '-m', '128', '-I', '4m', '-t', '2'];
  await using server = RunningProgram.start(world.b, 'memcached', words);
  await world.listeningAll([port]);
  const results = [];
  for (const address of [world.b.ipv4, world.b.ipv6]) {
    results.push(JSON.parse(await world.call(python, [client, address, String(port)])) as unknown);
  }
  return { results, said: server.stderr };
}
