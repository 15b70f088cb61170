// A program for a host: plays all peers of a daemon in one process, as play-protocol.ts says.

import { createInterface } from 'node:readline';
import { monotonicNs } from '../../src/native/index.ts';
import { encodeNodeValue, nodesPrefix } from '../../src/peers/index.ts';
import { formatIpEndpoint } from '../../src/steering/index.ts';
import { type PlayEvent, type PlayOrder, type PlaySpec, playedAddress, playedName } from './play-protocol.ts';
import { PlayedPeer } from './played-peer.ts';

/** etcd takes no more in one transaction. */
const PUTS_AT_ONCE = 100;

/** How many of the peers know of an endpoint of the daemon's host, and since when. */
interface Known {
  peers: number;
  firstNs: number;
  lastNs: number;
}

const spec = JSON.parse(process.argv[2] ?? '') as PlaySpec;
const peers: PlayedPeer[] = [];
const wereUp = new Set<number>();
const known = new Map<string, Known>();
let attempts = 0;
const losts = new Map<string, number>();
let startedNs = 0;
let awaited: Extract<PlayOrder, { order: 'await' }> | undefined;

function tell(event: PlayEvent): void {
  process.stdout.write(`${JSON.stringify(event)}\n`);
}

const base64 = (text: string): string => Buffer.from(text).toString('base64');

async function register(): Promise<void> {
  const { endpoint, prefix } = spec.etcd;
  const puts = Array.from({ length: spec.peers }, (_, index) => {
    const place = { name: playedName(index, spec.dialed), host: playedAddress(index), port: spec.daemon.port };
    const value = base64(encodeNodeValue(place));
    return { request_put: { key: base64(`${nodesPrefix(prefix)}${place.name}`), value } };
  });
  for (let at = 0; at < puts.length; at += PUTS_AT_ONCE) {
    const body = JSON.stringify({ success: puts.slice(at, at + PUTS_AT_ONCE) });
    const response = await fetch(`${endpoint}/v3/kv/txn`, { method: 'POST', body });
    if (!response.ok) throw new Error(`register played peers in etcd: ${await response.text()}`);
  }
}

async function start(): Promise<void> {
  startedNs = monotonicNs();
  await register();
  const events = { onUp, onDown, onDialFailed: () => attempts++, onListeners };
  for (let index = 0; index < spec.peers; index++) {
    peers.push(await PlayedPeer.start(spec, index, events));
  }
}

function onUp(index: number): void {
  if (wereUp.has(index)) return;
  wereUp.add(index);
  if (wereUp.size === spec.peers) tell({ event: 'up', startedNs, ns: monotonicNs(), attempts });
}

function onDown(_index: number, reason: string): void {
  losts.set(reason, (losts.get(reason) ?? 0) + 1);
}

function onListeners(...[added, removed]: Parameters<Parameters<typeof PlayedPeer.start>[2]['onListeners']>): void {
  const ns = monotonicNs();
  for (const [endpoints, change] of [[added, 1] as const, [removed, -1] as const]) {
    for (const endpoint of endpoints.map(formatIpEndpoint)) {
      const before = known.get(endpoint) ?? { peers: 0, firstNs: ns, lastNs: ns };
      const isFirst = before.peers === (change > 0 ? 0 : spec.peers);
      known.set(endpoint, { peers: before.peers + change, firstNs: isFirst ? ns : before.firstNs, lastNs: ns });
    }
  }
  answer();
}

/** Tells what was asked for, if it is so. */
function answer(): void {
  if (awaited === undefined) return;
  const { endpoint, isThere } = awaited;
  const { peers: count, firstNs, lastNs } = known.get(endpoint) ?? { peers: 0, firstNs: 0, lastNs: 0 };
  if (count !== (isThere ? spec.peers : 0)) return;
  awaited = undefined;
  tell({ event: 'known', endpoint, firstNs, lastNs });
}

tell({ event: 'ready' });
for await (const line of createInterface(process.stdin)) {
  const order = JSON.parse(line) as PlayOrder;
  if (order.order === 'start') await start();
  else if (order.order === 'await') {
    awaited = order;
    answer();
  } else if (order.order === 'announce') {
    const ns = monotonicNs();
    peers[order.peer]?.announce(order.endpoint, order.isThere);
    tell({ event: 'announced', endpoint: order.endpoint, ns });
  } else break;
}
tell({ event: 'ended', losts: Object.fromEntries(losts) });
await Promise.all(peers.map((peer) => peer[Symbol.asyncDispose]()));
process.exit();
