// Tests of `millrace lab`, most of them in-process with a world of their own.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { PassThrough, Readable } from 'node:stream';
import { before, test } from 'node:test';
import { exitCode } from '../../../src/cli/exit-code.ts';
import { type Outcome, runCaptured } from '../../../src/cli/fixtures/captured-world.ts';
import type { World } from '../../../src/cli/world.ts';
import { Lab } from '../../../src/lab/index.ts';
import { labIds, recordFiles, remainsOf, sweepDeadTests, temporaryRunDir } from '../../../workbench/worlds/lab-runs.ts';

async function millraceLab(runDir: string, args: readonly string[], overrides: Partial<World> = {}): Promise<Outcome> {
  return runCaptured(['lab', ...args], { env: { PATH: process.env.PATH, MILLRACE_RUN_DIR: runDir }, ...overrides });
}

/** A lab for one test, made and removed by the commands themselves. */
async function upLab(
  ...args: readonly string[]
): Promise<{ readonly runDir: string; readonly id: string } & AsyncDisposable> {
  const dir = temporaryRunDir();
  const { code, stdout, stderr } = await millraceLab(dir.path, ['up', '--json', ...args]);
  assert.equal(code, 0, stderr);
  const { id } = JSON.parse(stdout) as { id: string };
  return {
    runDir: dir.path,
    id,
    [Symbol.asyncDispose]: async () => {
      assert.equal((await millraceLab(dir.path, ['down', '--all'])).code, 0);
      assert.deepEqual(remainsOf(id), []);
      assert.deepEqual(recordFiles(dir.path), []);
      dir[Symbol.dispose]();
    },
  };
}

before(sweepDeadTests);

const wrongUse: readonly (readonly [readonly string[], RegExp])[] = [
  [[], /Usage: millrace lab/],
  [['upp'], /Did you mean up\?/],
  [['up', '--mtu', 'large'], /Give a number/],
  [['up', '--mtu', '100'], /mtu 100 is not a whole number from 1280 to 65535/],
  [['up', '-n', '1'], /1 hosts; a lab has 2 to 200/],
  [['up', '--hosts', 'a,a'], /two hosts are called a/],
  [['up', '--hosts', 'a,b', '-n', '2'], /cannot be used with/],
  [['up', '--name', 'No Name'], /lab name "No Name"/],
  [['down', 'x', '--all'], /contradict/],
  [['exec'], /missing required argument 'host'/],
  [['exec', 'a'], /missing required argument 'command'/],
];

for (const [args, message] of wrongUse) {
  test(`\`lab ${args.join(' ')}\` is wrong use`, async () => {
    using dir = temporaryRunDir();
    const { code, stdout, stderr } = await millraceLab(dir.path, args);
    assert.equal(code, exitCode.usage);
    assert.match(stderr, message);
    assert.equal(stdout, '');
    assert.deepEqual(recordFiles(dir.path), []);
  });
}

test('without a lab, down and exec say that none is up, show an empty list, and down --all has nothing to do', async () => {
  using dir = temporaryRunDir();
  for (const args of [
    ['down'],
    ['down', 'demo'],
    ['exec', 'a', '--', 'true'],
    ['exec', '--lab', 'demo', 'a', '--', 'true'],
  ]) {
    const { code, stderr } = await millraceLab(dir.path, args);
    assert.equal(code, exitCode.notRunning, args.join(' '));
    assert.match(stderr, /no lab/);
  }
  assert.deepEqual(JSON.parse((await millraceLab(dir.path, ['show', '--json'])).stdout), { labs: [], problems: [] });
  assert.deepEqual(await millraceLab(dir.path, ['show']), {
    code: 0,
    stdout: '',
    stderr: 'no lab is up; try: millrace lab up\n',
  });
  assert.deepEqual(await millraceLab(dir.path, ['down', '--all', '--json']), {
    code: 0,
    stdout: '{\n  "removed": []\n}\n',
    stderr: '',
  });
});

test('a lab goes up, is shown, runs programs and goes down', async () => {
  await using lab = await upLab('--name', 'demo', '--hosts', 'client,server', '--mtu', '9000');
  const shown = await millraceLab(lab.runDir, ['show']);
  assert.match(
    shown.stdout,
    /^LAB +STATE +HOST +IPV4 +IPV6 +MTU +PROCESSES +NAMESPACE\ndemo +persistent +client +10\.77\.0\.1 +fd77::1 +9000 +0 +mr-/,
  );
  const json = JSON.parse((await millraceLab(lab.runDir, ['show', '--json'])).stdout) as {
    labs: { hosts: { name: string; ipv6: string }[] }[];
  };
  assert.deepEqual(
    json.labs[0]?.hosts.map(({ name, ipv6 }) => `${name} ${ipv6}`),
    ['client fd77::1', 'server fd77::2'],
  );
  const address = await millraceLab(lab.runDir, [
    'exec',
    'server',
    '--',
    'ip',
    '-br',
    '-4',
    'addr',
    'show',
    'dev',
    'eth0',
  ]);
  assert.match(address.stdout, /UP +10\.77\.0\.2\/24/);
  const again = await millraceLab(lab.runDir, ['up', '--name', 'demo']);
  assert.equal(again.code, exitCode.usage);
  assert.match(again.stderr, /lab demo exists already/);
  const down = await millraceLab(lab.runDir, ['down', 'demo']);
  assert.deepEqual(down, { code: 0, stdout: '', stderr: 'lab demo is down\n' });
  assert.deepEqual(remainsOf(lab.id), []);
});

