import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { openTwoNodes } from './fixtures/two-nodes.ts';
import { type LocalBuffer, REMEMBERED_TRANSFERS, type Transfer, TransferError, TransferLibrary } from './index.ts';

const usage = { code: 'MILLRACE_ERR_USAGE' };

for (const wire of ['shm', 'tcp'] as const) {
  describe(`transfers between nodes on ${wire}`, { timeout: 60_000 }, () => {
    test('ids, names, sizes, offsets and buffers that make no sense are refused', async () => {
      for (const nodeId of [0, 2 ** 20, 1.5]) {
        await assert.rejects(TransferLibrary.open({ nodeId, device: 'soft-tcp' }), usage);
      }
      await using nodes = await openTwoNodes(wire);
      const { left, right, rightNode } = nodes;
      assert.throws(() => left.allocate({ sizeBytes: 0 }), usage);
      assert.throws(() => left.allocate({ sizeBytes: 1, name: 'a\n' }), usage);
      const mine = left.allocate({ sizeBytes: 100 });
      const other = right.allocate({ sizeBytes: 200, name: 'other' });
      const theirs = await rightNode.bufferNamed('other');
      assert.throws(() => left.start({ from: mine, to: theirs, sizeBytes: 101 }), /101 bytes at 0 of buffer/);
      assert.throws(() => left.start({ from: mine, to: theirs, fromOffset: 1, sizeBytes: 100 }), usage);
      assert.throws(() => left.start({ from: theirs, to: mine, fromOffset: 101, sizeBytes: 100 }), usage);
      for (const sizeBytes of [0, -1, 1.5, Number.NaN]) {
        assert.throws(() => left.start({ from: mine, to: theirs, sizeBytes }), usage);
      }
      assert.throws(() => left.start({ from: theirs, to: theirs, sizeBytes: 1 }), /neither is a buffer of this node/);
      assert.throws(() => left.start({ from: mine, to: other, sizeBytes: 1 }), /is of another library/);
      assert.throws(() => right.start({ from: other, to: theirs, sizeBytes: 1 }), /is not known here/);
      assert.throws(() => left.poll(17), usage);
      assert.equal(mine.uses.count + theirs.uses.count, 0);
    });

    test('bytes go both ways, and stay exact: by promise, by callback, by polling', async () => {
      await using nodes = await openTwoNodes(wire);
      const { left, right, rightNode } = nodes;
      const mine = left.allocate({ sizeBytes: 65_536 });
      const theirs = right.allocate({ sizeBytes: 65_536, name: 'theirs' });
      const remote = await rightNode.bufferNamed('theirs');
      randomBytes(65_536).copy(mine.bytes);
      await left.ended(left.start({ from: mine, to: remote, fromOffset: 7, toOffset: 1000, sizeBytes: 60_000 }));
      assert.ok(Buffer.from(theirs.bytes.subarray(1000, 61_000)).equals(mine.bytes.subarray(7, 60_007)));

      randomBytes(65_536).copy(theirs.bytes);
      const { promise, resolve } = Promise.withResolvers<Transfer>();
      const id = left.start({ from: remote, to: mine, fromOffset: 3, sizeBytes: 65_533, onEnd: resolve });
      const transfer = await promise;
      assert.deepEqual([transfer.id, transfer.state, transfer.direction], [id, 'done', 'read']);
      assert.ok(Buffer.from(mine.bytes.subarray(0, 65_533)).equals(theirs.bytes.subarray(3)));

      const polled = left.start({ from: mine, to: remote, sizeBytes: 1 });
      while (left.poll(polled) !== 'done') await new Promise((next) => setImmediate(next));
      const copied = left.start({ from: mine, to: left.allocate({ sizeBytes: 9 }), sizeBytes: 9 });
      assert.equal(left.transfer(copied).hasEnded, false);
      await left.ended(copied);
    });

    test('objects are found by their ids, on both nodes, until they are freed', async () => {
      await using nodes = await openTwoNodes(wire);
      const { left, right, rightNode, leftNode } = nodes;
      const theirs = right.allocate({ sizeBytes: 10, name: 'theirs' });
      const remote = await rightNode.bufferNamed('theirs');
      assert.equal(remote.id, theirs.id);
      assert.equal(left.buffer(theirs.id), remote);
      assert.equal(right.buffer(theirs.id), theirs);
      assert.equal(left.node(2), rightNode);
      assert.equal(right.node(1), leftNode);
      await Promise.all([theirs.free(), theirs.free()]);
      assert.equal(left.buffer(theirs.id), undefined);
      assert.equal(right.buffer(theirs.id), undefined);
      const mine = left.allocate({ sizeBytes: 10 });
      assert.throws(() => left.start({ from: mine, to: remote, sizeBytes: 1 }), /is freed, or its node is gone/);
      assert.equal(theirs.bytes.length, 0);
    });

    test('more than the device takes at once wait for their turn, and old ones are forgotten', async () => {
      await using nodes = await openTwoNodes(wire);
      const { left, right, rightNode } = nodes;
      const mine = left.allocate({ sizeBytes: 8 });
      right.allocate({ sizeBytes: 8, name: 'theirs' });
      const to = await rightNode.bufferNamed('theirs');
      const count = REMEMBERED_TRANSFERS + 10;
      const ids = Array.from({ length: count }, () => left.start({ from: mine, to, sizeBytes: 8 }));
      assert.equal(left.transfer(ids[count - 1] ?? 0).state, 'queued');
      await left.ended(ids[count - 1] ?? 0);
      assert.throws(() => left.poll(ids[0] ?? 0), /or it ended long ago/);
      assert.equal(left.poll(ids[10] ?? 0), 'done');
    });

    test('a buffer that is freed while transfers use it goes when they are over', async () => {
      await using nodes = await openTwoNodes(wire);
      const { left, right, rightNode } = nodes;
      const mine = left.allocate({ sizeBytes: 1 << 20 });
      const theirs = right.allocate({ sizeBytes: 1 << 20, name: 'theirs' });
      const remote = await rightNode.bufferNamed('theirs');
      const ids = Array.from({ length: 200 }, () => left.start({ from: mine, to: remote, sizeBytes: 1 << 20 }));
      // Nobody polls them: freeing sees them through.
      await Promise.all([theirs.free(), mine.free()]);
      assert.deepEqual([...new Set(ids.map((id) => left.transfer(id).state))], ['done']);
      assert.equal(rightNode.isGone, false);
    });

    test('a node that ends takes its transfers with it, with an error that says so', async () => {
      await using nodes = await openTwoNodes(wire);
      const { left, right, rightNode } = nodes;
      const mine = left.allocate({ sizeBytes: 1 << 20 });
      right.allocate({ sizeBytes: 1 << 20, name: 'theirs' });
      const remote = await rightNode.bufferNamed('theirs');
      const ids = Array.from({ length: 300 }, () => left.start({ from: mine, to: remote, sizeBytes: 1 << 20 }));
      const outcomes = Promise.allSettled(ids.map((id) => left.ended(id)));
      const never = assert.rejects(rightNode.bufferNamed('never'), { code: 'MILLRACE_ERR_FAILED' });
      await right.close();
      const rejected = (await outcomes).filter((outcome) => outcome.status === 'rejected');
      assert.ok(rejected.length > 0);
      for (const { reason } of rejected) {
        assert.ok(reason instanceof TransferError, String(reason));
        assert.match(reason.message, /^transfer \d+/);
      }
      await never;
      assert.equal(left.node(2), undefined);
      assert.equal(mine.uses.count, 0);
      assert.throws(() => left.start({ from: mine, to: remote, sizeBytes: 1 }), usage);
      await mine.free();
      assert.throws(() => right.allocate({ sizeBytes: 1 }), { code: 'MILLRACE_ERR_CLOSED' });
    });

    test('what random transfers leave behind is what copies would have', async () => {
      await using nodes = await openTwoNodes(wire);
      const sizes = [4096, 20_000, 70_000];
      const { left, right, leftNode, rightNode } = nodes;
      const make = (library: TransferLibrary): LocalBuffer[] =>
        sizes.map((sizeBytes, index) => library.allocate({ sizeBytes, name: `b${index}` }));
      const [lefts, rights] = [make(left), make(right)];
      const known = async (node: typeof leftNode) =>
        Promise.all(sizes.map((_, index) => node.bufferNamed(`b${index}`)));
      const [leftsFromRight, rightsFromLeft] = [await known(leftNode), await known(rightNode)];
      const step = fc.record({
        isLeft: fc.boolean(),
        isWrite: fc.boolean(),
        local: fc.nat({ max: 2 }),
        remote: fc.nat({ max: 2 }),
        at: fc.double({ min: 0, max: 1, noNaN: true }),
        to: fc.double({ min: 0, max: 1, noNaN: true }),
        length: fc.integer({ min: 1, max: 4096 }),
      });
      await fc.assert(
        fc.asyncProperty(fc.array(step, { maxLength: 12 }), async (steps) => {
          for (const buffer of [...lefts, ...rights]) randomBytes(buffer.sizeBytes).copy(buffer.bytes);
          const [modelLeft, modelRight] = [lefts, rights].map((all) => all.map(({ bytes }) => Uint8Array.from(bytes)));
          for (const { isLeft, isWrite, local, remote, at, to, length } of steps) {
            const [own, far] = isLeft
              ? [lefts[local], rightsFromLeft[remote]]
              : [rights[local], leftsFromRight[remote]];
            const [ownModel, farModel] = isLeft ? [modelLeft, modelRight] : [modelRight, modelLeft];
            assert.ok(own && far && ownModel && farModel);
            const ownAt = Math.floor(at * (own.sizeBytes - length));
            const farAt = Math.floor(to * (far.sizeBytes - length));
            const library = isLeft ? left : right;
            const request = isWrite
              ? { from: own, to: far, fromOffset: ownAt, toOffset: farAt, sizeBytes: length }
              : { from: far, to: own, fromOffset: farAt, toOffset: ownAt, sizeBytes: length };
            // Only an awaited end orders one node's transfer before the other's.
            await library.ended(library.start(request));
            const [source, target] = isWrite
              ? [ownModel[local], farModel[remote]]
              : [farModel[remote], ownModel[local]];
            const [from, into] = isWrite ? [ownAt, farAt] : [farAt, ownAt];
            target?.set(source?.subarray(from, from + length) ?? [], into);
          }
          for (const [index, buffer] of lefts.entries())
            assert.ok(Buffer.from(buffer.bytes).equals(modelLeft?.[index] ?? Buffer.of()));
          for (const [index, buffer] of rights.entries())
            assert.ok(Buffer.from(buffer.bytes).equals(modelRight?.[index] ?? Buffer.of()));
        }),
        { numRuns: 30 },
      );
    });
  });
}
