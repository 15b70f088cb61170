// Steering by `connect`: the programs in the kernel, and what a daemon tells them and asks of them.

import { constants, readFileSync } from 'node:fs';
import { isShortage } from '../errors.ts';
import { type BpfAttachment, BpfLink, BpfMap, type BpfObject, Fd, FdWatch, RingBuffer } from '../native/index.ts';
import { Admissions } from './admissions.ts';
import { endpointBytes } from './ip-endpoint.ts';
import {
  ANNOUNCEMENT_BYTES,
  announcementFlags,
  type Event,
  eventKinds,
  type IpEndpoint,
  RULE_SET_BYTES,
  readEvent,
  SETTINGS_BYTES,
  verdicts,
  writeAnnouncement,
  writeSettings,
} from './layouts.ts';
import { checkMethods, type LoadedMethods, loadMethods } from './methods.ts';
import { readObject } from './object.ts';
import { PinsAside, removeInstance } from './pins.ts';
import { cgroupPath, compileRules, encodeRules, type SteerRule } from './rules.ts';

export interface SteeringOptions {
  readonly instance: string;
  /** Programs in this cgroup and below it are steered. */
  readonly cgroup: string;
  readonly rules: readonly SteerRule[];
  /** Connects need an admission besides the announcement of their destination. */
  readonly asksPackets?: boolean;
}

export type Verdict = keyof typeof verdicts;

const mapNames = [
  'settings',
  'rules',
  'announced',
  'lane_deadlines',
  'services',
  'lane_marks',
  'sockets',
  'true_clients',
  'verdicts',
  'events',
] as const;
/** Those that the steering itself uses. */
type OwnMap = 'settings' | 'rules' | 'announced' | 'verdicts' | 'library_tgids' | 'lost_events';

const EVENTS_BYTES = 1 << 20;
/**
 * Between two looks at the events. Where thousands come in a second, to be woken by each would cost
 * more than to read them; and while nobody waits the kernel wakes nobody.
 */
const EVENTS_PAUSE_MS = 25;
const firstKey = new Uint8Array(4);

export class Steering implements Disposable {
  readonly instance: string;
  readonly cgroup: string;
  readonly #loaded: LoadedMethods;
  readonly #object: BpfObject;
  readonly #maps: Readonly<Record<OwnMap, BpfMap>>;
  readonly #events: RingBuffer;
  readonly #undo: DisposableStack;
  readonly #asksPackets: boolean;
  readonly admissions: Admissions;
  #rules: readonly SteerRule[] = [];
  #ruleMap: BpfMap | null = null;
  #generation = 0;
  #isServing = false;
  #watch: FdWatch | null = null;
  #pause: NodeJS.Timeout | undefined;
  #isPinned = false;

  /**
   * Loads and pins everything aside, then publishes it by one rename. `isServed`: a sweep removes
   * it once this process is dead.
   */
  static create(options: SteeringOptions, isServed = true): Steering {
    using undo = new DisposableStack();
    const cgroup = cgroupPath(options.cgroup);
    // Throws for wrong rules before anything is loaded.
    compileRules(options.rules, 0);
    const loaded = loadMethods(readObject());
    const object = undo.use(loaded.object);
    const steering = undo.use(new Steering(loaded, options, cgroup));
    steering.setRules(options.rules);
    using pins = new PinsAside(options.instance);
    const target = undo.use(Fd.open(cgroup, constants.O_RDONLY | constants.O_DIRECTORY));
    for (const name of mapNames) pins.pin(object.mapFd(name), name);
    const own = isServed ? ownCgroupOutside(cgroup) : null;
    const daemon = own === null ? null : undo.use(Fd.open(own, constants.O_RDONLY | constants.O_DIRECTORY));
    for (const { hooks, daemonHooks, verdicts: onMaps, pins: kept } of loaded.methods) {
      for (const name of kept) pins.pin(object.mapFd(name), name);
      // The programs on a map of sockets are attached before the hooks that put sockets into it.
      for (const [program, map] of onMaps) pinAttachment(pins, object.attachToMap(program, map), program);
      for (const hook of hooks) pins.pin(object.attach(hook, target.fd).fd, hook);
      if (daemon === null) continue;
      for (const hook of daemonHooks) pins.pin(object.attach(hook, daemon.fd).fd, hook);
    }
    pins.publish(isServed);
    steering.#isPinned = true;
    target.close();
    daemon?.close();
    undo.move();
    return steering;
  }

