// A lab host in which one port is steered by a method and another is not, under the same hooks; and
// the proof of it.

import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { MillraceError } from '../../src/errors.ts';
import { type Host, Lab } from '../../src/lab/index.ts';
import { BpfMap } from '../../src/native/index.ts';
import { folderOf, parseRule, removeInstance, Steering, type Verdict, verdicts } from '../../src/steering/index.ts';
import { LineProgram } from './steer-program.ts';

export type SteerMethod = 'connect' | 'shortcut';

/** Of the server that no rule is about, and of the one that is steered. */
export const ports = { plain: 7101, steered: 7102 } as const;

/** What the hooks count for each connection by that method, and what they must count besides. */
const verdictOf = {
  connect: 'carried',
  shortcut: 'shortcut',
} as const satisfies Record<SteerMethod, Verdict>;
const messagesOf = { connect: 'carried', shortcut: 'redirected' } as const;
const fallbacks: readonly string[] = ['daemonDown', 'notAnnounced', 'noMemory'];
/** Pinned maps of counters, and the names of their entries. */
const counterMaps = {
  verdicts,
  shortcut_counts: { redirected: 0, byTcp: 1 },
} as const;

export class SteerWorld implements AsyncDisposable {
  readonly method: SteerMethod;
  readonly host: Host;
  /** Null where no process carries anything. */
  readonly daemonPid: number | null;
  readonly #instance: string;
  readonly #undo: AsyncDisposableStack;

  static async create(method: SteerMethod, signal: AbortSignal): Promise<SteerWorld> {
    await using undo = new AsyncDisposableStack();
    const lab = undo.use(await Lab.create({ signal }));
    const [host] = lab.hosts;
    const instance = `bench-${lab.id}`;
    if (method === 'shortcut') {
      const rules = [parseRule(`shortcut to any:${ports.steered}`)];
      undo.use(Steering.create({ instance, cgroup: host.cgroup, rules }));
      return new SteerWorld(method, host, instance, null, undo.move());
    }
    // In case the daemon does not live to do it.
    undo.defer(() => void removeInstance(instance));
    const daemon = undo.use(startDaemon(host, instance, method));
    await daemon.line(signal);
    return new SteerWorld(method, host, instance, daemon.pid, undo.move());
  }

  private constructor(
    method: SteerMethod,
    host: Host,
    instance: string,
    daemonPid: number | null,
    undo: AsyncDisposableStack,
  ) {
    this.method = method;
    this.host = host;
    this.daemonPid = daemonPid;
    this.#instance = instance;
    this.#undo = undo;
  }

  /**
   * Measures on the steered port. A connection that went by plain TCP after all is an error, not a
   * figure.
   */
  async steered(measure: (port: number) => Promise<number>): Promise<number> {
    const before = this.#counters();
    const figure = await measure(ports.steered);
    const after = this.#counters();
    const since = (name: string): number => (after[name] ?? 0) - (before[name] ?? 0);
    const hasTaken = since(verdictOf[this.method]) > 0 && since(messagesOf[this.method]) > 0;
    if (hasTaken && fallbacks.every((name) => since(name) === 0)) return figure;
    const counted = Object.keys(after).filter((name) => since(name) !== 0);
    const counts = counted.map((name) => `${name} ${since(name)}`);
    throw this.#wrong('steered connections went by plain TCP', counts);
  }

  /** Measures on the other port, which must stay untouched. */
  async plain(measure: (port: number) => Promise<number>): Promise<number> {
    const before = this.#counters();
    const figure = await measure(ports.plain);
    const after = this.#counters();
    const touched = [verdictOf[this.method], messagesOf[this.method]].filter((name) => after[name] !== before[name]);
    if (touched.length === 0) return figure;
    throw this.#wrong('plain connections were steered', touched);
  }

  #wrong(what: string, counted: readonly string[]): MillraceError {
    return new MillraceError('MILLRACE_ERR_FAILED', `measure ${this.method}: ${what} (${counted.join(', ')})`);
  }

  #counters(): Readonly<Record<string, number>> {
    const folder = folderOf(this.#instance);
    const all = Object.entries(counterMaps).map(([name, entries]) => readCounts(join(folder, name), entries));
    return Object.assign({}, ...all);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#undo.disposeAsync();
  }
}

function readCounts(pin: string, names: Readonly<Record<string, number>>): Readonly<Record<string, number>> {
  using map = BpfMap.openPinned(pin);
  const value = new Uint8Array(8);
  const counts = Object.entries(names).map(([name, index]) => {
    map.lookup(new Uint8Array(new Uint32Array([index]).buffer), value);
    return [name, Number(new DataView(value.buffer).getBigUint64(0, true))];
  });
  return Object.fromEntries(counts);
}

/** It says a line when it steers. */
function startDaemon(host: Host, instance: string, method: Exclude<SteerMethod, 'shortcut'>): LineProgram {
  return startNode(host, `./steer-${method}.ts`, [host.cgroup, instance, `${host.ipv4}:${ports.steered}`]);
}

function startNode(host: Host, file: string, words: readonly string[]): LineProgram {
  const url = new URL(file, import.meta.url);
  return new LineProgram(host, process.execPath, [...process.execArgv, fileURLToPath(url), ...words]);
}
