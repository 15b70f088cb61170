// A pinned instance as other processes than the daemon can read it.

import { join } from 'node:path';
import { MillraceError } from '../errors.ts';
import { BpfMap, monotonicNs } from '../native/index.ts';
import { endpointBytes } from './ip-endpoint.ts';
import {
  ANNOUNCEMENT_BYTES,
  announcementFlags,
  CONNECTION_BYTES,
  type Connection,
  type IpEndpoint,
  RULE_SET_BYTES,
  type RuleSet,
  readAnnouncement,
  readConnection,
  readIpEndpoint,
  readRuleSet,
  readSettings,
  SETTINGS_BYTES,
  type Settings,
  verdicts,
} from './layouts.ts';
import { folderOf } from './pins.ts';
import type { Verdict } from './steering.ts';

const firstKey = new Uint8Array(4);

export class SteeringView implements Disposable {
  readonly instance: string;
  readonly #undo = new DisposableStack();

  constructor(instance: string) {
    this.instance = instance;
    // Throws at once for an instance that is not there.
    this.#map('settings');
  }

  #map(name: string): BpfMap {
    try {
      return this.#undo.use(BpfMap.openPinned(join(folderOf(this.instance), name)));
    } catch (error) {
      const { code } = error as { code?: string };
      if (code !== 'ENOENT') throw error;
      throw new MillraceError(
        'MILLRACE_ERR_NOT_RUNNING',
        `there is no steering called ${this.instance}; 'millrace steer show' lists what there is`,
        { cause: error },
      );
    }
  }

  get settings(): Settings {
    const value = new Uint8Array(SETTINGS_BYTES);
    this.#map('settings').lookup(firstKey, value);
    return readSettings(new DataView(value.buffer), 0);
  }

  /** Whether a lane of a daemon is alive. */
  get isServed(): boolean {
    const deadlines = this.#map('lane_deadlines');
    const value = new BigUint64Array(1);
    const isAlive = (lane: number): boolean =>
      deadlines.lookup(new Uint8Array(new Uint32Array([lane]).buffer), new Uint8Array(value.buffer)) &&
      Number(value[0]) > monotonicNs();
    return Array.from({ length: this.settings.lanes }, (_, lane) => lane).some(isAlive);
  }

  get rules(): RuleSet {
    const id = new Uint8Array(4);
    if (!this.#map('rules').lookup(firstKey, id)) return { count: 0, generation: 0, rules: [] };
    using inner = BpfMap.openById(new DataView(id.buffer).getUint32(0, true));
    const value = new Uint8Array(RULE_SET_BYTES);
    inner.lookup(firstKey, value);
    return readRuleSet(new DataView(value.buffer), 0);
  }

  get counters(): Readonly<Record<Verdict, number>> {
    const map = this.#map('verdicts');
    const value = new Uint8Array(8);
    const counts = Object.entries(verdicts).map(([name, index]) => {
      map.lookup(new Uint8Array(new Uint32Array([index]).buffer), value);
      return [name, Number(new DataView(value.buffer).getBigUint64(0, true))];
    });
    return Object.fromEntries(counts);
  }

  isAnnounced(endpoint: IpEndpoint): boolean {
    return this.#map('announced').lookup(endpointBytes(endpoint), new Uint8Array(ANNOUNCEMENT_BYTES));
  }

  get announced(): readonly IpEndpoint[] {
    return [...this.#map('announced').keys()].map((key) => readIpEndpoint(new DataView(key.buffer), 0));
  }

  /** Those of programs that have the library of direct connections. */
  get announcedWithLibrary(): readonly IpEndpoint[] {
    const map = this.#map('announced');
    const value = new Uint8Array(ANNOUNCEMENT_BYTES);
    const isLibrary = (key: Uint8Array): boolean =>
      map.lookup(key, value) &&
      (readAnnouncement(new DataView(value.buffer), 0).flags & announcementFlags.library) !== 0;
    return [...map.keys()].filter(isLibrary).map((key) => readIpEndpoint(new DataView(key.buffer), 0));
  }

  /** The last connects, the newest first. */
  get recent(): readonly Connection[] {
    const map = this.#map('recent');
    const value = new Uint8Array(CONNECTION_BYTES);
    const connections: Connection[] = [];
    for (const key of map.keys()) {
      if (map.lookup(key, value)) connections.push(readConnection(new DataView(value.buffer), 0));
    }
    return connections.sort((a, b) => b.startedNs - a.startedNs);
  }

  [Symbol.dispose](): void {
    this.#undo.dispose();
  }
}