test('exec passes words, streams and the exit status through', async () => {
  await using lab = await upLab();
  const script = 'cat; echo "$1|$2" >&2; exit 42';
  const outcome = await millraceLab(lab.runDir, ['exec', 'a', '--', 'sh', '-c', script, 'sh', '--json', '$x y'], {
    stdin: Readable.from(['in']),
  });
  assert.deepEqual(outcome, { code: 42, stdout: 'in', stderr: '--json|$x y\n' });
  assert.equal((await millraceLab(lab.runDir, ['exec', '--lab', lab.id, 'a', 'sh', '-c', 'kill -9 $$'])).code, 137);
  const missing = await millraceLab(lab.runDir, ['exec', 'a', '--', 'no-such-program']);
  assert.equal(missing.code, 127);
  assert.match(missing.stderr, /run no-such-program in host a: no such program/);
});

test('exec hands a signal to the program and waits for its end', async () => {
  await using lab = await upLab();
  const stop = new AbortController();
  const stdout = new PassThrough();
  const pieces: string[] = [];
  stdout.on('data', (piece: Buffer) => {
    pieces.push(piece.toString());
    stop.abort(new DOMException('stopped by SIGHUP', 'AbortError'));
  });
  const script = 'trap "echo hung up; exit 7" HUP; echo ready; while :; do sleep 0.01; done';
  const { code } = await millraceLab(lab.runDir, ['exec', 'a', '--', 'sh', '-c', script], {
    stdout,
    signal: stop.signal,
  });
  assert.equal(code, 7);
  assert.equal(pieces.join(''), 'ready\nhung up\n');
});

test('the executable lends its own streams to the program and takes over its status', async () => {
  await using lab = await upLab();
  const executable = join(import.meta.dirname, '../../../millrace');
  const env = { ...process.env, MILLRACE_RUN_DIR: lab.runDir };
  const script = 'readlink /proc/self/fd/1; cat; exit 9';
  const child = spawn(executable, ['lab', 'exec', 'a', '--', 'sh', '-c', script], {
    env,
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const pipe = readlinkSync(`/proc/${child.pid}/fd/1`);
  child.stdin.end('in');
  const exit = once(child, 'exit');
  assert.equal((await child.stdout.toArray()).join(''), `${pipe}\nin`);
  assert.deepEqual(await exit, [9, null]);
});

test('wrong names of hosts and labs get a guess', async () => {
  await using lab = await upLab('--name', 'demo', '--hosts', 'client,server');
  const host = await millraceLab(lab.runDir, ['exec', 'sever', '--', 'true']);
  assert.deepEqual([host.code, /did you mean server\?/.test(host.stderr)], [exitCode.usage, true]);
  const name = await millraceLab(lab.runDir, ['down', 'dem']);
  assert.deepEqual([name.code, /did you mean demo\?/.test(name.stderr)], [exitCode.notRunning, true]);
});

test('down leaves labs of running programs alone, and so does --all', async () => {
  await using kept = await upLab();
  await using own = await Lab.create({ runDir: kept.runDir, name: 'own' });
  const down = await millraceLab(kept.runDir, ['down', 'own']);
  assert.equal(down.code, exitCode.usage);
  assert.match(down.stderr, new RegExp(`lab own belongs to the running process ${process.pid}`));
  assert.equal((await millraceLab(kept.runDir, ['down', '--all'])).code, 0);
  assert.deepEqual(labIds(kept.runDir), [own.id]);
  assert.equal(remainsOf(own.id).length, 3);
});

test('two labs make the choice the user’s', async () => {
  await using lab = await upLab('--name', 'one');
  assert.equal((await millraceLab(lab.runDir, ['up', '--name', 'two'])).code, 0);
  const outcome = await millraceLab(lab.runDir, ['exec', 'a', '--', 'true']);
  assert.equal(outcome.code, exitCode.usage);
  assert.match(outcome.stderr, /name one of: one, two/);
});

test('a corrupt record is told and left alone', async () => {
  using dir = temporaryRunDir();
  mkdirSync(join(dir.path, 'lab'));
  writeFileSync(join(dir.path, 'lab', 'aaaaaaaa.json'), '{');
  const { code, stderr } = await millraceLab(dir.path, ['down', '--all']);
  assert.equal(code, 0);
  assert.match(stderr, /not removed: .*aaaaaaaa\.json: /);
  assert.deepEqual(recordFiles(dir.path), ['aaaaaaaa.json']);
});

test('delay and loss work, or are told to be unsupported', async () => {
  using dir = temporaryRunDir();
  const { code, stderr } = await millraceLab(dir.path, ['up', '--delay', '1', '--loss', '0.5']);
  if (code !== 0) {
    assert.equal(code, exitCode.unsupported);
    assert.match(stderr, /^millrace: this kernel has no netem .*\n$/);
    assert.deepEqual(recordFiles(dir.path), []);
  }
  assert.equal((await millraceLab(dir.path, ['down', '--all'])).code, 0);
});

test('an aborted up leaves nothing', async () => {
  using dir = temporaryRunDir();
  const { code } = await millraceLab(dir.path, ['up'], { signal: AbortSignal.abort() });
  assert.equal(code, exitCode.interrupted);
  assert.deepEqual(recordFiles(dir.path), []);
});
