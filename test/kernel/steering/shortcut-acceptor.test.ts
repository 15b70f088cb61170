// Tests of `connect` with `redirect` where the daemon is in a cgroup of its own.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { RunningProgram } from '../../../workbench/worlds/running-program.ts';
import { ShortcutWorld } from './shortcut/shortcut-world.ts';

const skip = process.getuid?.() !== 0 ? 'needs root' : false;

describe('a daemon in a cgroup that is not steered', { skip }, () => {
  test('takes part in the shortcut where it accepts', async () => {
    await using world = await ShortcutWorld.create('pass');
    const { plain, short } = world;
    const file = join(import.meta.dirname, 'shortcut/echo-daemon.ts');
    const words = [file, short.cgroup, `${world.steering.instance}-echo`, short.ipv4, '10.99.99.99:9999'];
    const enter = ['-c', `echo 0 > ${plain.cgroup}/cgroup.procs && exec "$@"`, 'sh', process.execPath, ...words];
    await using daemon = RunningProgram.start(short, 'sh', enter);
    await daemon.line(/^ready$/);
    const ask = `require('net').connect(9999, '10.99.99.99').end('hello').on('data', (data) => console.log(String(data)))`;
    const { stdout } = await short.run(process.execPath, ['-e', ask], { signal: AbortSignal.timeout(10_000) });
    assert.equal(stdout.trim(), 'hello');
    daemon.signal('SIGTERM');
    assert.deepEqual(JSON.parse(await daemon.line(/redirected/)), { redirected: 2, byTcp: 0 });
    await daemon.exit();
  });
});
