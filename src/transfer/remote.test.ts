import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { openRemoteDevice } from '../providers/index.ts';
import { BackendProcess } from '../remoting/backend/fixtures/backend-process.ts';
import { nodeOf } from './fixtures/two-nodes.ts';
import { TransferError, TransferLibrary } from './index.ts';

test('nodes on devices of a backend transfer as others do, until it dies', {
  timeout: 30_000,
}, async () => {
  await using undo = new AsyncDisposableStack();
  const backend = undo.use(await BackendProcess.start());
  const [left, right] = await Promise.all(
    [1, 2].map(async (nodeId) => {
      const device = undo.use(openRemoteDevice('soft-shm', { socketPath: backend.socketPath }));
      return undo.use(await TransferLibrary.open({ nodeId, device, listen: {} }));
    }),
  );
  const sizeBytes = 100_000;
  const theirs = right.allocate({ sizeBytes, name: 'theirs' });
  await left.connect(right.address ?? { host: '', port: 0 });
  await nodeOf(right, 1);
  const mine = left.allocate({ sizeBytes });
  const remote = await left.node(2)?.bufferNamed('theirs');
  assert.ok(remote);
  randomBytes(sizeBytes).copy(mine.bytes);
  await left.ended(left.start({ from: mine, to: remote, sizeBytes }));
  assert.ok(Buffer.from(theirs.bytes).equals(mine.bytes));
  randomBytes(sizeBytes).copy(theirs.bytes);
  const id = left.start({ from: remote, to: mine, sizeBytes });
  while (left.poll(id) !== 'done') await new Promise((resolve) => setImmediate(resolve));
  assert.ok(Buffer.from(theirs.bytes).equals(mine.bytes));

  const failed = Promise.withResolvers<unknown>();
  const again = (): number =>
    left.start({
      from: mine,
      to: remote,
      sizeBytes,
      onEnd: ({ error }) => void (error ? failed.resolve(error) : again()),
    });
  again();
  await backend.kill();
  assert.ok((await failed.promise) instanceof TransferError);
});
