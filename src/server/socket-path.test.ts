import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { UsageError } from '../errors.ts';
import { fakeSource, temporaryFolder } from './fixtures/fake-source.ts';
import { startServer } from './server.ts';
import { findSocket, socketPathOf } from './socket-path.ts';

describe('the path of a control socket', () => {
  test('comes from no instance that could leave the folder', () => {
    for (const instance of ['', '../x', 'a/b', '.hidden', 'a b', 'x'.repeat(65)]) {
      assert.throws(() => socketPathOf(instance, {}), UsageError, instance);
    }
  });

  test('is in /run/millrace unless the environment says otherwise', () => {
    assert.equal(socketPathOf('blue', {}), '/run/millrace/blue.sock');
    assert.equal(socketPathOf('blue', { MILLRACE_RUN_DIR: '/tmp/x' }), '/tmp/x/blue.sock');
  });

  test('is what the user says, and else the only daemon there is', async () => {
    using folder = temporaryFolder();
    const env = { MILLRACE_RUN_DIR: folder.path };
    const blue = join(folder.path, 'blue.sock');
    assert.equal(await findSocket({}, env), join(folder.path, 'millrace.sock'));
    await using server = await startServer({ source: fakeSource(), socketPath: blue });
    assert.equal(await findSocket({}, env), server.socketPath);
    assert.equal(await findSocket({ socket: '/x/y' }, env), '/x/y');
    assert.equal(await findSocket({ instance: 'red' }, env), join(folder.path, 'red.sock'));
  });

  test('must be said when several daemons run; dead ones do not count', async () => {
    using folder = temporaryFolder();
    const env = { MILLRACE_RUN_DIR: folder.path };
    const [blue, dead, red] = ['blue', 'dead', 'red'].map((name) => socketPathOf(name, env));
    const program = `require('net').createServer().listen(${JSON.stringify(dead)}, () => process.kill(process.pid, 'SIGKILL'))`;
    spawnSync(process.execPath, ['-e', program]);
    await using _blue = await startServer({ source: fakeSource(), socketPath: blue ?? '' });
    assert.equal(await findSocket({}, env), blue);
    await using _red = await startServer({ source: fakeSource(), socketPath: red ?? '' });
    await assert.rejects(findSocket({}, env), /several daemons run here: blue, red; choose one with --instance/);
  });
});
