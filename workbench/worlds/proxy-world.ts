// Two hosts whose connections are carried end to end by daemons: one in each host, over one wire.

import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { type Host, Lab } from '../../src/lab/index.ts';
import { removeInstance } from '../../src/steering/index.ts';
import type { CarryingWorld } from './carrying-world.ts';
import { carryEverything, DaemonProcess, daemonSettings, type Settings, socketOf } from './daemon-process.ts';
import { temporaryRunDir } from './lab-runs.ts';
import { instanceOf } from './pinned-instance.ts';
import { makePods, type Pods } from './pods.ts';
import { temporaryFolder } from './temporary-folder.ts';
import { World } from './world.ts';

/**
 * Daemons get the processor before the programs of all tests that run at once: one that gets none
 * for a fraction of a second leaves new connections to plain TCP.
 */
const beforeOthers = ['nice', '-n', '-10'];

export type Wire = 'shm' | 'roce' | 'tcp';
export type Name = 'a' | 'b';

interface ProxyOptions {
  readonly wire?: Wire;
  /**
   * Of each daemon, towards the other host. All connections are carried unless this says otherwise.
   */
  readonly rules?: (to: Host) => readonly string[];
  /** Hosts in the lab; the daemons run in the first two. */
  readonly hosts?: number;
  /** Programs run in namespaces behind the two hosts, as in containers. */
  readonly hasPods?: boolean;
  /** On top of what a pair of daemons needs; of a function, by host. */
  readonly settings?: Settings | ((name: Name) => Settings);
}

export class ProxyWorld extends World implements CarryingWorld {
  readonly wire: Wire;
  readonly folder = temporaryFolder('proxy');
  readonly #rules: (to: Host) => readonly string[];
  readonly #more: (name: Name) => Settings;
  readonly #daemons: { a?: DaemonProcess; b?: DaemonProcess } = {};

  /** Both daemons run, and can carry. */
  static override async create(options: ProxyOptions = {}): Promise<ProxyWorld> {
    const world = await ProxyWorld.createIdle(options);
    try {
      await Promise.all([world.start('a'), world.start('b')]);
      await world.ready();
      return world;
    } catch (error) {
      await world.close();
      throw error;
    }
  }

  /** No daemon runs yet. */
  static async createIdle(options: ProxyOptions = {}): Promise<ProxyWorld> {
    await using undo = new AsyncDisposableStack();
    const runDir = undo.use(temporaryRunDir());
    const lab = undo.use(await Lab.create({ runDir: runDir.path, hosts: options.hosts ?? 2 }));
    const pods = options.hasPods === true ? await makePods(lab) : undefined;
    undo.move();
    return new ProxyWorld(lab, runDir, pods, options);
  }

  private constructor(
    lab: Lab,
    runDir: ReturnType<typeof temporaryRunDir>,
    pods: Pods | undefined,
    options: ProxyOptions,
  ) {
    super(lab, runDir, pods);
    const { wire = 'shm', rules = carryEverything, settings = {} } = options;
    this.wire = wire;
    this.#rules = rules;
    this.#more = typeof settings === 'function' ? settings : () => settings;
  }

  get daemons(): { readonly a: DaemonProcess; readonly b: DaemonProcess } {
    return { a: this.running('a'), b: this.running('b') };
  }

  /** One of them, whatever the other does. */
  running(name: Name): DaemonProcess {
    const daemon = this.#daemons[name];
    assert.ok(daemon !== undefined, `the daemon of ${name} does not run`);
    return daemon;
  }

  /** What stands in the config of the daemon of that host. */
  settingsOf(name: Name): Settings {
    const [host, peer] = name === 'a' ? [this.a, this.b] : [this.b, this.a];
    const programs = name === 'a' ? this.serverHost : this.clientHost;
    const destinations = programs === peer ? [peer] : [peer, programs];
    const devices = [`soft-${this.wire}`];
    const settings = daemonSettings({ host, peers: [peer], folder: this.folder.path, devices });
    const rules = destinations.flatMap((to) => this.#rules(to));
    // What a test has left open need not hold up its end. Some of its servers listen on dozens of
    // ports, each of which is to be carried at once.
    return { ...settings, rules, drainSeconds: 1, idleDestinations: 256, ...this.#more(name) };
  }

  /** Also in place of one that is gone. `as`: a command that runs it, as `prlimit`. */
  async start(name: Name, more: Settings = {}, as: readonly string[] = []): Promise<DaemonProcess> {
    const settings = { ...this.settingsOf(name), ...more };
    const words = [...beforeOthers, ...as];
    const daemon = await DaemonProcess.start(this[name], this.folder.path, settings, process.env, words);
    this.#daemons[name] = daemon;
    return daemon;
  }

  async ready(): Promise<void> {
    const { a, b } = this.daemons;
    await Promise.all([a.peerUp(), b.peerUp()]);
  }

  /** Connects of host a's programs that went to its daemon. */
  carried(): number {
    return this.running('a').verdict('carried');
  }

  starved(): number {
    return this.running('a').verdict('daemonDown') + this.running('a').verdict('notAdmitted');
  }

  protected override isAnnounced(endpoint: string): boolean {
    return this.hasPods || this.running('a').isAnnounced(endpoint);
  }

  /** Ends the daemons in order. */
  async stop(): Promise<void> {
    const both = Object.values(this.daemons);
    for (const daemon of both) {
      const { counters } = await daemon.status();
      assert.equal(counters.unsteered, 0, 'connections came to a daemon that nobody steered');
    }
    await Promise.all(both.map((daemon) => daemon.stop()));
    for (const daemon of both) {
      assert.equal(daemon.exitCode, 0);
      assert.equal(daemon.isPinned, false, 'something stayed pinned');
    }
    for (const host of [this.a, this.b]) assert.equal(existsSync(socketOf(host, this.folder.path)), false);
  }

  override async close(): Promise<void> {
    await Promise.all(Object.values(this.#daemons).map((daemon) => daemon[Symbol.asyncDispose]()));
    await super.close();
    // Of daemons that were killed, or that the lab's end took along.
    for (const host of [this.a, this.b]) removeInstance(instanceOf(host));
    this.folder[Symbol.dispose]();
  }
}
