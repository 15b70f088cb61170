import assert from 'node:assert/strict';
import { after, describe, test } from 'node:test';
import { UsageError } from '../errors.ts';
import { CertificateFolder } from '../proxy/control/fixtures/certificates.ts';
import { parseCrl } from './revocation.ts';

const pemOf = (der: Buffer): string => `-----BEGIN X509 CRL-----\n${der.toString('base64')}\n-----END X509 CRL-----\n`;

describe('revocation lists', () => {
  const folder = new CertificateFolder();
  after(() => folder[Symbol.dispose]());
  const authority = folder.makeAuthority();
  const revoked = folder.makeSecurity(authority, { commonName: 'a' });
  const der = Buffer.from(folder.makeCrl(authority, [revoked]).replace(/-----[^-]+-----/g, ''), 'base64');

  test('that are cut off are refused', () => {
    for (let length = 0; length < der.length; length++) {
      assert.throws(() => parseCrl(pemOf(der.subarray(0, length))), UsageError, `${length} bytes`);
    }
    assert.equal(parseCrl(pemOf(der)).serials.size, 1);
  });

  test('that are damaged anywhere are read or refused, and nothing else happens', () => {
    for (let at = 0; at < der.length; at++) {
      for (const bit of [0x01, 0x80]) {
        const damaged = Buffer.from(der);
        damaged[at] = (damaged[at] ?? 0) ^ bit;
        try {
          parseCrl(pemOf(damaged));
        } catch (error) {
          assert.ok(error instanceof UsageError, `byte ${at}: ${String(error)}`);
        }
      }
    }
  });

  test('without entries, and of a bare sequence, are what they are', () => {
    assert.equal(parseCrl(folder.makeCrl(authority, [])).serials.size, 0);
    assert.throws(() => parseCrl(pemOf(Buffer.from('3000', 'hex'))), UsageError);
  });
});
