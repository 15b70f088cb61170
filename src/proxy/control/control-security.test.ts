import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { X509Certificate } from 'node:crypto';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { after, describe, test } from 'node:test';
import { connect } from 'node:tls';
import { eventually } from '../../../workbench/worlds/eventually.ts';
import { freePort } from '../../../workbench/worlds/free-port.ts';
import { isRevoked, splitCrls } from '../../tls/revocation.ts';
import { checkSecurity } from '../../tls/security.ts';
import type { ControlSecurity } from './control-spec.ts';
import { CertificateFolder } from './fixtures/certificates.ts';
import { insecure, Party, peer } from './fixtures/party.ts';
import { helloLine, RawPeer } from './fixtures/raw-peer.ts';

const folder = new CertificateFolder();
after(() => folder[Symbol.dispose]());
const authority = folder.makeAuthority();
const otherAuthority = folder.makeAuthority();
const ofA = folder.makeSecurity(authority, { commonName: 'a' });
const ofB = folder.makeSecurity(authority, { commonName: 'host', dnsName: 'b' });
const ofC = folder.makeSecurity(authority, { commonName: 'c' });

/** Starts a and b with these, and resolves when both have what to complain of, or are up. */
async function meet(
  securityA: ControlSecurity,
  securityB: ControlSecurity,
  look: (a: Party, b: Party) => Promise<void>,
): Promise<void> {
  const [portA, portB] = [await freePort(), await freePort()];
  await using b = await Party.start({ name: 'b', peers: [peer('a', portA)], port: portB, security: securityB });
  await using a = await Party.start({ name: 'a', peers: [peer('b', portB)], port: portA, security: securityA });
  await look(a, b);
}

