// Tests of labs on a real kernel: the network, the programs in it, and their end.

import assert from 'node:assert/strict';
import type { ChildProcess } from 'node:child_process';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  watch,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { before, type TestContext, test } from 'node:test';
import { MillraceError, UnsupportedError, UsageError } from '../../../src/errors.ts';
import { type Host, Lab, processCount } from '../../../src/lab/index.ts';
import { findCgroup2Mount } from '../../../src/system/cgroup.ts';
import { labIds, recordFiles, remainsOf, sweepDeadTests, temporaryRunDir } from '../../../workbench/worlds/lab-runs.ts';

const peer = join(import.meta.dirname, 'peer.ts');
const creator = join(import.meta.dirname, 'lab-creator.ts');

interface Answer {
  readonly answer: string;
  readonly connectMs: number;
}

async function listen(host: Host): Promise<ChildProcess> {
  const server = host.spawn(process.execPath, [peer, 'listen'], { stdio: ['ignore', 'pipe', 'inherit'] });
  assert.ok(server.stdout);
  await once(server.stdout, 'data');
  return server;
}

async function talk(from: Host, address: string): Promise<Answer> {
  const { code, stdout, stderr } = await from.run(process.execPath, [peer, 'connect', address]);
  assert.equal(code, 0, stderr);
  return JSON.parse(stdout) as Answer;
}

/** A program that no one reaps is a zombie until pid 1 looks; it runs no more. */
function runs(pid: number): boolean {
  try {
    return !/\) Z /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'));
  } catch {
    return false;
  }
}

before(sweepDeadTests);

test('wrong options are refused before anything is written', async () => {
  using dir = temporaryRunDir();
  await assert.rejects(Lab.create({ runDir: dir.path, hosts: ['a', 'a'] }), UsageError);
  await assert.rejects(Lab.create({ runDir: dir.path, signal: AbortSignal.abort() }), { name: 'AbortError' });
  assert.equal(existsSync(join(dir.path, 'lab')), false);
});

