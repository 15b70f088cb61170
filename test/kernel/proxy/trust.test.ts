// Tests who may be a peer: certificates of one authority are asked for on both sides, and whoever
// has another is left to plain TCP.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { X509Certificate } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { promisify } from 'node:util';
import { requireTool } from '../../../src/lab/program.ts';
import { makeLabCertificates } from '../../../src/tls/lab-ca.ts';
import type { Settings } from '../../../workbench/worlds/daemon-process.ts';
import { eventually } from '../../../workbench/worlds/eventually.ts';
import { sweepDeadTests } from '../../../workbench/worlds/lab-runs.ts';
import { ProxyWorld } from '../../../workbench/worlds/proxy-world.ts';
import { RunningProgram } from '../../../workbench/worlds/running-program.ts';
import { temporaryFolder } from '../../../workbench/worlds/temporary-folder.ts';
import { BehavioursProgram } from '../steering/behaviours-program.ts';

const listenPort = 7300;
const holder = join(import.meta.dirname, '../steering/death/hold-connections.ts');

before(sweepDeadTests);
const folder = temporaryFolder('certificates');
after(() => folder[Symbol.dispose]());
const program = new BehavioursProgram();

/** An authority of that name, and certificates by it. */
async function certify(authority: string, names: readonly string[], force = false): Promise<void> {
  const openssl = requireTool('openssl', 'openssl');
  await makeLabCertificates({ openssl, folder: join(folder.path, authority), names, days: 1, caDays: 2, force });
}

/** A revocation list of the authority `right` with these names on it. */
async function revoke(file: string, names: readonly string[]): Promise<void> {
  const [openssl, dir] = [requireTool('openssl', 'openssl'), join(folder.path, 'right')];
  const serial = (name: string): string => new X509Certificate(readFileSync(join(dir, `${name}.pem`))).serialNumber;
  const [database, config] = [join(dir, 'index.txt'), join(dir, 'crl.cnf')];
  const line = (name: string): string => `R\t491231235959Z\t200101000000Z\t${serial(name)}\tunknown\t/CN=${name}\n`;
  writeFileSync(database, names.map(line).join(''));
  writeFileSync(config, `[ca]\ndefault_ca=lists\n[lists]\ndatabase=${database}\ndefault_md=sha256\n`);
  const by = ['-cert', join(dir, 'ca.pem'), '-keyfile', join(dir, 'ca.key'), '-crldays', '1'];
  await promisify(execFile)(openssl, ['ca', '-gencrl', '-config', config, ...by, '-out', file]);
}

/** Trusts the authority `right`, and shows a certificate. */
function tls(authority: string, name: string): Settings {
  const file = (of: string, end: string): string => join(folder.path, of, end);
  const [cert, key] = [file(authority, `${name}.pem`), file(authority, `${name}.key`)];
  return { insecure: false, tls: { ca: file('right', 'ca.pem'), cert, key } };
}

describe('peers with certificates', { concurrency: false }, () => {
  let world: ProxyWorld;
  let server: RunningProgram;
  before(async () => {
    await certify('right', ['a', 'b', 'c']);
    await certify('wrong', ['b']);
    world = await ProxyWorld.createIdle({ settings: (name) => tls('right', name) });
    server = await program.serve(world.b);
    await world.start('a');
  });
  after(() => world?.close());

  /** Whether it was carried; it must succeed in any case. */
  async function converse(): Promise<boolean> {
    const before = world.carried();
    const { client } = await program.observe('nonblocking', world.a, server, world.b.ipv6);
    assert.match(client, /answer 16 from listener 0$/);
    return world.carried() > before;
  }

  /** The serial number of the certificate that b's daemon shows to dialers. */
  async function shown(): Promise<string> {
    const { cert, key } = tls('right', 'a').tls as { cert: string; key: string };
    const words = ['s_client', '-connect', `${world.b.ipv4}:4790`, '-cert', cert, '-key', key];
    const { stdout } = await world.a.run('openssl', words, { input: '', signal: AbortSignal.timeout(10_000) });
    return new X509Certificate(stdout.slice(stdout.indexOf('-----BEGIN'))).serialNumber;
  }

  const impostors = [
    { who: 'of another authority', settings: () => tls('wrong', 'b') },
    { who: 'of another node', settings: () => tls('right', 'c') },
    { who: 'at all, for it speaks in the clear', settings: () => ({ insecure: true, tls: undefined }) },
  ];
  for (const { who, settings } of impostors) {
    test(`a peer without the right certificate, but one ${who}, is refused with a line, and plain TCP does its work`, async () => {
      const lines = world.running('a').log.length;
      await using b = await world.start('b', settings());
      await eventually('it is told', () =>
        world
          .running('a')
          .log.slice(lines)
          .some(({ level }) => level === 'error'),
      );
      assert.equal(await converse(), false);
      const { state, reason } = await world.running('a').peer();
      assert.notEqual(state, 'up');
      assert.notEqual(reason, '');
      const there = `[${world.b.ipv6}]:${listenPort}`;
      const found = (await world.running('a').connections()).filter(({ remote }) => remote === there);
      assert.equal(found.at(-1)?.mode, 'plain');
      await b.stop();
      assert.equal(b.exitCode, 0);
    });
  }

  test('peers with certificates of one authority carry, and say that it is secure', async () => {
    await world.start('b');
    await world.ready();
    await world.listening(listenPort);
    assert.equal(await converse(), true);
    for (const name of ['a', 'b'] as const) assert.equal((await world.running(name).peer()).isSecure, true);
  });

  test('a peer whose certificate is revoked loses its streams at the reload, and gets plain TCP from then on', async () => {
    const a = world.running('a');
    const crl = join(folder.path, 'right', 'crl.pem');
    const settings = world.settingsOf('a');
    const holding = { ...settings, tls: { ...(settings.tls as object), crl } };
    const reload = async (revoked: readonly string[]): Promise<void> => {
      await revoke(crl, revoked);
      a.configure(holding);
      a.signal('SIGHUP');
    };
    await reload([]);
    await a.logged(/reloaded: taken over: tls; believed to be a peer: .* that is not on tls\.crl$/);
    const words = [holder, world.b.ipv4, String(listenPort), '10', 'once'];
    await using held = RunningProgram.start(world.a, process.execPath, words);
    await held.line(/^held$/);
    await reload(['b']);
    const endings = JSON.parse(await held.line(/^\[/)) as { readonly code: string }[];
    assert.deepEqual(new Set(endings.map(({ code }) => code)), new Set(['ECONNRESET']));
    await a.logged(/ was refused: .*CERT_REVOKED \(it is on the revocation list tls\.crl\)$/);
    assert.equal(await converse(), false);
    assert.match((await a.peer()).reason, /CERT_REVOKED/);
    await reload([]);
    await world.ready();
    await world.listening(listenPort);
    assert.equal(await converse(), true);
  });

  test('a certificate that was renewed is shown after SIGHUP, and what is carried goes on', async () => {
    const b = world.running('b');
    const before = await shown();
    await certify('right', ['b'], true);
    assert.equal(await shown(), before);
    b.signal('SIGHUP');
    await b.logged(/reloaded: taken over: certificates$/);
    assert.equal(await shown(), new X509Certificate(readFileSync(join(folder.path, 'right', 'b.pem'))).serialNumber);
    assert.notEqual(await shown(), before);
    assert.equal(await converse(), true);
    await world.stop();
  });
});
