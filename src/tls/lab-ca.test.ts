import assert from 'node:assert/strict';
import { X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { mkdtempDisposable } from 'node:fs/promises';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { connect, createServer } from 'node:tls';
import { type CertificateFiles, type LabCaOptions, makeLabCertificates } from './lab-ca.ts';

const folder = () => mkdtempDisposable(join(tmpdir(), 'millrace-ca-'));
const usual = { openssl: '/usr/bin/openssl', days: 30, caDays: 60 };
const make = (dir: string, names: readonly string[], more: Partial<LabCaOptions> = {}) =>
  makeLabCertificates({ ...usual, folder: dir, names, ...more });

/** What the server learnt of the client, or why there was no connection. */
async function meet(ca: string, server: CertificateFiles, client: CertificateFiles, clientCa = ca): Promise<string> {
  const material = (files: CertificateFiles, authority: string) => ({
    ca: readFileSync(authority),
    cert: readFileSync(files.cert),
    key: readFileSync(files.key),
  });
  const listener = createServer({ ...material(server, ca), requestCert: true, rejectUnauthorized: true });
  await once(listener.listen(0, '127.0.0.1'), 'listening');
  const { port } = listener.address() as AddressInfo;
  const { promise, resolve } = Promise.withResolvers<string>();
  listener.on('secureConnection', (socket) => {
    const { CN } = socket.getPeerCertificate().subject;
    resolve(Array.isArray(CN) ? CN.join() : (CN ?? ''));
    socket.end();
  });
  listener.on('tlsClientError', (error) => resolve(`server: ${error.message}`));
  const socket = connect({ ...material(client, clientCa), port, host: '127.0.0.1', servername: server.name });
  socket.on('error', (error) => resolve(`client: ${error.message}`));
  socket.resume();
  try {
    return await promise;
  } finally {
    socket.destroy();
    listener.close();
  }
}

describe('certificates of a lab', () => {
  test('names that make no sense, and a CA that would end first, are refused', async () => {
    await using dir = await folder();
    for (const names of [['a b'], ['../a'], ['ca'], ['a', 'a'], ['']]) {
      await assert.rejects(make(dir.path, names), { code: 'MILLRACE_ERR_USAGE' });
    }
    await assert.rejects(make(dir.path, ['a'], { days: 61 }), { message: /give --days 60 or less/ });
    assert.deepEqual(readdirSync(dir.path), []);
  });

  test('nothing is left when openssl fails', async () => {
    await using dir = await folder();
    await assert.rejects(make(dir.path, ['a'], { openssl: '/bin/false' }), { code: 'MILLRACE_ERR_FAILED' });
    await assert.rejects(make(dir.path, ['a'], { signal: AbortSignal.abort() }), { name: 'AbortError' });
    assert.deepEqual(readdirSync(dir.path), []);
  });

  test('are for one name, both directions, and the keys are for nobody else', async () => {
    await using dir = await folder();
    const { ca, isCaNew, nodes } = await make(dir.path, ['a', 'b.c']);
    assert.equal(isCaNew, true);
    assert.deepEqual(readdirSync(dir.path).sort(), ['a.key', 'a.pem', 'b.c.key', 'b.c.pem', 'ca.key', 'ca.pem']);
    for (const { name, cert, key } of nodes) {
      const certificate = new X509Certificate(readFileSync(cert));
      assert.equal(certificate.subject, `CN=${name}`);
      assert.equal(certificate.subjectAltName, `DNS:${name}`);
      assert.deepEqual(certificate.keyUsage, ['1.3.6.1.5.5.7.3.1', '1.3.6.1.5.5.7.3.2']);
      assert.equal(certificate.publicKey.asymmetricKeyDetails?.namedCurve, 'prime256v1');
      assert.ok(certificate.verify(new X509Certificate(readFileSync(ca)).publicKey));
      assert.equal(certificate.ca, false);
      assert.equal(statSync(key).mode & 0o777, 0o600);
    }
    assert.equal(statSync(join(dir.path, 'ca.key')).mode & 0o777, 0o600);
  });

  test('are never overwritten unless told so, and the CA is kept', async () => {
    await using dir = await folder();
    const { ca } = await make(dir.path, ['a']);
    const [caBefore, before] = [readFileSync(ca, 'utf8'), readFileSync(join(dir.path, 'a.pem'), 'utf8')];
    await assert.rejects(make(dir.path, ['b', 'a']), {
      message: /a\.pem, \S+a\.key would be overwritten; give --force/,
    });
    assert.deepEqual(readdirSync(dir.path).sort(), ['a.key', 'a.pem', 'ca.key', 'ca.pem']);
    const { isCaNew } = await make(dir.path, ['b', 'a'], { force: true });
    assert.equal(isCaNew, false);
    assert.equal(readFileSync(ca, 'utf8'), caBefore);
    assert.notEqual(readFileSync(join(dir.path, 'a.pem'), 'utf8'), before);
  });

  test('half a CA, a foreign key and one that ends too soon are refused', async () => {
    await using dir = await folder();
    await using other = await folder();
    await make(other.path, ['x']);
    await make(dir.path, ['a']);
    await assert.rejects(make(dir.path, ['b'], { days: 61 }), { message: /ends in (59|60) days; give --days/ });
    writeFileSync(join(dir.path, 'ca.key'), readFileSync(join(other.path, 'ca.key')));
    await assert.rejects(make(dir.path, ['b']), { message: /is not the key of/ });
    writeFileSync(join(dir.path, 'ca.key'), '');
    await assert.rejects(make(dir.path, ['b']), { code: 'MILLRACE_ERR_USAGE', message: /remove both/ });
  });

  test('make a mutual TLS connection, and those of another CA do not', async () => {
    await using dir = await folder();
    await using other = await folder();
    const { ca, nodes } = await make(dir.path, ['a', 'b']);
    const { ca: foreignCa, nodes: foreign } = await make(other.path, ['a', 'b']);
    const [a, b] = nodes;
    const [, foreignB] = foreign;
    assert.ok(a !== undefined && b !== undefined && foreignB !== undefined);
    assert.equal(await meet(ca, a, b), 'b');
    assert.equal(await meet(ca, b, a), 'a');
    // The foreign client trusts the server, but not the other way round; then neither does.
    assert.match(await meet(ca, a, foreignB), /^(client|server): /);
    assert.match(await meet(ca, a, foreignB, foreignCa), /^(client|server): /);
  });
});
