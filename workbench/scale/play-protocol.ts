// What the process that plays peers is told and tells: one JSON document a line, and times by the
// monotonic clock, which all processes of a machine share.

export interface PlaySpec {
  readonly peers: number;
  /** So many of them the daemon dials; the others dial it. */
  readonly dialed: number;
  /** So many endpoints each of them announces. */
  readonly endpointsEach: number;
  /** The daemon whose peers they are. */
  readonly daemon: { readonly name: string; readonly host: string; readonly port: number };
  readonly etcd: { readonly endpoint: string; readonly prefix: string };
}

export type PlayOrder =
  /** Registers all in etcd, and lets them connect. */
  | { readonly order: 'start' }
  /** Tells when all of them know, or have forgotten, that the daemon's host listens there. */
  | { readonly order: 'await'; readonly endpoint: string; readonly isThere: boolean }
  /** One of them announces, or withdraws, an endpoint besides the others. */
  | { readonly order: 'announce'; readonly peer: number; readonly endpoint: string; readonly isThere: boolean }
  | { readonly order: 'end' };

export type PlayEvent =
  /** They may be started. */
  | { readonly event: 'ready' }
  /** All were up at least once; `attempts`: connections that did not get so far. */
  | { readonly event: 'up'; readonly startedNs: number; readonly ns: number; readonly attempts: number }
  | { readonly event: 'known'; readonly endpoint: string; readonly firstNs: number; readonly lastNs: number }
  | { readonly event: 'announced'; readonly endpoint: string; readonly ns: number }
  /** `losts`: how many connections that were up have ended, by the reason. */
  | { readonly event: 'ended'; readonly losts: Readonly<Record<string, number>> };

/** Where all played peers are; the lab's own hosts are elsewhere. */
export const playedNetwork = '10.78.0.0/16';
const FIRST_PORT = 20_000;

/** The daemon with the smaller name dials. The one that is measured is called m. */
export function playedName(index: number, dialed: number): string {
  return `${index < dialed ? 'z' : 'a'}${String(index).padStart(5, '0')}`;
}

export function playedAddress(index: number): string {
  const number = index + 256;
  return `10.78.${number >> 8}.${number & 255}`;
}

/** The n-th endpoint of a played peer. */
export function playedEndpoint(index: number, n: number): string {
  return `${playedAddress(index)}:${FIRST_PORT + n}`;
}
