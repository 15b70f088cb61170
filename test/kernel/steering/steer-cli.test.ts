// `millrace steer` as a user meets it: in-process, on the cgroup of a lab host.

import assert from 'node:assert/strict';
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { exitCode } from '../../../src/cli/exit-code.ts';
import { type Outcome, runCaptured } from '../../../src/cli/fixtures/captured-world.ts';
import { type Host, Lab } from '../../../src/lab/index.ts';
import { removeInstance } from '../../../src/steering/index.ts';
import { command } from '../../../workbench/worlds/daemon-process.ts';
import { RunningProgram } from '../../../workbench/worlds/running-program.ts';
import { temporaryFolder } from '../../../workbench/worlds/temporary-folder.ts';

const instance = `steer-cli-${process.pid}`;
const folder = `/sys/fs/bpf/millrace/${instance}`;

async function steer(...args: readonly string[]): Promise<Outcome> {
  return runCaptured(['steer', ...args], { env: { PATH: process.env.PATH } });
}

/** A connect that need not succeed. Returns the pid that made it. */
async function connectFrom(host: Host, address: string, port: number): Promise<number> {
  const child = host.spawn('bash', ['-c', `exec 3<>/dev/tcp/${address}/${port}`], { stdio: 'ignore' });
  await new Promise((resolve) => child.once('exit', resolve));
  return child.pid ?? 0;
}

describe('millrace steer', () => {
  let lab: Lab;
  let a: Host;
  before(async () => {
    lab = await Lab.create({ hosts: 2 });
    a = lab.host('a');
  });
  after(async () => {
    removeInstance(instance);
    await lab[Symbol.asyncDispose]();
  });

  test('wrong use is told in one line, and leaves nothing attached', async () => {
    for (const [args, code, reason] of [
      [['up', '--instance', instance], exitCode.usage, /no rules/],
      [['up', '--instance', instance, '--rule', 'conect'], exitCode.usage, /did you mean connect/],
      [
        ['up', '--instance', instance, '--rules', '/no/such/file'],
        exitCode.usage,
        /read rules from \/no\/such\/file: ENOENT/,
      ],
      [
        ['up', '--instance', instance, '--rule', 'connect', '--cgroup', '/no/such'],
        exitCode.usage,
        /there is no cgroup/,
      ],
      [
        ['up', '--instance', 'Not.A.Name', '--rule', 'connect', '--cgroup', '/'],
        exitCode.usage,
        /invalid instance name/,
      ],
      [['down', instance], exitCode.notRunning, /there is no steering called/],
      [['show', instance], exitCode.notRunning, /there is no steering called/],
      [['explain', '--instance', instance, '1'], exitCode.notRunning, /there is no steering called/],
      [['explain', 'x->y'], exitCode.usage, /no address and port/],
      [['explain', 'nonsense'], exitCode.usage, /neither a process id nor two ends/],
    ] as const) {
      const outcome = await steer(...args);
      assert.equal(outcome.code, code, args.join(' '));
      assert.match(outcome.stderr, reason);
      assert.equal(
        outcome.stderr
          .trim()
          .split('\n')
          .filter((line) => line.startsWith('millrace:')).length,
        1,
      );
      assert.ok(!existsSync(folder));
    }
  });

  test('rules stay in the kernel, are shown, and every verdict is explained', async () => {
    const rules = ['pass to any:22', 'connect to any:60', 'shortcut to any:90'];
    const up = await steer(
      'up',
      '--instance',
      instance,
      '--cgroup',
      a.cgroup,
      ...rules.flatMap((rule) => ['--rule', rule]),
    );
    assert.equal(up.code, exitCode.ok, up.stderr);

    const b = lab.host('b').ipv4;
    const pids = new Map<number, string>();
    for (const [port, decided] of [
      [22, '=> does the rule want it carried? no: pass'],
      [60, '=> was a lane of a daemon alive? no'],
      [90, '=> is it for the shortcut? yes'],
      [5, '=> which rule is the first that matches? none of 3'],
    ] as const) {
      pids.set(await connectFrom(a, b, port), decided);
    }
    const shown = await steer('show', instance, '--json');
    const [described] = JSON.parse(shown.stdout).instances;
    assert.deepEqual(described.rules, rules);
    assert.deepEqual(
      [
        described.counters.denied,
        described.counters.daemonDown,
        described.counters.shortcut,
        described.counters.noRule,
      ],
      [1, 1, 1, 1],
    );
    assert.match((await steer('show', instance)).stdout, /no daemon serves it/);

    for (const [pid, decided] of pids) {
      const explained = await steer('explain', '--instance', instance, String(pid));
      assert.equal(explained.code, exitCode.ok, explained.stderr);
      assert.ok(explained.stdout.includes(decided), explained.stdout);
    }
    const row = described.recent.find(({ destination }: { destination: string }) => destination === `${b}:60`);
    const byEnds = await steer('explain', '--instance', instance, '--json', `${row.source}->${row.destination}`);
    assert.equal(JSON.parse(byEnds.stdout).connections[0].verdict, 'daemonDown');

    assert.equal((await steer('down', instance)).code, exitCode.ok);
    assert.ok(!existsSync(folder));
  });

  test('without a name, the commands mean the instance of the daemon that runs', async () => {
    using files = temporaryFolder('steer');
    const config = join(files.path, 'daemon.yaml');
    // Its instance has the default name.
    const settings = {
      node: 'a',
      cgroup: a.cgroup,
      listen: { addresses: [a.ipv4] },
      rules: ['connect to any:60'],
      insecure: true,
      devices: ['soft-shm'],
      device: { runtimeDir: join(files.path, 'soft') },
      api: { socket: join(files.path, 'a.sock'), http: false },
    };
    writeFileSync(config, JSON.stringify(settings));
    // A BPF file system of its own: here it is the only daemon, whatever else runs on this machine.
    const apart = ['--mount', 'sh', '-c', 'mount -t bpf bpf /sys/fs/bpf && exec "$@"', 'sh'];
    await using daemon = RunningProgram.start(a, 'unshare', [...apart, command, 'up', '--config', config, '--json']);
    await daemon.line(/"event":"ready"/);
    const within = ['--mount', '--target', String(daemon.pid), command, 'steer'];
    const steerThere = (...args: readonly string[]): ReturnType<Host['run']> => a.run('nsenter', [...within, ...args]);

    const pid = await connectFrom(a, lab.host('b').ipv4, 60);
    const explained = await steerThere('explain', String(pid));
    assert.equal(explained.code, exitCode.ok, explained.stderr);
    assert.match(explained.stdout, /number 1: connect to any:60/);
    const again = await steerThere('up', '--cgroup', a.cgroup, '--rule', 'pass');
    assert.equal(again.code, exitCode.usage, again.stderr);
    assert.match(again.stderr, new RegExp(`a daemon \\(pid ${daemon.pid}\\) serves the instance millrace`));

    const idle = lab.host('b').cgroup;
    assert.equal((await steerThere('up', '--instance', 'idle', '--cgroup', idle, '--rule', 'pass')).code, exitCode.ok);
    assert.equal((await steerThere('explain', String(pid))).code, exitCode.ok);
    assert.match((await steerThere('down')).stderr, /steering idle is gone/);
    const refused = await steerThere('down');
    assert.equal(refused.code, exitCode.notRunning);
    assert.match(refused.stderr, /a daemon serves millrace; stop the daemon/);
    daemon.signal('SIGTERM');
    await daemon.exit();
  });
});
