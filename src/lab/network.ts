// The network of a lab: namespaces, a cable between two hosts or a switch between more, addresses,
// delay and loss.

import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { MillraceError, UnsupportedError } from '../errors.ts';
import { permissionError } from './permission.ts';
import { collect, requireTool, spawnInCgroup } from './program.ts';
import {
  addressesOf,
  hasSwitch,
  ipv4PrefixLength,
  ipv6PrefixLength,
  type LabSpec,
  namespaceOf,
  namespacesOf,
  switchNamespaceOf,
} from './spec.ts';

const namespaceDir = '/run/netns';
/** A link usually comes up within milliseconds of its other end. */
const readyTimeoutMs = 5000;
/** Few, because other tests may run on this machine at the same time. */
const parallelTools = 4;
/** netem holds delayed packets; its own limit of 1000 would drop from a fast sender. */
const netemLimitPackets = 100_000;

interface NetworkPlace {
  readonly labId: string;
  /** The tools run in this cgroup, so that killing it also stops an unfinished creation. */
  readonly cgroup: string;
  readonly signal?: AbortSignal | undefined;
}

export function namespaceFile(namespace: string): string {
  return join(namespaceDir, namespace);
}

export async function makeNetwork(place: NetworkPlace, spec: LabSpec): Promise<void> {
  const hosts = spec.hosts.map((host, index) => ({ index, namespace: namespaceOf(place.labId, host) }));
  const all = namespacesOf(place.labId, spec);
  const cabling = hasSwitch(spec) ? [] : cable(place.labId, spec);
  await ip(place, [], [...all.map((namespace) => `netns add ${namespace}`), ...cabling]);
  const switchNamespace = switchNamespaceOf(place.labId);
  if (hasSwitch(spec)) await ip(place, ['-n', switchNamespace], switchCabling(place.labId, spec));
  await inParallel(hosts, ({ namespace, index }) => ip(place, ['-n', namespace], hostLines(index)));
  if (spec.delayMs > 0 || spec.lossPercent > 0) {
    await inParallel(hosts, ({ namespace }) => shapeLink(place, namespace, spec));
  }
  const deadlineMs = performance.now() + readyTimeoutMs;
  await inParallel(hosts, ({ namespace }) => linksUp(place, namespace, 'dev eth0', ' state UP ', deadlineMs));
  if (hasSwitch(spec)) await linksUp(place, switchNamespace, 'master br0', ' state forwarding ', deadlineMs);
}

/**
 * Both ends are created in their namespaces, so that the machine's own namespace never has them.
 */
function cable(labId: string, spec: LabSpec): readonly string[] {
  const [left, right] = spec.hosts.map((host) => namespaceOf(labId, host));
  return [`link add eth0 mtu ${spec.mtu} netns ${left} type veth peer name eth0 mtu ${spec.mtu} netns ${right}`];
}

/** No spanning tree and no multicast snooping: both hold back a new host's first packets. */
function switchCabling(labId: string, spec: LabSpec): readonly string[] {
  return [
    `link add br0 mtu ${spec.mtu} type bridge stp_state 0 forward_delay 0 mcast_snooping 0`,
    'link set br0 up',
    ...spec.hosts.flatMap((host, index) => [
      `link add port${index + 1} mtu ${spec.mtu} type veth peer name eth0 mtu ${spec.mtu} netns ${namespaceOf(labId, host)}`,
      `link set port${index + 1} master br0 up`,
    ]),
  ];
}

/** `nodad`: the address is unique, and detecting duplicates would take a second. */
function hostLines(index: number): readonly string[] {
  const { ipv4, ipv6 } = addressesOf(index);
  return [
    'link set lo up',
    `addr add ${ipv4}/${ipv4PrefixLength} dev eth0`,
    `addr add ${ipv6}/${ipv6PrefixLength} dev eth0 nodad`,
    'link set eth0 up',
  ];
}

