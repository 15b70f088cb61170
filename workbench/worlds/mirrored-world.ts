// Two hosts of a lab with a daemon each, whose programs have the library of Direct: connections
// between them are promoted, and lanes mirror them over one wire.

import assert from 'node:assert/strict';
import { chmodSync } from 'node:fs';
import { directEnvironment, directLibrary } from '../../src/direct/launch/index.ts';
import { Lab } from '../../src/lab/index.ts';
import { removeInstance } from '../../src/steering/index.ts';
import { directSocketPath } from '../../src/system/index.ts';
import { DaemonProcess, daemonSettings, type Settings } from './daemon-process.ts';
import { temporaryRunDir } from './lab-runs.ts';
import { instanceOf } from './pinned-instance.ts';
import type { Name, Wire } from './proxy-world.ts';
import { temporaryFolder } from './temporary-folder.ts';
import { type HostEnv, World } from './world.ts';

interface MirroredOptions {
  readonly wire?: Wire;
  /** Which hosts' programs have the library. Default: both. */
  readonly hosts?: readonly Name[];
  /** Of each ring. Default: the daemon's own. */
  readonly ringBytes?: number;
  /** Connections between the hosts are carried, where they are not left alone. Default: false. */
  readonly isCarrying?: boolean;
  /** Of both daemons' config, besides or in place of the others. */
  readonly settings?: Settings;
  /** Also in place of what loads the library. */
  readonly env?: NodeJS.ProcessEnv;
}

type Folder = ReturnType<typeof temporaryFolder>;

export class MirroredWorld extends World {
  readonly #folder: Folder;
  readonly #options: MirroredOptions;
  readonly #daemons: { a?: DaemonProcess; b?: DaemonProcess } = {};

  /** Both daemons run, and their links are up. */
  static async start(options: MirroredOptions = {}): Promise<MirroredWorld> {
    const { hosts = ['a', 'b'], env = {} } = options;
    await using undo = new AsyncDisposableStack();
    const runDir = undo.use(temporaryRunDir());
    const folder = undo.use(temporaryFolder('mirrored'));
    // Some servers give up their privileges before they find the daemon.
    chmodSync(folder.path, 0o755);
    const lab = undo.use(await Lab.create({ runDir: runDir.path }));
    const envOf = (name: Name): NodeJS.ProcessEnv => {
      if (!hosts.includes(name)) return {};
      const socketPath = directSocketPath(instanceOf(lab.host(name)), folder.path);
      return { ...directEnvironment(process.env, directLibrary(), socketPath), ...env };
    };
    undo.move();
    const world = new MirroredWorld(lab, runDir, folder, { a: envOf('a'), b: envOf('b') }, options);
    try {
      await Promise.all([world.startDaemon('a'), world.startDaemon('b')]);
      await world.ready();
      return world;
    } catch (error) {
      await world.close();
      throw error;
    }
  }

  private constructor(
    lab: Lab,
    runDir: ReturnType<typeof temporaryRunDir>,
    folder: Folder,
    env: HostEnv,
    options: MirroredOptions,
  ) {
    super(lab, runDir, undefined, env);
    this.#folder = folder;
    this.#options = options;
  }

  /** Also in place of one that is gone. */
  async startDaemon(name: Name): Promise<void> {
    this.#daemons[name] = await DaemonProcess.start(this.lab.host(name), this.#folder.path, this.settingsOf(name));
  }

  /** The config of a daemon. */
  settingsOf(name: Name): Settings {
    const { wire = 'shm', ringBytes, isCarrying = false, settings } = this.#options;
    const [host, peer] = name === 'a' ? [this.lab.host('a'), this.b] : [this.lab.host('b'), this.a];
    return {
      ...daemonSettings({ host, peers: [peer], folder: this.#folder.path, devices: [`soft-${wire}`] }),
      ...(!isCarrying && { rules: [] }),
      drainSeconds: 1,
      ...(ringBytes !== undefined && { direct: { ringBytes } }),
      ...settings,
    };
  }

  daemon(name: Name): DaemonProcess {
    const daemon = this.#daemons[name];
    assert.ok(daemon !== undefined, `the daemon of ${name} does not run`);
    return daemon;
  }

  /** Where the library of that host's programs finds its daemon. */
  socketPath(name: Name): string {
    return directSocketPath(instanceOf(this.lab.host(name)), this.#folder.path);
  }

  async ready(): Promise<void> {
    await Promise.all([this.daemon('a').peerUp(), this.daemon('b').peerUp()]);
  }

  /** Connections of host a that were promoted since its daemon began. */
  async promoted(): Promise<number> {
    return (await this.daemon('a').status()).direct.promoted;
  }

  override async close(): Promise<void> {
    await Promise.all(Object.values(this.#daemons).map((daemon) => daemon[Symbol.asyncDispose]()));
    await super.close();
    // Of daemons that were killed.
    for (const host of [this.a, this.b]) removeInstance(instanceOf(host));
    this.#folder[Symbol.dispose]();
  }
}
