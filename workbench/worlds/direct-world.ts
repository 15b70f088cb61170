// Two hosts of a lab whose programs have the library of Direct, and one daemon part that pairs
// their connections: both hosts are on this machine, so two programs of them share memory.

import { chmodSync } from 'node:fs';
import { DirectServer } from '../../src/direct/index.ts';
import { directEnvironment, directLibrary } from '../../src/direct/launch/index.ts';
import { Lab } from '../../src/lab/index.ts';
import { temporaryRunDir } from './lab-runs.ts';
import { type HostEnv, World } from './world.ts';

interface DirectOptions {
  /** Which hosts' programs have the library. Default: both. */
  readonly hosts?: readonly ('a' | 'b')[];
  readonly ringBytes?: number;
  /** The library to preload. Default: the one that is shipped. */
  readonly library?: string;
  /** Also in place of what loads the library. */
  readonly env?: NodeJS.ProcessEnv;
}

export class DirectWorld extends World {
  readonly #server: DirectServer;

  static async start(options: DirectOptions = {}): Promise<DirectWorld> {
    const { hosts = ['a', 'b'], ringBytes = 256 * 1024, library = directLibrary(), env = {} } = options;
    await using undo = new AsyncDisposableStack();
    const runDir = undo.use(temporaryRunDir());
    // Some servers give up their privileges before they find the daemon.
    chmodSync(runDir.path, 0o755);
    const lab = undo.use(await Lab.create({ runDir: runDir.path }));
    const socketPath = `${runDir.path}/direct`;
    const server = undo.use(DirectServer.start({ socketPath, ringBytes, memoryBytes: 2 ** 30 }));
    const direct = { ...directEnvironment(process.env, library, socketPath), ...env };
    undo.move();
    const envOf = (name: 'a' | 'b'): NodeJS.ProcessEnv => (hosts.includes(name) ? direct : {});
    return new DirectWorld(lab, runDir, server, { a: envOf('a'), b: envOf('b') });
  }

  private constructor(lab: Lab, runDir: ReturnType<typeof temporaryRunDir>, server: DirectServer, env: HostEnv) {
    super(lab, runDir, undefined, env);
    this.#server = server;
  }

  /** Connections that were promoted since it began. */
  promoted(): number {
    return this.#server.status.promoted;
  }

  override async close(): Promise<void> {
    this.#server.close();
    await super.close();
  }
}
