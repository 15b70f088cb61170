// The relay as a daemon: steering in the kernel, the relay it steers to, and the peers whose announcements it follows.

import type { MillraceError } from '../errors.ts';
import { type Address, ip } from '../native/index.ts';
import {
  followListeners,
  type IpEndpoint,
  ownAddresses,
  type Service,
  Steering,
  type SteerRule,
} from '../steering/index.ts';
import { Announcements, type AnnouncementsOptions, DEFAULT_CONTROL_PORT } from './announcements.ts';
import type { PeerSpec } from './peer-call.ts';
import { Relay, type RelaySteering } from './relay.ts';

/** Of the relay itself; 0 would do, and a fixed one is easier to recognise in ss(8). */
export const DEFAULT_RELAY_PORT = 4789;

export interface DaemonOptions {
  /** What peers call this relay. */
  readonly name: string;
  /** Addresses of this host, at most one of each family. Default: its first IPv4 and its first IPv6 address. */
  readonly listen?: readonly Address[];
  /** Default: 4790, where the relay listens. */
  readonly controlPort?: number;
  readonly instance: string;
  readonly cgroup: string;
  readonly rules: readonly SteerRule[];
  /** Taken for announced without a peer that says so. */
  readonly announce?: readonly IpEndpoint[];
  readonly peers?: readonly PeerSpec[];
  readonly onError?: (error: MillraceError) => void;
  readonly onPeer?: AnnouncementsOptions['onPeer'];
}

export interface Daemon extends AsyncDisposable {
  readonly relay: Relay;
  readonly steering: Steering;
  readonly announcements: Announcements;
  /** Detaches first, so that new connections go by plain TCP; those that are carried are reset. */
  close(): Promise<void>;
}

/** All of it, or nothing. */
export async function startDaemon(options: DaemonOptions): Promise<Daemon> {
  const { instance, cgroup, rules, onError = () => {} } = options;
  const listen = options.listen ?? defaultListen();
  await using undo = new AsyncDisposableStack();
  const steering = Steering.create({ instance, cgroup, rules });
  undo.use(steering);
  let announcements: Announcements | undefined;
  const namer: RelaySteering = {
    take: (client) => steering.take(client),
    // Here for servers of this host, there for those of a peer.
    setTrueClient: (local, client, original) => {
      steering.setTrueClient(local, client);
      return announcements?.setTrueClient(local, client, original);
    },
    forgetTrueClient: (local, original) => {
      steering.forgetTrueClient(local);
      announcements?.forgetTrueClient(local, original);
    },
  };
  const relay = undo.use(Relay.start({ listen, steering: namer, onError }));
  announcements = undo.use(
    await Announcements.start({
      name: options.name,
      listen: { host: hostOf(listen[0]), port: options.controlPort ?? DEFAULT_CONTROL_PORT },
      peers: options.peers ?? [],
      sink: steering,
      onError,
      ...(options.onPeer === undefined ? {} : { onPeer: options.onPeer }),
    }),
  );
  for (const endpoint of options.announce ?? []) announcements.announceHere(endpoint);
  const told = announcements;
  const follower = undo.use(followListeners((endpoints) => told.setListeners(endpoints)));
  steering.onEvent((event) => follower.onEvent(event));
  steering.serve(serviceOf(relay.addresses));
  const all = undo.move();
  const close = async (): Promise<void> => {
    steering.stopServing();
    await all.disposeAsync();
  };
  return { relay, steering, announcements, close, [Symbol.asyncDispose]: close };
}

function defaultListen(): readonly Address[] {
  const own = ownAddresses();
  const first = [own.find((host) => !host.includes(':')), own.find((host) => host.includes(':'))];
  const hosts = first.filter((host) => host !== undefined);
  return (hosts.length > 0 ? hosts : ['127.0.0.1']).map((host) => ip(host, DEFAULT_RELAY_PORT));
}

function serviceOf(addresses: readonly Address[]): Service {
  const of = (family: 'ipv4' | 'ipv6'): { readonly address: string; readonly port: number } | undefined => {
    const found = addresses.find((address) => address.family === family);
    return found === undefined ? undefined : { address: hostOf(found), port: portOf(found) };
  };
  const [ipv4, ipv6] = [of('ipv4'), of('ipv6')];
  return { ...(ipv4 && { ipv4 }), ...(ipv6 && { ipv6 }) };
}

function hostOf(address: Address | undefined): string {
  return address === undefined || address.family === 'unix' ? '' : address.host;
}

function portOf(address: Address): number {
  return address.family === 'unix' ? 0 : address.port;
}
