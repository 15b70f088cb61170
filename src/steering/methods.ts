// The methods of steering as parts of the BPF object: what each adds, and which of them this kernel
// can run.

import { MillraceError, UnsupportedError } from '../errors.ts';
import { BpfError, BpfObject } from '../native/index.ts';
import type { SteerRule } from './rules.ts';
import { tryShortcut } from './shortcut-trial.ts';

export interface Method {
  readonly name: string;
  /** Programs on the cgroup. */
  readonly hooks: readonly string[];
  /** Programs on the daemon's own cgroup, where that is not steered. */
  readonly daemonHooks: readonly string[];
  /** Programs on maps of sockets. */
  readonly verdicts: readonly (readonly [program: string, map: string])[];
  /** Programs that the daemon runs by the bpf system call, or attaches to sockets of its own. */
  readonly runnable: readonly string[];
  readonly maps: readonly string[];
  /** Maps that are pinned besides those of every instance. */
  readonly pins: readonly string[];
  /**
   * Tries what loading alone does not show: the reason why the method does not work here, or null.
   */
  readonly trial?: (object: BpfObject) => string | null;
}

const connect: Method = {
  name: 'connect',
  hooks: ['steer_connect4', 'steer_connect6', 'steer_getpeername4', 'steer_getpeername6', 'steer_sockops'],
  daemonHooks: ['steer_daemon_sockops'],
  verdicts: [],
  runnable: ['steer_whoami', 'knock_filter'],
  maps: [
    'settings',
    'no_rules',
    'rules',
    'announced',
    'admissions',
    'knocks',
    'knock_answers',
    'heard_syns',
    'library_tgids',
    'lane_deadlines',
    'services',
    'lane_marks',
    'client_connects',
    'server_connects',
    'true_clients',
    'sockets',
    'congestion',
    'recent',
    'verdicts',
    'events',
    'lost_events',
  ],
  pins: ['recent'],
};

const shortcut: Method = {
  name: 'shortcut',
  hooks: ['shortcut_sockops'],
  daemonHooks: ['shortcut_daemon_sockops'],
  verdicts: [['shortcut_message', 'shortcut_sockets']],
  runnable: ['shortcut_trial'],
  maps: ['connecting', 'shortcut_sockets', 'joined', 'memberships', 'shortcut_counts', 'trial_sockets', 'trial_charge'],
  pins: ['connecting', 'shortcut_sockets', 'joined', 'shortcut_counts'],
  trial: tryShortcut,
};

/** The first is needed by all others. */
const [first, ...others]: readonly [Method, ...Method[]] = [connect, shortcut];

export interface LoadedMethods {
  readonly object: BpfObject;
  readonly methods: readonly Method[];
  /** Why the others are missing, by name. */
  readonly missing: ReadonlyMap<string, string>;
}

/** Loads all methods at once if the kernel takes them, or else as many of them as it takes. */
export function loadMethods(bytes: Uint8Array): LoadedMethods {
  const all = [first, ...others];
  const object = tryToLoad(bytes, all, new Map());
  const missing = new Map<string, string>();
  if (object !== null) return { object, methods: all, missing };
  const working = [first];
  for (const method of others) {
    using tried = tryToLoad(bytes, [...working, method], missing);
    if (tried !== null) working.push(method);
  }
  return { object: loadOrExplain(bytes, working), methods: working, missing };
}

/** Null when the last of them does not work here; why is then in `missing`. */
function tryToLoad(bytes: Uint8Array, chosen: readonly Method[], missing: Map<string, string>): BpfObject | null {
  const last = chosen[chosen.length - 1]?.name ?? '';
  let object: BpfObject;
  try {
    object = load(bytes, chosen);
  } catch (error) {
    if (!(error instanceof BpfError)) throw error;
    missing.set(last, error.message);
    return null;
  }
  for (const method of chosen) {
    const reason = method.trial?.(object) ?? null;
    if (reason === null) continue;
    object.close();
    missing.set(method.name, reason);
    return null;
  }
  return object;
}

function load(bytes: Uint8Array, chosen: readonly Method[]): BpfObject {
  const programs = chosen.flatMap(({ hooks, daemonHooks, verdicts, runnable }) => [
    ...hooks,
    ...daemonHooks,
    ...verdicts.map(([name]) => name),
    ...runnable,
  ]);
  // Constants of the object are a map, too.
  const maps = [...chosen.flatMap((method) => method.maps), 'steer.rodata'];
  return BpfObject.load(bytes, { name: 'steer', programs, maps });
}

function loadOrExplain(bytes: Uint8Array, chosen: readonly Method[]): BpfObject {
  try {
    return load(bytes, chosen);
  } catch (error) {
    throw explained(error);
  }
}

function explained(error: unknown): unknown {
  if (!(error instanceof BpfError)) return error;
  if (error.code === 'EPERM' || error.code === 'EACCES') {
    const message =
      'load steering into the kernel: not permitted; run as root, or with CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON';
    return new MillraceError('MILLRACE_ERR_PERMISSION', message, { cause: error });
  }
  return new UnsupportedError(
    `load steering into the kernel: ${error.message}; 'millrace doctor' says what is missing`,
    {
      cause: error,
    },
  );
}

/** Throws when a rule needs a method that is not there. */
export function checkMethods(
  rules: readonly SteerRule[],
  { methods: there, missing }: Omit<LoadedMethods, 'object'>,
): void {
  for (const { action, redirect } of rules) {
    const needed = redirect === true ? 'shortcut' : action;
    if (needed === 'pass' || there.some(({ name }) => name === needed)) continue;
    throw new UnsupportedError(
      `a rule with ${redirect === true ? 'redirect' : action}: this kernel cannot: ${missing.get(needed) ?? 'it is not built in'}`,
    );
  }
}
