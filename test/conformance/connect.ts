// Steps of the QP state machine by hand: the attributes of each step, and two QPs modified to RTS.

import {
  access,
  type Device,
  type Gid,
  type PathTo,
  type PortInfo,
  type Qp,
  type QpAttributes,
  type QpState,
} from '../../src/verbs/index.ts';

export const allAccess = access.localWrite | access.remoteWrite | access.remoteRead | access.remoteAtomic;

/** First PSNs, close to where they wrap so that every suite runs over it. */
export const PSN_OF_LEFT = 0xff_fff0;
export const PSN_OF_RIGHT = 0xff_ff00;

export interface ConnectOptions {
  readonly gidOf?: GidOf;
  readonly access?: number;
  /** Replaces attributes of the steps. */
  readonly attributes?: QpAttributes;
}

export interface PeerOf {
  readonly device: Device;
  readonly qpNumber: number;
  readonly psn: number;
}

/** Where peers find a device. */
export type GidOf = (device: Device) => Gid;

const ports = new WeakMap<Device, PortInfo>();

/** Read once, because that costs a system call for each GID, and a call to a backend. */
export function portOf(device: Device): PortInfo {
  const port = ports.get(device) ?? device.port();
  ports.set(device, port);
  return port;
}

export function preferredGid(device: Device): Gid {
  const { gids, gidIndex = 0 } = portOf(device);
  return gids[gidIndex] ?? '';
}

function pathTo(device: Device, gidOf: GidOf = preferredGid): PathTo {
  return { gid: gidOf(device), lid: portOf(device).lid };
}

export function initAttributes(flags: number = allAccess): QpAttributes {
  return { portNumber: 1, access: flags };
}

export function rtrAttributes(local: Device, peer: PeerOf, options: ConnectOptions = {}): QpAttributes {
  const [ours, theirs] = [portOf(local).activeMtu, portOf(peer.device).activeMtu];
  return {
    path: pathTo(peer.device, options.gidOf),
    pathMtu: ours < theirs ? ours : theirs,
    destQpNumber: peer.qpNumber,
    rqPsn: peer.psn,
    maxDestRdAtomic: 4,
    minRnrTimer: 5,
    ...pick(options.attributes, ['path', 'pathMtu', 'destQpNumber', 'rqPsn', 'maxDestRdAtomic', 'minRnrTimer']),
  };
}

export function rtsAttributes(psn: number, options: ConnectOptions = {}): QpAttributes {
  return {
    sqPsn: psn,
    timeout: 16,
    retryCount: 7,
    rnrRetry: 7,
    maxRdAtomic: 4,
    ...pick(options.attributes, ['sqPsn', 'timeout', 'retryCount', 'rnrRetry', 'maxRdAtomic']),
  };
}

/** From RESET to the state that is asked for. */
export function modifyToRts(qp: Qp, to: QpState, psn: number, peer: PeerOf, options: ConnectOptions = {}): void {
  if (to === 'RESET') return;
  qp.modify('INIT', initAttributes(options.access));
  if (to === 'INIT') return;
  if (to !== 'ERR') {
    qp.modify('RTR', rtrAttributes(qp.pd.device, peer, options));
    if (to === 'RTR') return;
    qp.modify('RTS', rtsAttributes(psn, options));
    if (to === 'RTS') return;
  }
  qp.modify(to);
}

/** Modifies both to RTS, each connected to the other. */
export function connectPair(
  left: Qp,
  right: Qp,
  forLeft: ConnectOptions = {},
  forRight: ConnectOptions = forLeft,
): void {
  const leftPeer = { device: right.pd.device, qpNumber: right.number, psn: PSN_OF_RIGHT };
  const rightPeer = { device: left.pd.device, qpNumber: left.number, psn: PSN_OF_LEFT };
  modifyToRts(left, 'RTR', PSN_OF_LEFT, leftPeer, forLeft);
  modifyToRts(right, 'RTR', PSN_OF_RIGHT, rightPeer, forRight);
  left.modify('RTS', rtsAttributes(PSN_OF_LEFT, forLeft));
  right.modify('RTS', rtsAttributes(PSN_OF_RIGHT, forRight));
}

function pick(attributes: QpAttributes = {}, names: readonly (keyof QpAttributes)[]): QpAttributes {
  return Object.fromEntries(Object.entries(attributes).filter(([name]) => names.includes(name as keyof QpAttributes)));
}