describe('the security of the control connection', () => {
  test('a key that does not fit and texts that are no certificates are said at once', () => {
    assert.ok(ofA.kind === 'tls' && ofB.kind === 'tls');
    const wrong = [{ key: ofB.key }, { key: '' }, { cert: 'x' }, { ca: '' }, { ca: ' ' }];
    for (const part of wrong) {
      assert.throws(() => checkSecurity({ ...ofA, ...part }), {
        code: 'MILLRACE_ERR_USAGE',
        message: /cannot be used/,
      });
    }
    checkSecurity(ofA);
    checkSecurity(insecure);
  });

  test('certificates of the same authority with the right names, in CN or SAN, meet', async () => {
    await meet(ofA, ofB, async (a, b) => {
      await Promise.all([a.untilUp('b'), b.untilUp('a')]);
      assert.deepEqual([a.connectionTo('b')?.isSecure, b.connectionTo('a')?.isSecure], [true, true]);
      a.sendLink('b', 0, { over: 'TLS' });
      await eventually('b heard', () => b.news.at(-1) === 'a link 0 {"over":"TLS"}');
      assert.deepEqual([...a.errors, ...b.errors], []);
    });
  });

  const foreign = (commonName: string) => folder.makeSecurity(otherAuthority, { commonName }, authority);
  const expired = (commonName: string) => folder.makeSecurity(authority, { commonName, isExpired: true });
  const hungUp = /it hung up \(does it accept our certificate\?\)/;
  const refusals: readonly (readonly [string, ControlSecurity, ControlSecurity, RegExp, RegExp])[] = [
    ["a dialer's certificate of another authority", foreign('a'), ofB, /refused this daemon: /, /not accepted here/],
    ["a dialer's expired certificate", expired('a'), ofB, /refused.*CERT_HAS_EXPIRED/, /CERT_HAS_EXPIRED/],
    ["a dialer's certificate with another name", ofC, ofB, /of CN=c and not of a/, /of CN=c and not of a/],
    ['a name in other letters', folder.makeSecurity(authority, { commonName: 'A' }), ofB, /CN=A/, /CN=A and not of a/],
    ["a listener's certificate of another authority", ofA, foreign('b'), /cannot be dialed: .*not accepted/, hungUp],
    ["a listener's expired certificate", ofA, expired('b'), /cannot be dialed: .*CERT_HAS_EXPIRED/, hungUp],
    ["a listener's certificate with another name", ofA, ofC, /cannot be dialed: .*of CN=c and not of b/, hungUp],
    [
      'a dialer with TLS at an insecure port',
      ofA,
      insecure,
      /speaks plain TCP \(insecure\)/,
      /with TLS to a port without/,
    ],
    ['a dialer without TLS at a TLS port', insecure, ofB, /without TLS to a port with TLS/, /without TLS to a/],
  ];
  for (const [what, securityA, securityB, reasonA, reasonB] of refusals) {
    test(`${what} is refused, with the reason on the side that can mend it`, async () => {
      await meet(securityA, securityB, async (a, b) => {
        await a.untilError(reasonA);
        await b.untilError(reasonB);
        assert.deepEqual([a.news, b.news, a.stateOf('b')], [[], [], 'down']);
        assert.match(a.reasonOf('b'), /\w/);
      });
    });
  }

  test('a dialer without a certificate, junk that looks like TLS, and a second name are refused', async () => {
    await using b = await Party.start({ name: 'b', peers: [peer('a', 1), peer('aa', 1)], security: ofB });
    assert.ok(ofA.kind === 'tls');
    {
      using nobody = new RawPeer(b.port, { ...ofA, cert: '', key: '' }).say(helloLine('a'));
      assert.match(await nobody.untilRefused(), /no certificate/);
    }
    {
      using _junk = new RawPeer(b.port).say('\x16\x03\x01junk that is not a client hello');
      await b.untilError(/a connection from 127.0.0.1 was refused: no TLS came about: /);
    }
    {
      // The certificate is good, and of somebody else.
      using other = new RawPeer(b.port, ofA).say(helloLine('aa'));
      assert.match(await other.untilRefused(), /of CN=a and not of aa/);
    }
    assert.deepEqual(b.news, []);
  });

  test('a session that TLS resumes is not taken for a certificate', async () => {
    await using b = await Party.start({ name: 'b', peers: [peer('a', 1)], security: ofB });
    const sessions: Buffer[] = [];
    const call = (): Promise<string> =>
      new Promise((resolve) => {
        const { kind: _, ...pems } = foreign('a') as Extract<ControlSecurity, { kind: 'tls' }>;
        const [session] = sessions;
        const resumed = session === undefined ? {} : { session };
        const where = { host: '127.0.0.1', port: b.port, checkServerIdentity: () => undefined };
        const socket = connect({ ...where, ...pems, ...resumed });
        let heard = '';
        socket.on('session', (one) => void sessions.push(one));
        socket.on('error', () => {});
        socket.on('data', (bytes) => {
          heard += bytes.toString();
        });
        socket.on('close', () => resolve(heard));
        socket.write(helloLine('a'));
      });
    assert.match(await call(), /a certificate that is not accepted here/);
    assert.ok(sessions.length > 0, 'TLS offers to resume');
    assert.match(await call(), /"kind":"refused"/);
    assert.deepEqual(b.news, []);
  });

  /** What a side has that holds to these lists. */
  const withLists = (security: ControlSecurity, ...crls: readonly string[]): ControlSecurity =>
    security.kind === 'tls' ? { ...security, crls } : security;
  const nobody = folder.makeCrl(authority, []);

  test('a text that is no revocation list is said at once, and several lists in a file all count', () => {
    assert.throws(() => checkSecurity(withLists(ofA, 'x')), { code: 'MILLRACE_ERR_USAGE', message: /cannot be used/ });
    assert.throws(() => splitCrls('x'), /there is no revocation list/);
    const both = splitCrls(`before\n${nobody}between\n${folder.makeCrl(otherAuthority, [ofB])}after`);
    assert.equal(both.length, 2);
    checkSecurity(withLists(ofA, ...both));
    assert.ok(ofB.kind === 'tls');
    const certificate = new X509Certificate(ofB.cert);
    // The serial number is on a list, but on one of another authority.
    assert.equal(isRevoked(certificate, both), false);
    assert.equal(isRevoked(certificate, [...both, folder.makeCrl(authority, [ofC, ofB])]), true);
  });

  test('peers that are on no list meet, also with lists of other authorities', async () => {
    const others = folder.makeCrl(otherAuthority, [ofA, ofB]);
    await meet(withLists(ofA, nobody, others), withLists(ofB, nobody), async (a, b) => {
      await Promise.all([a.untilUp('b'), b.untilUp('a')]);
    });
  });

  const revokedA = folder.makeCrl(authority, [ofC, ofA]);
  const revokedB = folder.makeCrl(authority, [ofC, ofB]);
  const onList = /CERT_REVOKED \(it is on the revocation list tls\.crl\)/;
  const tooOld = /CRL_HAS_EXPIRED \(the revocation list tls\.crl is too old/;
  const byLists: readonly (readonly [string, ControlSecurity, ControlSecurity, RegExp, RegExp])[] = [
    ['a dialer that is revoked', ofA, withLists(ofB, revokedA), onList, onList],
    ['a listener that is revoked', withLists(ofA, revokedB), ofB, onList, hungUp],
    ['a dialer, while the list is too old,', ofA, withLists(ofB, folder.makeCrl(authority, [], -1)), tooOld, tooOld],
    [
      'a dialer, while there is no list of its authority,',
      ofA,
      withLists(ofB, folder.makeCrl(otherAuthority, [])),
      /UNABLE_TO_GET_CRL \(.*add that list/,
      /UNABLE_TO_GET_CRL/,
    ],
  ];
  for (const [what, securityA, securityB, reasonA, reasonB] of byLists) {
    test(`${what} is refused with the reason`, async () => {
      await meet(securityA, securityB, async (a, b) => {
        await a.untilError(reasonA);
        await b.untilError(reasonB);
        assert.deepEqual([a.news, b.news], [[], []]);
      });
    });
  }

  for (const [who, other] of [
    ['a', 'b'],
    ['b', 'a'],
  ] as const) {
    test(`a peer that is up is dropped at once by ${who} when its certificate is revoked`, async () => {
      await meet(ofA, ofB, async (a, b) => {
        await Promise.all([a.untilUp('b'), b.untilUp('a')]);
        const judge = who === 'a' ? a : b;
        const own = who === 'a' ? ofA : ofB;
        judge.plane.setSecurity(withLists(own, nobody));
        assert.equal(judge.stateOf(other), 'up');
        judge.plane.setSecurity(withLists(own, who === 'a' ? revokedB : revokedA));
        assert.equal(judge.stateOf(other), 'down');
        assert.match(judge.news.at(-1) ?? '', onList);
        await (who === 'a' ? b : a).untilError(/refused this daemon: .*CERT_REVOKED/);
        // With the list of before it is believed again.
        judge.plane.setSecurity(withLists(own, nobody));
        await judge.untilUp(other);
      });
    });
  }

  test('NODE_TLS_REJECT_UNAUTHORIZED=0 in the environment does not let an impostor in', async () => {
    const program = join(import.meta.dirname, 'fixtures/impostor.ts');
    const input = JSON.stringify({ victim: ofA, impostor: foreign('b') });
    const env = { ...process.env, NODE_TLS_REJECT_UNAUTHORIZED: '0', NODE_NO_WARNINGS: '1' };
    const child = spawn(process.execPath, [program], { env, stdio: ['pipe', 'pipe', 'inherit'] });
    child.stdin.end(input);
    const said = await text(child.stdout);
    assert.match(said, /^refused: its certificate or TLS is not accepted here: /);
  });

  test('new certificates count for new connections, and those that are up stay', async () => {
    await meet(foreign('a'), ofB, async (a, b) => {
      await a.untilError(/refused this daemon/);
      assert.throws(() => a.plane.setSecurity({ kind: 'tls', ca: 'x', cert: 'y', key: 'z' }), /cannot be used/);
      a.plane.setSecurity(ofA);
      await Promise.all([a.untilUp('b'), b.untilUp('a')]);
      b.plane.setSecurity(insecure);
      a.plane.setSecurity(insecure);
      assert.equal(b.connectionTo('a')?.isSecure, true);
      b.connectionTo('a')?.refuse('to begin anew');
      await eventually('b is up without TLS', () => b.stateOf('a') === 'up' && b.connectionTo('a')?.isSecure === false);
    });
  });
});