async function shapeLink(place: NetworkPlace, namespace: string, spec: LabSpec): Promise<void> {
  const delay = spec.delayMs > 0 ? ['delay', `${spec.delayMs}ms`] : [];
  const loss = spec.lossPercent > 0 ? ['loss', `${spec.lossPercent}%`] : [];
  const netem = ['netem', 'limit', String(netemLimitPackets), ...delay, ...loss];
  const words = [requireTool('tc', 'iproute2'), '-n', namespace, 'qdisc', 'add', 'dev', 'eth0', 'root', ...netem];
  const result = await collect(spawnInCgroup(place.cgroup, words, toolOptions(place)));
  if (result.code === 0) return;
  // The messages of tc on a kernel without the module, with and without extended ACKs.
  if (/qdisc kind is unknown|No such file or directory/.test(result.stderr)) {
    throw new UnsupportedError('this kernel has no netem (CONFIG_NET_SCH_NETEM), so the lab cannot set delay or loss');
  }
  throw toolError(`set delay and loss in ${namespace}`, result.stderr);
}

/** A link is up a moment after it was set up; packets that are sent before are lost. */
async function linksUp(
  place: NetworkPlace,
  namespace: string,
  which: string,
  sign: string,
  deadlineMs: number,
): Promise<void> {
  for (;;) {
    const links = (await ip(place, ['-n', namespace, '-o', '-d'], [`link show ${which}`])).trim().split('\n');
    if (links.every((link) => link.includes(sign))) return;
    if (performance.now() > deadlineMs) {
      throw new MillraceError(
        'MILLRACE_ERR_FAILED',
        `lab: the links of ${namespace} did not come up in ${readyTimeoutMs} ms`,
      );
    }
  }
}

async function ip(place: NetworkPlace, options: readonly string[], lines: readonly string[]): Promise<string> {
  const words = [requireTool('ip', 'iproute2'), ...options, '-batch', '-'];
  const child = spawnInCgroup(place.cgroup, words, toolOptions(place));
  const result = await collect(child, `${lines.join('\n')}\n`);
  if (result.code === 0) return result.stdout;
  // ip names the failing line as `Command failed -:3`.
  const line = lines[Number(/-:(\d+)/.exec(result.stderr)?.[1]) - 1];
  throw toolError(line === undefined ? 'ip -batch' : `ip ${line}`, result.stderr);
}

/** LC_ALL=C, because some messages are matched above. */
function toolOptions(place: NetworkPlace): { env: NodeJS.ProcessEnv; signal?: AbortSignal; killSignal: 'SIGKILL' } {
  const env = { ...process.env, LC_ALL: 'C' };
  return { env, killSignal: 'SIGKILL', ...(place.signal === undefined ? {} : { signal: place.signal }) };
}

function toolError(attempt: string, stderr: string): MillraceError {
  const reason = stderr.trim().split('\n', 1)[0] ?? '';
  if (/Operation not permitted|Permission denied/.test(reason)) return permissionError(`${attempt}: ${reason}`);
  return new MillraceError('MILLRACE_ERR_FAILED', `lab: ${attempt}: ${reason === '' ? 'killed' : reason}`);
}

/** After a failure no further item is started. */
async function inParallel<T>(items: readonly T[], action: (item: T) => Promise<unknown>): Promise<void> {
  const queue = [...items];
  const work = async (): Promise<void> => {
    for (let item = queue.shift(); item !== undefined; item = queue.shift()) await action(item);
  };
  const workers = Array.from({ length: Math.min(parallelTools, items.length) }, work);
  await Promise.all(workers).finally(() => queue.splice(0));
}

/**
 * Removes those that exist. Another process may do the same at the same time; in the end none must
 * be left.
 */
export async function removeNamespaces(namespaces: readonly string[]): Promise<void> {
  const existing = namespaces.filter((namespace) => existsSync(namespaceFile(namespace)));
  if (existing.length === 0) return;
  const child = spawn(requireTool('ip', 'iproute2'), ['-force', '-batch', '-'], {
    env: { ...process.env, LC_ALL: 'C' },
  });
  const result = await collect(child, existing.map((namespace) => `netns del ${namespace}\n`).join(''));
  const left = existing.find((namespace) => existsSync(namespaceFile(namespace)));
  if (left !== undefined) throw toolError(`remove namespace ${left}`, result.stderr);
}
