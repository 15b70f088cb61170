// The programs nobody here wrote that are run with the library of Direct, but not carried.

import type { World } from '../../../workbench/worlds/world.ts';
import { tryHaproxy } from './programs/haproxy.ts';
import { tryJava } from './programs/java.ts';
import { tryMemcached } from './programs/memcached.ts';
import { tryNodeStreams } from './programs/node-streams.ts';
import { tryPython } from './programs/python.ts';
import { trySsh } from './programs/ssh.ts';

export interface DirectProgram {
  readonly name: string;
  readonly run: (world: World) => Promise<unknown>;
}

export const directPrograms: readonly DirectProgram[] = [
  { name: 'memcached with many clients', run: tryMemcached },
  { name: 'HAProxy between curl, wrk and nginx', run: tryHaproxy },
  { name: 'Node with streams and TLS', run: tryNodeStreams },
  { name: 'Python with blocking sockets and asyncio', run: tryPython },
  { name: 'OpenJDK with blocking sockets and selectors', run: tryJava },
  { name: 'ssh with rsync', run: trySsh },
];
