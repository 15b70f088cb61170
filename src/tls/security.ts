// What a side of a connection between programs of millrace has to prove itself with, and whether it
// is usable.

import { createPrivateKey, X509Certificate } from 'node:crypto';
import { createSecureContext, type SecureContextOptions } from 'node:tls';
import { UsageError } from '../errors.ts';
import { printable } from '../text/index.ts';
import { isRevoked, parseCrl, splitCrls } from './revocation.ts';
import { readTlsMaterial, type TlsFiles } from './tls-material.ts';

export const MAX_REASON_LENGTH = 200;
const TLS_VERSION = 'TLSv1.3';

/** PEM texts. `ca` is the only authority: those that come with Node count for nothing. */
export interface TlsSecurity {
  readonly kind: 'tls';
  readonly ca: string;
  readonly cert: string;
  readonly key: string;
  /** Revocation lists of the authorities, one PEM text each; without them nothing is revoked. */
  readonly crls?: readonly string[];
}

export type ControlSecurity = TlsSecurity | { readonly kind: 'insecure' };

/**
 * Read anew at each call: certificates are renewed in place. Throws a UsageError when they cannot
 * be used.
 */
export async function readSecurity(files: TlsFiles | undefined): Promise<ControlSecurity> {
  if (files === undefined) return { kind: 'insecure' };
  const { ca, cert, key, crl } = await readTlsMaterial(files);
  const pems = { kind: 'tls', ca: ca.toString(), cert: cert.toString(), key: key.toString() } as const;
  const security = crl === undefined ? pems : { ...pems, crls: crlsOf(crl.toString(), files.crl) };
  checkSecurity(security);
  return security;
}

/** Throws a UsageError when no connection could ever be made with it. */
export function checkSecurity(security: ControlSecurity): void {
  if (security.kind === 'insecure') return;
  const { ca, cert, key, crls } = security;
  try {
    // An empty `ca` would mean the authorities that come with Node, and an empty key none.
    void new X509Certificate(ca);
    const isOurs = new X509Certificate(cert).checkPrivateKey(createPrivateKey(key));
    if (!isOurs) throw new UsageError('the key is not that of the certificate');
    createSecureContext(contextOf(security));
    // OpenSSL reads more than this side does: what it takes must be readable here, too.
    crls?.forEach(parseCrl);
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new UsageError(
      `the CA, certificate, key or revocation list cannot be used: ${printable(why, MAX_REASON_LENGTH)}`,
      {
        cause: error,
      },
    );
  }
}

/** What every connection of this side is made with. */
export function contextOf({ ca, cert, key, crls }: TlsSecurity): SecureContextOptions {
  return { ca, cert, key, minVersion: TLS_VERSION, ...(crls !== undefined && { crl: [...crls] }) };
}

/**
 * Why a peer's certificate does not count any more; undefined when it does, or there is no list.
 */
export function revocationOf(certificate: X509Certificate | undefined, security: ControlSecurity): string | undefined {
  if (certificate === undefined || security.kind === 'insecure' || security.crls === undefined) return undefined;
  try {
    return isRevoked(certificate, security.crls) ? describeRefusal('CERT_REVOKED') : undefined;
  } catch {
    // A peer may send authorities along that OpenSSL could read and that are not as they should be.
    return 'its certificates cannot be compared with the revocation list tls.crl';
  }
}

/** The code by which OpenSSL refused a certificate, with what that means where it is not plain. */
export function describeRefusal(code: string): string {
  const meaning = refusals[code];
  return meaning === undefined ? printable(code, MAX_REASON_LENGTH) : `${code} (${meaning})`;
}

const refusals: Readonly<Record<string, string>> = {
  CERT_REVOKED: 'it is on the revocation list tls.crl',
  CRL_HAS_EXPIRED: 'the revocation list tls.crl is too old; get the newest one',
  CRL_NOT_YET_VALID: 'the revocation list tls.crl is of the future; set the clock',
  CRL_SIGNATURE_FAILURE: 'the revocation list tls.crl is not signed by the authority tls.ca',
  UNABLE_TO_GET_CRL: 'the revocation list tls.crl has none of the authority that signed it; add that list',
};

function crlsOf(pem: string, path: string | undefined): readonly string[] {
  try {
    return splitCrls(pem);
  } catch (error) {
    throw new UsageError(`read tls.crl from ${path}: ${(error as Error).message}`, { cause: error });
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
