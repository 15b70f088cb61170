import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { connection } from '../telemetry/fixtures/fake-status.ts';
import { runCaptured } from './fixtures/captured-world.ts';
import { fakeDaemon } from './fixtures/daemon.ts';

describe('millrace conn', () => {
  test('without a daemon is one line that says how to start one', async () => {
    const env = { MILLRACE_RUN_DIR: '/does/not/exist' };
    for (const command of ['conn', 'peer', 'top']) {
      const outcome = await runCaptured([command], { env });
      const stderr = "millrace: no daemon answers on /does/not/exist/millrace.sock (start one with 'millrace up')\n";
      assert.deepEqual(outcome, { code: 3, stdout: '', stderr });
    }
  });

  test('nonsense is one line and a usage error', async () => {
    await using daemon = await fakeDaemon();
    for (const [args, message] of [
      [['--mode', 'fast'], /Allowed choices are carried, direct, shortcut, plain/],
      [['--peer', 'bb'], /there is no peer bb \(there is b\)/],
      [['--instance', '../x'], /invalid instance name "\.\.\/x"/],
      [['--instance', 'x', '--socket', 'y'], /cannot be used with/],
      [['a', 'b'], /too many arguments/],
    ] as const) {
      const { code, stdout, stderr } = await daemon.run(['conn', ...args]);
      assert.deepEqual([code, stdout], [2, ''], stderr);
      assert.match(stderr, message);
    }
  });

  test('shows each connection, how it travels, and why it is not carried', async () => {
    await using daemon = await fakeDaemon();
    const { code, stdout, stderr } = await daemon.run(['conn']);
    assert.deepEqual([code, stderr], [0, '']);
    const lines = stdout.trimEnd().split('\n');
    assert.match(lines[0] ?? '', /^Mode +State +Local +Remote +Peer +Wire +In +Out +Held +Process +Container +Reason$/);
    assert.match(
      lines[1] ?? '',
      /^carried +open +10\.0\.0\.1:40000 +10\.0\.0\.2:6379 +b +shm +3\.3 MiB +2\.0 KiB +0 +redis-cli\(4711\) +-$/,
    );
    assert.match(lines[3] ?? '', /^plain +open .* 192\.0\.2\.1:80 +- +- +- +- +- .*no rule is about it$/);
    assert.equal(lines.length, 4);
  });

  test('shows direct connections, and `-` for what nobody counts', async () => {
    const direct = { mode: 'direct', heldBytes: null } as const;
    const within = { ...direct, peer: '', wire: '', bytesIn: null, bytesOut: null };
    await using daemon = await fakeDaemon({ connections: async () => [connection(direct), connection(within)] });
    const { stdout } = await daemon.run(['conn']);
    const [, mirrored = '', local = ''] = stdout.split('\n');
    assert.match(
      mirrored,
      /^direct +open +10\.0\.0\.1:40000 +10\.0\.0\.2:6379 +b +shm +3\.3 MiB +2\.0 KiB +- +redis-cli/,
    );
    assert.match(local, /^direct +open +10\.0\.0\.1:40000 +10\.0\.0\.2:6379 +- +- +- +- +- +redis-cli\(4711\) +-$/);
  });

  test('shows those that are asked for', async () => {
    await using daemon = await fakeDaemon();
    const shown = async (...args: string[]): Promise<number[]> => {
      const { stdout } = await daemon.run(['conn', '--json', ...args]);
      const { v, connections } = JSON.parse(stdout);
      assert.equal(v, 1);
      return connections.map(({ local }: { local: string }) => Number(local.slice(-1)));
    };
    assert.deepEqual(await shown(), [0, 1, 2]);
    assert.deepEqual(await shown('--mode', 'plain'), [2]);
    assert.deepEqual(await shown('--peer', 'b'), [0]);
    assert.deepEqual(await shown(':6379'), [0, 1]);
    assert.deepEqual(await shown('curl'), [1]);
    assert.deepEqual(await shown('4712'), [1]);
    assert.deepEqual(await shown('471'), []);
    assert.deepEqual(await shown('--socket', daemon.socketPath, ':40002'), [2]);
  });

  test('says that there are none', async () => {
    await using daemon = await fakeDaemon({ connections: async () => [] });
    assert.deepEqual(await daemon.run(['conn']), { code: 0, stdout: '', stderr: 'no connections\n' });
    await using busy = await fakeDaemon();
    const { stderr } = await busy.run(['conn', 'nginx']);
    assert.equal(stderr, 'none of 3 connections matches nginx\n');
  });

  test('lets no program play with the terminal by its name', async () => {
    const command = 'x\u001b[2J\ny';
    await using daemon = await fakeDaemon({ connections: async () => [connection({ command })] });
    const { stdout } = await daemon.run(['conn']);
    assert.match(stdout, / x\\x0ay\(4711\) +-\n$/);
  });
});
