// Dials a peer: both sides show a certificate of the same authority, and that of the peer has to
// have its name.

import { X509Certificate } from 'node:crypto';
import { connect as connectPlain, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { ProtocolError } from '../errors.ts';
import { type ControlSecurity, contextOf, describeRefusal, nameMismatch } from './security.ts';

export interface DialedPeer {
  readonly host: string;
  readonly port: number;
  /** What its certificate must say; undefined: anybody of the authority will do. */
  readonly name?: string | undefined;
}

export interface Dialed {
  readonly socket: Socket;
  /** The event that says that the other side may be spoken to. */
  readonly ready: 'connect' | 'secureConnect';
}

export function dial(peer: DialedPeer, security: ControlSecurity, localAddress: string | undefined): Dialed {
  const where = { host: peer.host, port: peer.port, ...(localAddress === undefined ? {} : { localAddress }) };
  if (security.kind === 'insecure') return { socket: connectPlain(where), ready: 'connect' };
  const socket = connectTls({
    ...where,
    ...contextOf(security),
    // NODE_TLS_REJECT_UNAUTHORIZED of the environment would be the default.
    rejectUnauthorized: true,
    checkServerIdentity: (_host, { raw }) => {
      if (peer.name === undefined) return undefined;
      const problem = nameMismatch(new X509Certificate(raw), peer.name);
      return problem === undefined ? undefined : new ProtocolError(problem);
    },
  });
  return { socket, ready: 'secureConnect' };
}

export interface DialFailure {
  readonly reason: string;
  /** Somebody has to mend it; a peer that is just not there comes by itself. */
  readonly isFault: boolean;
}

/** Why dialing failed. */
export function dialFailure(error: NodeJS.ErrnoException): DialFailure {
  const { code = '', message, syscall } = error;
  if (error instanceof ProtocolError) return { reason: message, isFault: true };
  if (code === 'ECONNREFUSED') return { reason: 'ECONNREFUSED (no daemon listens there)', isFault: false };
  if (syscall !== undefined || code === 'ECONNRESET') return { reason: code === '' ? message : code, isFault: false };
  // What plain TCP looks like to TLS.
  if (/^ERR_SSL_(WRONG_VERSION_NUMBER|PACKET_LENGTH_TOO_LONG|UNEXPECTED_MESSAGE|RECORD_LAYER_FAILURE)$/.test(code)) {
    return { reason: 'the peer speaks plain TCP (insecure), and this side TLS', isFault: true };
  }
  return { reason: `its certificate or TLS is not accepted here: ${describeRefusal(code || message)}`, isFault: true };
}
