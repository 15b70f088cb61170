// What a side of a connection between programs of millrace has to prove itself with, and whether it
// is usable.

import { createPrivateKey, X509Certificate } from 'node:crypto';
import { createSecureContext } from 'node:tls';
import { UsageError } from '../errors.ts';
import { printable } from '../text/index.ts';
import { readTlsMaterial, type TlsFiles } from './tls-material.ts';

export const MAX_REASON_LENGTH = 200;
export const TLS_VERSION = 'TLSv1.3';

/** PEM texts. `ca` is the only authority: those that come with Node count for nothing. */
export interface TlsSecurity {
  readonly kind: 'tls';
  readonly ca: string;
  readonly cert: string;
  readonly key: string;
}

export type ControlSecurity = TlsSecurity | { readonly kind: 'insecure' };

/**
 * Read anew at each call: certificates are renewed in place. Throws a UsageError when they cannot
 * be used.
 */
export async function readSecurity(files: TlsFiles | undefined): Promise<ControlSecurity> {
  if (files === undefined) return { kind: 'insecure' };
  const { ca, cert, key } = await readTlsMaterial(files);
  const security = { kind: 'tls', ca: ca.toString(), cert: cert.toString(), key: key.toString() } as const;
  checkSecurity(security);
  return security;
}

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
    throw new UsageError(`the CA, certificate or key cannot be used: ${printable(why, MAX_REASON_LENGTH)}`, {
      cause: error,
    });
  }
}

/** Undefined when the certificate is for that peer; in words when it is not. */
export function nameMismatch(certificate: X509Certificate, name: string): string | undefined {
  // `checkHost` gives the name that matched. It does not care for case, and peers' names do.
  const match = certificate.checkHost(name, { subject: 'always', wildcards: false, partialWildcards: false });
  if (match === name) return undefined;
  const subject = printable(certificate.subject.replaceAll('\n', ', '), MAX_REASON_LENGTH);
  return `the certificate is of ${subject} and not of ${name}`;
}
