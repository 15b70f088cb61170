// TLS between two programs of millrace: both show a certificate of the same authority, and a certificate is worth the name that is in it.

import { createPrivateKey, X509Certificate } from 'node:crypto';
import { connect as connectPlain, type Socket } from 'node:net';
import { connect as connectTls, createSecureContext, createServer, type TLSSocket } from 'node:tls';
import { UsageError } from '../errors.ts';

/** PEM texts. `ca` is the only authority: those that come with Node count for nothing. */
export type ControlSecurity =
  | { readonly kind: 'tls'; readonly ca: string; readonly cert: string; readonly key: string }
  | { readonly kind: 'insecure' };

export interface DialedPeer {
  readonly host: string;
  readonly port: number;
  /** What its certificate must say; undefined: anybody of the authority will do. */
  readonly name?: string | undefined;
}

export type TlsSecurity = Extract<ControlSecurity, { readonly kind: 'tls' }>;

const TLS_VERSION = 'TLSv1.3';
const MAX_REASON_LENGTH = 200;
/** First byte of a TLS connection: the record type of a handshake. No JSON begins with it. */
export const TLS_FIRST_BYTE = 0x16;

/** Throws a UsageError when no connection could ever be made with it. */
export function checkSecurity(security: ControlSecurity): void {
  if (security.kind === 'insecure') return;
  const { ca, cert, key } = security;
  try {
    // An empty `ca` would mean the authorities that come with Node, and an empty key none.
    void new X509Certificate(ca);
    const isOurs = new X509Certificate(cert).checkPrivateKey(createPrivateKey(key));
    if (!isOurs) throw new UsageError('the key is not that of the certificate');
    createSecureContext({ ca, cert, key });
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new UsageError(`the CA, certificate or key cannot be used: ${readable(why)}`, {
      cause: error,
    });
  }
}

/** Undefined when the certificate is for that peer; in words when it is not. */
export function nameMismatch(certificate: X509Certificate, name: string): string | undefined {
  // `checkHost` gives the name that matched. It does not care for case, and peers' names do.
  const match = certificate.checkHost(name, { subject: 'always', wildcards: false, partialWildcards: false });
  if (match === name) return undefined;
  return `the certificate is of ${readable(certificate.subject.replaceAll('\n', ', '))} and not of ${name}`;
}

export interface Dialed {
  readonly socket: Socket;
  /** The event that says that the other side may be spoken to. */
  readonly ready: 'connect' | 'secureConnect';
}

export function dial(peer: DialedPeer, security: ControlSecurity, localAddress: string | undefined): Dialed {
  const where = { host: peer.host, port: peer.port, ...(localAddress === undefined ? {} : { localAddress }) };
  if (security.kind === 'insecure') return { socket: connectPlain(where), ready: 'connect' };
  const { ca, cert, key } = security;
  const socket = connectTls({
    ...where,
    ca,
    cert,
    key,
    minVersion: TLS_VERSION,
    checkServerIdentity: (_host, { raw }) => {
      if (peer.name === undefined) return undefined;
      const problem = nameMismatch(new X509Certificate(raw), peer.name);
      return problem === undefined ? undefined : new UsageError(problem);
    },
  });
  return { socket, ready: 'secureConnect' };
}

export interface DialFailure {
  readonly reason: string;
  /** For people to mend: a peer that is just not there comes by itself. */
  readonly isFault: boolean;
}

/** Why a call failed. */
export function dialFailure(error: NodeJS.ErrnoException): DialFailure {
  const { code = '', message, syscall } = error;
  if (error instanceof UsageError) return { reason: message, isFault: true };
  if (code === 'ECONNREFUSED') return { reason: 'ECONNREFUSED (no daemon listens there)', isFault: false };
  if (syscall !== undefined || code === 'ECONNRESET') return { reason: code === '' ? message : code, isFault: false };
  // What plain TCP looks like to TLS.
  if (/^ERR_SSL_(WRONG_VERSION_NUMBER|PACKET_LENGTH_TOO_LONG|UNEXPECTED_MESSAGE|RECORD_LAYER_FAILURE)$/.test(code)) {
    return { reason: 'the peer speaks plain TCP (insecure), and this side TLS', isFault: true };
  }
  return { reason: `its certificate or TLS is not accepted here: ${code || readable(message)}`, isFault: true };
}

export interface TlsOutcome {
  /** The certificate is of our authority; whose it is was not looked at yet. */
  onSecure(socket: TLSSocket, certificate: X509Certificate): void;
  /** `socket`: where it can still be said why. */
  onFail(reason: string, socket: TLSSocket | undefined): void;
}

/** The listening side of TLS on a socket that somebody dialed. */
export function acceptTls(raw: Socket, { ca, cert, key }: TlsSecurity, outcome: TlsOutcome): void {
  // A server for one connection, that never listens: new certificates count for the next caller, and errors have a caller.
  const server = createServer({
    ca,
    cert,
    key,
    minVersion: TLS_VERSION,
    requestCert: true,
    // Judged below, where the caller can be told.
    rejectUnauthorized: false,
  });
  server.once('secureConnection', (socket) => {
    const certificate = socket.getPeerX509Certificate();
    // OpenSSL does not verify a resumed session again; nobody who follows the rules resumes one.
    if (socket.isSessionReused()) outcome.onFail('a resumed TLS session', socket);
    else if (certificate === undefined) outcome.onFail('no certificate', socket);
    else if (!socket.authorized)
      outcome.onFail(`a certificate that is not accepted here: ${verdictOf(socket)}`, socket);
    else outcome.onSecure(socket, certificate);
  });
  server.once('tlsClientError', ({ code, message }: NodeJS.ErrnoException) => {
    const why = code === 'ECONNRESET' ? 'it hung up (does it accept our certificate?)' : (code ?? readable(message));
    outcome.onFail(`no TLS came about: ${why}`, undefined);
  });
  server.emit('connection', raw);
}

function verdictOf({ authorizationError }: TLSSocket): string {
  // Declared as an error; it is its code.
  return readable(String(authorizationError));
}

/** For people to read: short, and nothing that moves a cursor. */
export function readable(text: string): string {
  return text.replaceAll(/[^\x20-\x7e]/g, '?').slice(0, MAX_REASON_LENGTH);
}
