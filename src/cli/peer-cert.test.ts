import assert from 'node:assert/strict';
import { mkdtempDisposable } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { text } from 'node:stream/consumers';
import { describe, test } from 'node:test';
import { Command, CommanderError } from 'commander';
import { parseAllDocuments } from 'yaml';
import { addPeerCert } from './peer-cert.ts';

interface Outcome {
  readonly error: unknown;
  readonly stdout: string;
  readonly stderr: string;
}

async function peerCert(args: readonly string[], path = process.env.PATH): Promise<Outcome> {
  const [stdout, stderr] = [new PassThrough(), new PassThrough()];
  const said = Promise.all([text(stdout), text(stderr)]);
  const peer = new Command('peer').exitOverride().configureOutput({ writeErr: (line) => void stderr.write(line) });
  const world = {
    stdin: new PassThrough(),
    stdout,
    stderr,
    env: { PATH: path },
    signal: new AbortController().signal,
    nowMs: () => performance.now(),
  };
  addPeerCert(peer, { world, finish: async (action) => assert.equal(await action(), 0) });
  let error: unknown;
  try {
    await peer.parseAsync(['cert', ...args], { from: 'user' });
  } catch (thrown) {
    error = thrown;
  }
  stdout.end();
  stderr.end();
  const [out, err] = await said;
  return { error, stdout: out, stderr: err };
}

describe('millrace peer cert', () => {
  test('wrong use is refused', async () => {
    for (const args of [[], ['a'], ['a', '--dir', 'x', '--days', '0'], ['a', '--dir', 'x', '--ca-days', 'many']]) {
      const { error, stdout } = await peerCert(args);
      assert.ok(error instanceof CommanderError, args.join(' '));
      assert.equal(stdout, '');
    }
  });

  test('without openssl it says how to get it', async () => {
    const { error } = await peerCert(['a', '--dir', '/tmp/never'], '/nonexistent');
    assert.match(String(error), /openssl is not installed; try: apt-get install openssl/);
  });

  test('prints what goes into the config of each node', async () => {
    await using dir = await mkdtempDisposable(join(tmpdir(), 'millrace-cert-'));
    const { error, stdout, stderr } = await peerCert(['a', 'b', '--dir', dir.path, '--days', '2']);
    assert.equal(error, undefined);
    assert.match(stderr, /^made the CA .*ca\.pem; its key stays here/);
    const parts = stdout.split(/^(?=# )/m);
    assert.deepEqual(
      parts.map((part) => parseAllDocuments(part).map((document) => document.toJS())),
      ['a', 'b'].map((name) => [
        {
          tls: {
            ca: join(dir.path, 'ca.pem'),
            cert: join(dir.path, `${name}.pem`),
            key: join(dir.path, `${name}.key`),
          },
        },
      ]),
    );
    const again = await peerCert(['a', '--dir', dir.path]);
    assert.match(String(again.error), /would be overwritten; give --force/);
    assert.match((await peerCert(['a', '--dir', dir.path, '--force'])).stderr, /^used the CA/);
  });
});