test('someone who is not root is told to become it', async () => {
  using dir = temporaryRunDir();
  for (const mode of [0o700, 0o777]) {
    chmodSync(dir.path, mode);
    const child = spawn(process.execPath, [creator, dir.path], {
      uid: 65_534,
      gid: 65_534,
      cwd: '/',
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const said = (await child.stdout.toArray()).join('');
    assert.match(said, /MILLRACE_ERR_PERMISSION: create a lab: .*needs root.*sudo/);
    assert.equal(said.trim().split('\n').length, 2);
  }
  assert.deepEqual(recordFiles(dir.path), []);
});

test('two hosts talk over IPv4 and IPv6 from the first packet on', async () => {
  using dir = temporaryRunDir();
  await using lab = await Lab.create({ runDir: dir.path });
  const [a, b] = [lab.host('a'), lab.host('b')];
  await listen(b);
  for (const address of [b.ipv4, b.ipv6]) {
    const { answer, connectMs } = await talk(a, address);
    assert.equal(answer, 'hello');
    // A lost first packet would be sent again after a second.
    assert.ok(connectMs < 900, `connected to ${address} after ${connectMs} ms`);
  }
});

test('nothing of a lab shows up in the machine’s own namespace', async () => {
  using dir = temporaryRunDir();
  const links = (): ReadonlySet<string> => new Set(readFileSync('/proc/self/net/dev', 'utf8').match(/[\w.-]+(?=:)/g));
  const earlier = links();
  await using lab = await Lab.create({ runDir: dir.path, hosts: 3 });
  assert.equal(lab.hosts.length, 3);
  assert.deepEqual(
    [...links().difference(earlier)].filter((name) => /^(eth0|br0|port\d+)$/.test(name)),
    [],
  );
});

test('three hosts all reach each other through the switch', async () => {
  using dir = temporaryRunDir();
  await using lab = await Lab.create({ runDir: dir.path, hosts: ['left', 'middle', 'switch'] });
  await Promise.all(lab.hosts.map(listen));
  for (const from of lab.hosts) {
    for (const to of lab.hosts.filter((host) => host !== from)) {
      for (const address of [to.ipv4, to.ipv6]) {
        const { answer, connectMs } = await talk(from, address);
        assert.equal(answer, 'hello');
        assert.ok(connectMs < 900, `${from.name} to ${address} after ${connectMs} ms`);
      }
    }
  }
});

for (const { mtu, hosts, fragments } of [
  { mtu: 1500, hosts: 2, fragments: 3 },
  { mtu: 9000, hosts: 2, fragments: 0 },
  { mtu: 9000, hosts: 3, fragments: 0 },
  { mtu: 1280, hosts: 3, fragments: 4 },
]) {
  test(`an mtu of ${mtu} cuts 4000 bytes into ${fragments} fragments among ${hosts} hosts`, async () => {
    using dir = temporaryRunDir();
    await using lab = await Lab.create({ runDir: dir.path, mtu, hosts });
    const script = `
      const counter = () => { const rows = require('node:fs').readFileSync('/proc/self/net/snmp', 'utf8').split('\\n').filter((row) => row.startsWith('Ip:')).map((row) => row.split(' ')); return rows[1][rows[0].indexOf('FragCreates')]; };
      const socket = require('node:dgram').createSocket('udp4');
      socket.send(Buffer.alloc(4000), 7000, process.argv[1], () => { console.log(counter()); socket.close(); });`;
    const { stdout, stderr } = await lab.host('a').run(process.execPath, ['-e', script, lab.host('b').ipv4]);
    assert.equal(Number(stdout), fragments, stderr);
  });
}

test('delay holds packets back, or the kernel’s lack of it is told and nothing is left', async (t: TestContext) => {
  using dir = temporaryRunDir();
  try {
    await using lab = await Lab.create({ runDir: dir.path, delayMs: 40, lossPercent: 0.001 });
    await listen(lab.host('b'));
    const { connectMs } = await talk(lab.host('a'), lab.host('b').ipv4);
    assert.ok(connectMs >= 80, `${connectMs} ms`);
  } catch (error) {
    if (!(error instanceof UnsupportedError)) throw error;
    assert.match(error.message, /no netem \(CONFIG_NET_SCH_NETEM\)/);
    t.diagnostic(error.message);
  }
  assert.deepEqual(recordFiles(dir.path), []);
});

test('a program runs in its host’s namespace and cgroup, as itself', async () => {
  using dir = temporaryRunDir();
  await using lab = await Lab.create({ runDir: dir.path });
  const host = lab.host('b');
  const child = host.spawn('cat', ['/proc/self/cgroup', '-'], { stdio: ['pipe', 'pipe', 'inherit'] });
  assert.ok(child.stdout && child.stdin);
  const [text] = (await once(child.stdout, 'data')) as [Buffer];
  const relative = host.cgroup.slice((findCgroup2Mount() ?? '').length);
  assert.ok(text.toString().includes(`0::${relative}\n`), text.toString());
  assert.match(readlinkSync(`/proc/${child.pid}/exe`), /\/cat$/);
  assert.equal(readlinkSync(`/proc/${child.pid}/ns/net`), `net:[${statSync(host.namespaceFile).ino}]`);
  assert.equal(processCount(host.cgroup), 1);
  child.kill('SIGTERM');
  assert.deepEqual(await once(child, 'exit'), [null, 'SIGTERM']);
});

test('words reach the program as they are, and status, output and input come through', async () => {
  using dir = temporaryRunDir();
  await using lab = await Lab.create({ runDir: dir.path });
  const words = ['$HOME', '`id`', '"; exit 7', "it's", '', '--', '-n', 'a\nb', '*'];
  const script = 'process.stdout.write(JSON.stringify(process.argv.slice(1)))';
  const echoed = await lab.host('a').run(process.execPath, ['-e', script, '--', ...words]);
  assert.deepEqual(JSON.parse(echoed.stdout), words);
  const result = await lab
    .host('a')
    .run('sh', ['-c', 'cat; echo no >&2; exit 9'], { input: 'in', env: { PATH: '/usr/bin:/bin' } });
  assert.deepEqual(result, { code: 9, signal: null, stdout: 'in', stderr: 'no\n' });
});

test('a missing program, directory or host is told clearly', async () => {
  using dir = temporaryRunDir();
  await using lab = await Lab.create({ runDir: dir.path });
  const a = lab.host('a');
  assert.throws(() => a.spawn('no-such-program'), {
    message: 'run no-such-program in host a: no such program in PATH',
  });
  assert.throws(() => a.spawn('/etc/passwd'), { message: 'run /etc/passwd in host a: no executable file there' });
  assert.throws(() => a.spawn('true', [], { cwd: '/nonexistent' }), /working directory \/nonexistent does not exist/);
  await assert.rejects(a.run('no-such-program'), UsageError);
  assert.throws(() => lab.host('c'), /no host "c" in this lab/);
});

test('an aborted run kills the program', async () => {
  using dir = temporaryRunDir();
  await using lab = await Lab.create({ runDir: dir.path });
  const stop = new AbortController();
  const ended = lab.host('a').run('sh', ['-c', 'trap "" TERM; while :; do :; done'], { signal: stop.signal });
  stop.abort();
  await assert.rejects(ended, { name: 'AbortError' });
  assert.equal(processCount(lab.host('a').cgroup), 0);
});

test('close ends daemons and nested cgroups too, may be called twice, and leaves nothing', async () => {
  using dir = temporaryRunDir();
  const lab = await Lab.create({ runDir: dir.path, hosts: 3 });
  const host = lab.host('a');
  const script =
    '(setsid sh -c "trap \\"\\" TERM HUP; sleep 1000 & echo \\$!; wait" & echo $!) 2>/dev/null | head -n 2; exit 0';
  const { stdout } = await host.run('sh', ['-c', script]);
  const pids = stdout.trim().split('\n').map(Number);
  assert.equal(pids.length, 2);
  assert.ok(pids.every(runs), stdout);
  mkdirSync(join(host.cgroup, 'nested/deeper'), { recursive: true });
  const nested = host.spawn('sleep', ['1000'], { stdio: 'ignore' });
  writeFileSync(join(host.cgroup, 'nested/deeper/cgroup.procs'), String(nested.pid));
  const nestedExit = once(nested, 'exit');
  await Promise.all([lab.close(), lab.close()]);
  await lab.close();
  assert.deepEqual(await nestedExit, [null, 'SIGKILL']);
  assert.deepEqual(pids.filter(runs), []);
  assert.deepEqual(remainsOf(lab.id), []);
  assert.deepEqual(recordFiles(dir.path), []);
  assert.throws(() => lab.host('a'), { code: 'MILLRACE_ERR_CLOSED' });
  assert.throws(() => host.spawn('true'), { code: 'MILLRACE_ERR_NOT_RUNNING' });
});

test('a creation that fails half-way leaves nothing', async () => {
  using dir = temporaryRunDir();
  const tools = mkdtempSync(join(tmpdir(), 'millrace-tools-'));
  const path = process.env.PATH;
  // Makes the namespaces, then refuses to configure host b.
  writeFileSync(
    join(tools, 'ip'),
    '#!/bin/sh\ncase "$*" in *-b*-batch*) echo "made to fail" >&2; exit 1;; esac\nexec /usr/sbin/ip "$@"\n',
    { mode: 0o755 },
  );
  process.env.PATH = `${tools}:${path}`;
  try {
    let id = '';
    mkdirSync(join(dir.path, 'lab'));
    const watcher = watch(join(dir.path, 'lab'), (_event, name) => {
      if (name?.endsWith('.json') === true) id = name.slice(0, 8);
    });
    const isClear = (error: unknown): boolean => error instanceof MillraceError && /made to fail/.test(error.message);
    await assert.rejects(Lab.create({ runDir: dir.path, hosts: 4 }), isClear);
    watcher.close();
    assert.match(id, /^[0-9a-f]{8}$/);
    assert.deepEqual(remainsOf(id), []);
    assert.deepEqual(recordFiles(dir.path), []);
  } finally {
    process.env.PATH = path;
    rmSync(tools, { recursive: true });
  }
});

test('an aborted creation leaves nothing', async () => {
  using dir = temporaryRunDir();
  mkdirSync(join(dir.path, 'lab'));
  const stop = new AbortController();
  const ids = new Set<string>();
  const watcher = watch(join(dir.path, 'lab'), () => {
    for (const id of labIds(dir.path)) ids.add(id);
    if (ids.size > 0) stop.abort(new Error('enough'));
  });
  await assert.rejects(Lab.create({ runDir: dir.path, hosts: 20, signal: stop.signal }), /enough/);
  watcher.close();
  assert.equal(ids.size, 1);
  assert.deepEqual([...ids].flatMap(remainsOf), []);
  assert.deepEqual(recordFiles(dir.path), []);
});

test('a name is taken until its lab is down', async () => {
  using dir = temporaryRunDir();
  const first = await Lab.create({ runDir: dir.path, name: 'demo' });
  await assert.rejects(Lab.create({ runDir: dir.path, name: 'demo' }), /lab demo exists already/);
  assert.deepEqual(labIds(dir.path), [first.id]);
  await first.close();
  await using second = await Lab.create({ runDir: dir.path, name: 'demo' });
  assert.equal(second.name, 'demo');
});

test('several labs at once do not disturb each other, although their addresses are the same', async () => {
  using dir = temporaryRunDir();
  const labs = await Promise.all([2, 3, 2].map((hosts) => Lab.create({ runDir: dir.path, hosts })));
  try {
    await Promise.all(labs.map((lab) => listen(lab.host('b'))));
    const answers = await Promise.all(labs.map((lab) => talk(lab.host('a'), lab.host('b').ipv6)));
    assert.deepEqual(
      answers.map(({ answer }) => answer),
      ['hello', 'hello', 'hello'],
    );
  } finally {
    await Promise.all(labs.map((lab) => lab.close()));
  }
  assert.deepEqual(
    labs.flatMap(({ id }) => remainsOf(id)),
    [],
  );
});
