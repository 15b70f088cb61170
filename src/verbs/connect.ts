// Connects two QPs over a socket: each side sends its endpoint, modifies its QP to RTS, and waits
// for the other's.

import type { Duplex } from 'node:stream';
import { MillraceError, UsageError } from '../errors.ts';
import { isOfKind, readMessage, unexpected, writeMessage } from '../json-lines/index.ts';
import { access } from './access.ts';
import { type QpEndpoint, qpProtocol, type RemoteRegion } from './endpoint/index.ts';
import { localQpEndpoint, randomPsn } from './local-endpoint.ts';
import { Mr } from './mr.ts';
import type { Qp } from './qp.ts';
import type { Mtu } from './qp-state.ts';

/**
 * What the two sides need not agree on. The numbers are codes of the InfiniBand specification: see
 * QpAttributes.
 */
export interface ModifyToRtsOptions {
  readonly minRnrTimer?: number;
  /**
   * Default 18: about a second, seven times. A peer in software may be busy with something else for
   * a while.
   */
  readonly timeout?: number;
  readonly retryCount?: number;
  readonly rnrRetry?: number;
  readonly maxRdAtomic?: number;
  /** Which of this side's GIDs to send from. Default: one that fits the peer's. */
  readonly gidIndex?: number | undefined;
}

export interface ConnectOptions<Name extends string = string> extends ModifyToRtsOptions {
  /**
   * What the peer may reach. A region gets a key of its own for this peer; give `mr.remote(rkey)`
   * to choose one.
   */
  readonly regions?: Readonly<Record<string, Mr | RemoteRegion>>;
  /** Regions the peer must offer. */
  readonly expect?: readonly Name[];
  readonly signal?: AbortSignal;
}

export interface Connected<Name extends string = string> {
  readonly local: QpEndpoint;
  readonly remote: QpEndpoint;
  /** The peer's, by name. */
  readonly regions: Readonly<Record<Name, RemoteRegion>>;
}

/** From INIT to RTS. */
export function modifyToRts(qp: Qp, local: QpEndpoint, remote: QpEndpoint, options: ModifyToRtsOptions = {}): void {
  const { maxRdAtomic = Math.min(16, qp.pd.device.attributes.maxRdAtomic) } = options;
  const { minRnrTimer = 12, timeout = 18, retryCount = 7, rnrRetry = 7, gidIndex } = options;
  qp.modify('RTR', {
    path: { gid: remote.gid, lid: remote.lid, ...(gidIndex !== undefined && { gidIndex }) },
    pathMtu: Math.min(local.mtu, remote.mtu) as Mtu,
    destQpNumber: remote.qpNumber,
    rqPsn: remote.psn,
    maxDestRdAtomic: maxRdAtomic,
    minRnrTimer,
  });
  qp.modify('RTS', { sqPsn: local.psn, timeout, retryCount, rnrRetry, maxRdAtomic });
}

/**
 * Resolves when both QPs are in RTS. The QP comes in RESET, or in INIT if receives are to be there
 * from the start. The socket stays open, and bytes after the exchange are still in it. A QP that
 * could not be connected stays in the state it has reached: close it.
 */
export async function connectQp<const Name extends string = string>(
  socket: Duplex,
  qp: Qp,
  options: ConnectOptions<Name> = {},
): Promise<Connected<Name>> {
  const { regions = {}, expect = [], signal, ...attributes } = options;
  if (qp.type !== 'RC') throw new UsageError(`connect QP ${qp.number}: only RC is connected, this is ${qp.type}`);
  if (qp.state === 'RESET') qp.init();
  if (qp.state !== 'INIT') throw new UsageError(`connect QP ${qp.number}: it is in ${qp.state} already`);
  const local = localQpEndpoint(qp, randomPsn(), offered(qp, regions));

  // Between two reads nobody else listens for errors; the next read rejects with this one.
  const ignore = (): void => {};
  socket.on('error', ignore);
  try {
    writeMessage(socket, qpProtocol, { kind: 'hello', ...local });
    const hello = await readMessage(socket, qpProtocol, { signal });
    if (!isOfKind(hello, 'hello')) throw unexpected(hello, 'hello');
    const { kind: _kind, ...remote } = hello;
    for (const name of expect) {
      if (!(name in remote.regions)) throw failed(qp, `the peer does not offer the region ${name}`);
    }
    modifyToRts(qp, local, remote, attributes);
    // What one side sends before the other is in RTR is lost.
    writeMessage(socket, qpProtocol, { kind: 'ready', qpNumber: qp.number });
    const ready = await readMessage(socket, qpProtocol, { signal });
    if (!isOfKind(ready, 'ready')) throw unexpected(ready, 'ready');
    if (ready.qpNumber !== remote.qpNumber)
      throw failed(qp, `the peer says that another QP is ready: ${ready.qpNumber}`);
    return { local, remote, regions: remote.regions };
  } finally {
    socket.off('error', ignore);
  }
}

function offered(qp: Qp, regions: Readonly<Record<string, Mr | RemoteRegion>>): Record<string, RemoteRegion> {
  const remoteAccess = access.remoteRead | access.remoteWrite | access.remoteAtomic;
  return Object.fromEntries(
    Object.entries(regions).map(([name, region]) => {
      if (!(region instanceof Mr)) return [name, region];
      if ((region.access & remoteAccess) === 0) {
        throw new UsageError(`connect QP ${qp.number}: the region ${name} allows no remote access`);
      }
      return [name, region.remote(region.grant(qp))];
    }),
  );
}

function failed(qp: Qp, reason: string): MillraceError {
  return new MillraceError('MILLRACE_ERR_FAILED', `connect QP ${qp.number}: ${reason}`);
}
