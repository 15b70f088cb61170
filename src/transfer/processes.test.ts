import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { openSoftDevice } from '../providers/index.ts';
import { nodeOf } from './fixtures/two-nodes.ts';
import { type Transfer, TransferError, TransferLibrary } from './index.ts';

const mebibyte = 1 << 20;

for (const wire of ['shm', 'tcp'] as const) {
  test(`two processes on ${wire}: bytes both ways, and the death of one`, { timeout: 30_000 }, async () => {
    await using undo = new AsyncDisposableStack();
    const runtimeDir = mkdtempSync(join(tmpdir(), 'millrace-transfer-'));
    undo.defer(() => rmSync(runtimeDir, { recursive: true }));
    const device = undo.use(openSoftDevice({ wire, runtimeDir: join(runtimeDir, 'soft') }));
    const library = undo.use(await TransferLibrary.open({ nodeId: 1, device, listen: {} }));
    const words = [join(import.meta.dirname, 'fixtures/other-node.ts'), `soft-${wire}`, String(library.address?.port)];
    const env = { ...process.env, MILLRACE_RUN_DIR: runtimeDir };
    const child = spawn(process.execPath, words, { stdio: 'inherit', env });
    undo.defer(() => void child.kill('SIGKILL'));
    const exited = once(child, 'exit');

    const node = await nodeOf(library, 2);
    const mine = library.allocate({ sizeBytes: mebibyte });
    const source = await node.bufferNamed('source');
    const sink = await node.bufferNamed('sink');
    await library.ended(library.start({ from: source, to: mine, sizeBytes: mebibyte }));
    assert.ok(mine.bytes.every((byte) => byte === 0xab));
    mine.bytes.fill(3);
    await library.ended(library.start({ from: mine, to: sink, sizeBytes: mebibyte }));
    const asked = library.allocate({ sizeBytes: 8, name: 'asked' });
    await node.bufferNamed('told');
    assert.equal(new Float64Array(asked.bytes.buffer, 0, 1)[0], 3 * mebibyte);

    // One transfer after the other, so that some are under way when it dies, whenever that shows.
    const failures = Array.from({ length: 200 }, () => {
      const { promise, resolve } = Promise.withResolvers<Transfer>();
      const again = (): number =>
        library.start({
          from: mine,
          to: sink,
          sizeBytes: 65_536,
          onEnd: (over) => void (over.error ? resolve(over) : again()),
        });
      again();
      return promise;
    });
    child.kill('SIGKILL');
    await exited;
    for (const { error } of await Promise.all(failures)) {
      assert.ok(error instanceof TransferError);
      assert.equal(error.reason, 'nodeGone', error.message);
    }
    assert.equal(mine.uses.count, 0);
    assert.equal(library.node(2), undefined);
  });
}
