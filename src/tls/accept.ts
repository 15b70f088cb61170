// The accepting side of TLS, on a socket that a peer dialed.

import type { X509Certificate } from 'node:crypto';
import type { Socket } from 'node:net';
import { createServer, type TLSSocket } from 'node:tls';
import { printable } from '../text/index.ts';
import { contextOf, describeRefusal, MAX_REASON_LENGTH, type TlsSecurity } from './security.ts';

/** First byte of a TLS connection: the record type of a handshake. No JSON begins with it. */
export const TLS_FIRST_BYTE = 0x16;

export interface TlsOutcome {
  /** The certificate is of our authority; the names in it were not compared yet. */
  onSecure(socket: TLSSocket, certificate: X509Certificate): void;
  /** `socket`: where the peer can still be told why. */
  onFail(reason: string, socket: TLSSocket | undefined): void;
}

export function acceptTls(raw: Socket, security: TlsSecurity, outcome: TlsOutcome): void {
  // A server for one connection, which never listens: so new certificates count from the next
  // connection on, and an error belongs to a connection.
  const server = createServer({
    ...contextOf(security),
    requestCert: true,
    // `authorized` is checked below, where the peer can be told. Said in so many words, so that
    // NODE_TLS_REJECT_UNAUTHORIZED of the environment counts for nothing.
    rejectUnauthorized: false,
  });
  server.once('secureConnection', (socket) => {
    const certificate = socket.getPeerX509Certificate();
    // OpenSSL does not verify a resumed session again; no peer that keeps to the protocol resumes
    // one.
    if (socket.isSessionReused()) outcome.onFail('a resumed TLS session', socket);
    else if (certificate === undefined) outcome.onFail('no certificate', socket);
    else if (!socket.authorized) {
      // Declared as an error; it is its code.
      const why = describeRefusal(String(socket.authorizationError));
      outcome.onFail(`a certificate that is not accepted here: ${why}`, socket);
    } else outcome.onSecure(socket, certificate);
  });
  server.once('tlsClientError', ({ code, message }: NodeJS.ErrnoException) => {
    const hungUp = 'it hung up (does it accept our certificate?)';
    const why = code === 'ECONNRESET' ? hungUp : (code ?? printable(message, MAX_REASON_LENGTH));
    outcome.onFail(`no TLS came about: ${why}`, undefined);
  });
  server.emit('connection', raw);
}
