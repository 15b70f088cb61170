// Node's own HTTP/1.1 and HTTP/2 servers and clients: bodies of many sizes echoed over kept
// connections and many streams.

import { join } from 'node:path';
import { RunningProgram } from '../../../../workbench/worlds/running-program.ts';
import type { World } from '../../../../workbench/worlds/world.ts';

const peer = join(import.meta.dirname, 'node-http-peer.ts');

export async function tryNodeHttp(world: World): Promise<unknown> {
  await using server = RunningProgram.start(world.b, process.execPath, [peer, 'server']);
  await server.line(/^ready$/);
  await world.listening(8080);
  await world.listening(8082);
  const results = [];
  for (const address of [world.b.ipv4, `[${world.b.ipv6}]`]) {
    results.push(JSON.parse(await world.call(process.execPath, [peer, 'client', address])) as unknown);
  }
  return results;
}