  private constructor(loaded: LoadedMethods, { instance, asksPackets = false }: SteeringOptions, cgroup: string) {
    using undo = new DisposableStack();
    this.instance = instance;
    this.#asksPackets = asksPackets;
    this.cgroup = cgroup;
    this.#loaded = loaded;
    const { object } = loaded;
    this.#object = object;
    const open = (name: OwnMap): BpfMap => undo.use(object.openMap(name));
    this.#maps = {
      settings: open('settings'),
      rules: open('rules'),
      announced: open('announced'),
      verdicts: open('verdicts'),
      library_tgids: open('library_tgids'),
      lost_events: open('lost_events'),
    };
    this.admissions = undo.use(new Admissions(object));
    this.#events = undo.use(new RingBuffer(object.mapFd('events'), EVENTS_BYTES));
    this.#undo = undo.move();
  }

  get rules(): readonly SteerRule[] {
    return this.#rules;
  }

  /** Exchanges all rules at once; connections that are open stay as they are. */
  setRules(rules: readonly SteerRule[]): void {
    checkMethods(rules, this.#loaded);
    const set = compileRules(rules, ++this.#generation);
    const map = BpfMap.create({
      type: 'array',
      name: 'rule_set',
      keyBytes: 4,
      valueBytes: RULE_SET_BYTES,
      maxEntries: 1,
    });
    try {
      map.update(firstKey, encodeRules(set));
      this.#maps.rules.update(firstKey, new Uint8Array(new Uint32Array([map.fd]).buffer));
    } catch (error) {
      map.close();
      throw error;
    }
    this.#ruleMap?.close();
    this.#ruleMap = map;
    this.#rules = rules;
  }

  /**
   * Connections are steered to the lanes of this process from now on, as far as these are alive.
   */
  serve(lanes: number): void {
    this.#isServing = true;
    this.#writeSettings(lanes);
  }

  /** New connections go by plain TCP at once. */
  stopServing(): void {
    if (!this.#isServing) return;
    this.#isServing = false;
    this.#writeSettings(0);
  }

  #writeSettings(lanes: number): void {
    const bytes = new Uint8Array(SETTINGS_BYTES);
    const asksPackets = this.#asksPackets ? 1 : 0;
    const daemonTgid = this.#object.run('steer_whoami');
    writeSettings(new DataView(bytes.buffer), 0, { daemonTgid, lanes, asksPackets, unused: 0 });
    this.#maps.settings.update(firstKey, bytes);
  }

  /**
   * A process has the library of direct connections, or has ended. Nothing happens where processes
   * have other numbers than in the kernel's hook.
   */
  setLibraryProcess(pid: number, isThere: boolean): void {
    if (this.#object.run('steer_whoami') !== process.pid) return;
    const key = new Uint8Array(Uint32Array.of(pid).buffer);
    if (isThere) this.#maps.library_tgids.update(key, new Uint8Array(Uint32Array.of(1).buffer));
    else this.#maps.library_tgids.delete(key);
  }

  /**
   * A peer announced that a program listens there: connects to it may be carried. `hasLibrary`:
   * those of programs that have the library, too, are left alone, since they can become direct.
   * False when the table is full, or the system has no memory for more.
   */
  announce(endpoint: IpEndpoint, peer = 0, hasLibrary = false): boolean {
    const bytes = new Uint8Array(ANNOUNCEMENT_BYTES);
    const flags = hasLibrary ? announcementFlags.library : 0;
    writeAnnouncement(new DataView(bytes.buffer), 0, { peer, flags });
    try {
      this.#maps.announced.update(endpointBytes(endpoint), bytes);
      return true;
    } catch (error) {
      if (!isShortage(error)) throw error;
      return false;
    }
  }

  withdraw(endpoint: IpEndpoint): void {
    this.#maps.announced.delete(endpointBytes(endpoint));
  }

  /**
   * Connects that a rule was about, listeners that came, and that some went. `onLost`: some came
   * faster than this process could take them, so that it must look for itself.
   */
  onEvent(listener: (event: Event) => void, onLost: () => void = () => {}): void {
    this.#ignoreEvents();
    let view: DataView | undefined;
    let lost = this.lostEvents;
    const consume = (): void => {
      let hasEnded = false;
      this.#events.consume((bytes, offset) => {
        view ??= new DataView(bytes.buffer, bytes.byteOffset);
        // One that ended is as good as many: whoever hears of it scans for those that are left.
        const isEnd = view.getUint32(offset, true) === eventKinds.unlisten;
        if (!isEnd || !hasEnded) listener(readEvent(view, offset));
        hasEnded ||= isEnd;
      });
      // After those that were not lost: what was lost is older than now.
      const lostNow = this.lostEvents;
      if (lostNow === lost) return;
      lost = lostNow;
      onLost();
    };
    const watch = (): void => {
      this.#watch = FdWatch.start(this.#events.fd, () => {
        this.#watch?.close();
        this.#pause = setTimeout(watch, EVENTS_PAUSE_MS).unref();
        consume();
      });
    };
    watch();
    consume();
  }

  #ignoreEvents(): void {
    this.#watch?.close();
    clearTimeout(this.#pause);
  }

  /** Events for which there was no room, since the start. */
  get lostEvents(): number {
    const value = new Uint8Array(8);
    this.#maps.lost_events.lookup(firstKey, value);
    return Number(new DataView(value.buffer).getBigUint64(0, true));
  }

  /** How often each verdict was given. */
  counters(): Readonly<Record<Verdict, number>> {
    const value = new Uint8Array(8);
    const counts = Object.entries(verdicts).map(([name, index]) => {
      this.#maps.verdicts.lookup(new Uint8Array(new Uint32Array([index]).buffer), value);
      return [name, Number(new DataView(value.buffer).getBigUint64(0, true))];
    });
    return Object.fromEntries(counts);
  }

  /**
   * Messages that took the shortcut, and those of the same connections that went by TCP. Null where
   * the method is missing.
   */
  shortcutCounters(): { readonly redirected: number; readonly byTcp: number } | null {
    if (!this.#loaded.methods.some(({ name }) => name === 'shortcut')) return null;
    using map = this.#object.openMap('shortcut_counts');
    const value = new Uint8Array(8);
    const [redirected = 0, byTcp = 0] = [0, 1].map((index) => {
      map.lookup(new Uint8Array(new Uint32Array([index]).buffer), value);
      return Number(new DataView(value.buffer).getBigUint64(0, true));
    });
    return { redirected, byTcp };
  }

  /** Detaches everything. Connections that are carried are the daemon's to end. */
  close(): void {
    if (this.#object.isClosed) return;
    this.stopServing();
    if (this.#isPinned) removeInstance(this.instance);
    this.#isPinned = false;
    this.#ignoreEvents();
    this.#ruleMap?.close();
    this.#undo.dispose();
    this.#object.close();
  }

  /** Closes without detaching: the instance stays. */
  leave(): void {
    this.#isPinned = false;
    this.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

/**
 * Kernels before 6.10 have no links on maps: there the program stays for as long as the map does.
 */
function pinAttachment(pins: PinsAside, attachment: BpfAttachment, name: string): void {
  if (attachment instanceof BpfLink) pins.pin(attachment.fd, name);
}

/** The cgroup of this process, unless it is the steered one or below it. */
function ownCgroupOutside(steered: string): string | null {
  const path = /^0::(.*)$/m.exec(readFileSync('/proc/self/cgroup', 'utf8'))?.[1];
  if (path === undefined) return null;
  const own = cgroupPath(`.${path}`);
  return `${own}/`.startsWith(`${steered}/`) ? null : own;
}
