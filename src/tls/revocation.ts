// Certificate revocation lists: PEM texts taken apart, and whether a certificate is on one of them.
//
// OpenSSL checks the lists when a connection is made. Node has no call to check a certificate again
// later, so the lists are read here for connections that are up when a list changes.

import type { X509Certificate } from 'node:crypto';
import { UsageError } from '../errors.ts';

const PEM_PATTERN = /-----BEGIN X509 CRL-----[\s\S]+?-----END X509 CRL-----/g;
/** A chain of a peer is not longer than what OpenSSL verifies by default. */
const MAX_CHAIN = 100;

const INTEGER = 0x02;
const SEQUENCE = 0x30;
const UTC_TIME = 0x17;
const GENERALIZED_TIME = 0x18;
const CONSTRUCTED = 0x20;

/** The lists in a PEM text, one text each: Node reads only the first of several. */
export function splitCrls(pem: string): readonly string[] {
  const lists = pem.match(PEM_PATTERN);
  if (lists === null) throw new UsageError('there is no revocation list (-----BEGIN X509 CRL-----) in it');
  return lists;
}

/** Whether a certificate, or one of the authorities above it, is on one of the lists. */
export function isRevoked(certificate: X509Certificate, crls: readonly string[]): boolean {
  const lists = crls.map(parseCrl);
  let one: X509Certificate | undefined = certificate;
  for (let depth = 0; one !== undefined && depth < MAX_CHAIN; depth++) {
    const { issuer, serial } = parseCertificate(one.raw);
    if (lists.some((list) => list.issuer === issuer && list.serials.has(serial))) return true;
    one = one.issuerCertificate;
  }
  return false;
}

interface RevokedSerials {
  readonly issuer: string;
  /** In hex. */
  readonly serials: ReadonlySet<string>;
}

/** RFC 5280, 5.1. Throws a UsageError when it is not a list. */
export function parseCrl(pem: string): RevokedSerials {
  const der = Buffer.from(pem.replace(/-----[^-]+-----/g, ''), 'base64');
  const fields = childrenOf(childrenOf(elementAt(der, 0, der.length))[0]);
  // The version is optional; the algorithm of the signature and the issuer are not.
  const at = fields[0]?.tag === INTEGER ? 2 : 1;
  const issuer = fields[at];
  const rest = fields.slice(at + 1);
  const isTime = ({ tag }: Element): boolean => tag === UTC_TIME || tag === GENERALIZED_TIME;
  if (issuer?.tag !== SEQUENCE || rest[0] === undefined || !isTime(rest[0])) throw notReadable();
  const revoked = rest.find((field) => !isTime(field));
  const entries = revoked?.tag === SEQUENCE ? childrenOf(revoked) : [];
  return { issuer: nameOf(issuer), serials: new Set(entries.map((entry) => serialOf(childrenOf(entry)[0]))) };
}

/** RFC 5280, 4.1. */
function parseCertificate(der: Buffer): { readonly issuer: string; readonly serial: string } {
  const fields = childrenOf(childrenOf(elementAt(der, 0, der.length))[0]);
  const at = fields.findIndex(({ tag }) => tag === INTEGER);
  const issuer = fields[at + 2];
  if (issuer?.tag !== SEQUENCE) throw notReadable();
  return { issuer: nameOf(issuer), serial: serialOf(fields[at]) };
}

function serialOf(element: Element | undefined): string {
  if (element?.tag !== INTEGER) throw notReadable();
  return element.bytes.toString('hex');
}

/** A name to compare: the kind of its strings, letter case and spaces do not count. */
function nameOf(element: Element): string {
  if ((element.tag & CONSTRUCTED) !== 0) return childrenOf(element).map(nameOf).join(',');
  return JSON.stringify(element.bytes.toString('latin1').trim().replace(/\s+/g, ' ').toLowerCase());
}

/** One element of DER: its tag, and its contents. */
interface Element {
  readonly tag: number;
  readonly bytes: Buffer;
  /** Of its contents, in the buffer that it was read from. */
  readonly end: number;
}

function elementAt(der: Buffer, at: number, end: number): Element {
  const [tag, first] = [der[at], der[at + 1]];
  if (tag === undefined || first === undefined) throw notReadable();
  const lengthBytes = first < 0x80 ? 0 : first & 0x7f;
  if (first === 0x80 || lengthBytes > 4 || at + 2 + lengthBytes > end) throw notReadable();
  const start = at + 2 + lengthBytes;
  const length = lengthBytes === 0 ? first : der.readUIntBE(at + 2, lengthBytes);
  if (start + length > end) throw notReadable();
  return { tag, bytes: der.subarray(start, start + length), end: start + length };
}

function childrenOf(element: Element | undefined): readonly Element[] {
  if (element === undefined || (element.tag & CONSTRUCTED) === 0) throw notReadable();
  const children: Element[] = [];
  for (let at = 0; at < element.bytes.length; ) {
    const child = elementAt(element.bytes, at, element.bytes.length);
    children.push(child);
    at = child.end;
  }
  return children;
}

function notReadable(): UsageError {
  return new UsageError('a revocation list or certificate cannot be read: it is damaged');
}
