// Where random sequences of socket calls are played: environments of the C program without the
// library and with it.

import { join } from 'node:path';
import { DirectServer } from '../../../src/direct/index.ts';
import { directEnvironment, directLibrary } from '../../../src/direct/launch/index.ts';
import { temporaryFolder } from '../../../workbench/worlds/temporary-folder.ts';
import type { Env } from './fuzz-program.ts';

/** Bytes that wait to be read are always fewer, as they are fewer than what the kernel holds. */
const ringBytes = 128 * 1024;
const memoryBytes = 64 * 1024 * 1024;

/** Which calls are played. */
export const kinds = {
  emulated: { MILLRACE_FUZZ_EMULATED: '1' },
  all: {},
} as const satisfies Readonly<Record<string, Env>>;

export interface FuzzWorld extends Disposable {
  readonly plain: Env;
  readonly direct: Env;
  /** Connections that are direct now. */
  connections(): number;
}

/** Both ends on this host. */
export function oneHost(kind: Env): FuzzWorld {
  const library = directLibrary();
  using undo = new DisposableStack();
  const folder = undo.use(temporaryFolder('fuzz'));
  const socketPath = join(folder.path, 'fuzz.direct');
  const server = undo.use(DirectServer.start({ socketPath, ringBytes, memoryBytes }));
  const kept = undo.move();
  return {
    plain: kind,
    direct: { ...kind, MILLRACE_FUZZ_ATTENTIVE: '1', ...directEnvironment({}, library, socketPath) },
    connections: () => server.status.connections,
    [Symbol.dispose]: () => kept.dispose(),
  };
}
