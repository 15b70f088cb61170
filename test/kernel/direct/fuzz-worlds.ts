// Where random sequences of socket calls are played: environments of the C program without the
// library and with it.

import { join } from 'node:path';
import { DirectServer } from '../../../src/direct/index.ts';
import { directEnvironment, directLibrary } from '../../../src/direct/launch/index.ts';
import { MirroredWorld } from '../../../workbench/worlds/mirrored-world.ts';
import { temporaryFolder } from '../../../workbench/worlds/temporary-folder.ts';
import type { Env } from './fuzz-program.ts';

/** Bytes that wait to be read are always fewer, as they are fewer than what the kernel holds. */
const ringBytes = 128 * 1024;
const memoryBytes = 64 * 1024 * 1024;
/** Only calls that leave a direct connection direct and open. */
const emulated: Env = { MILLRACE_FUZZ_EMULATED: '1' };

export interface FuzzWorld extends AsyncDisposable {
  readonly plain: Env;
  readonly direct: Env;
  /** Connections that are direct now. */
  connections(): number | Promise<number>;
}

/** Both ends on this host. */
function onOneHost(calls: Env): FuzzWorld {
  const library = directLibrary();
  using undo = new DisposableStack();
  const folder = undo.use(temporaryFolder('fuzz'));
  const socketPath = join(folder.path, 'fuzz.direct');
  const server = undo.use(DirectServer.start({ socketPath, ringBytes, memoryBytes }));
  const kept = undo.move();
  return {
    plain: calls,
    direct: { ...calls, MILLRACE_FUZZ_ATTENTIVE: '1', ...directEnvironment({}, library, socketPath) },
    connections: () => server.status.connections,
    [Symbol.asyncDispose]: async () => kept.dispose(),
  };
}

/** One end on each of two hosts, whose daemons mirror the rings. */
async function betweenHosts(calls: Env): Promise<FuzzWorld> {
  const library = directLibrary();
  const world = await MirroredWorld.start({ ringBytes });
  const [a, b] = [world.a, world.b].map(({ namespaceFile, ipv4, ipv6 }) => `${namespaceFile} ${ipv4} ${ipv6}`);
  const [atA, atB] = [world.socketPath('a'), world.socketPath('b')];
  return {
    plain: { ...calls, MILLRACE_FUZZ_A: `${a}`, MILLRACE_FUZZ_B: `${b}` },
    direct: {
      ...calls,
      MILLRACE_FUZZ_ATTENTIVE: '1',
      ...directEnvironment({}, library, atA),
      MILLRACE_FUZZ_A: `${a} ${atA}`,
      MILLRACE_FUZZ_B: `${b} ${atB}`,
    },
    connections: async () => (await world.daemon('a').status()).direct.connections,
    [Symbol.asyncDispose]: () => world.close(),
  };
}

/**
 * What a campaign is about. Edges are apart: docs/direct.md says where one is told twice.
 */
export const kinds: Readonly<Record<string, () => FuzzWorld | Promise<FuzzWorld>>> = {
  emulated: () => onOneHost(emulated),
  all: () => onOneHost({}),
  edges: () => onOneHost({ MILLRACE_FUZZ_EDGES: '1' }),
  'between-hosts': () => betweenHosts(emulated),
  'all-between-hosts': () => betweenHosts({}),
};
