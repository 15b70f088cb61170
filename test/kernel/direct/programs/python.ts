// Python with blocking sockets in threads and with asyncio, each as the server and as the client of
// both.

import { join } from 'node:path';
import { RunningProgram } from '../../../../workbench/worlds/running-program.ts';
import type { World } from '../../../../workbench/worlds/world.ts';

/** Debian's: another one may be found first. */
export const python = '/usr/bin/python3';
const peer = join(import.meta.dirname, 'echo.py');

export async function tryPython(world: World): Promise<unknown> {
  await using server = RunningProgram.start(world.b, python, [peer, 'server']);
  await server.line(/^ready$/);
  await world.listeningAll([7201, 7202]);
  const results = await world.call(python, [peer, 'client', world.b.ipv4, world.b.ipv6]);
  return { results, said: server.stderr };
}
