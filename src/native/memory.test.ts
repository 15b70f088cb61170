// Runs in a process of its own: it counts the descriptors of its process.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { MessageChannel } from 'node:worker_threads';
import fc from 'fast-check';
import { copyMemory, Fd, SharedMemory } from './index.ts';

const PAGE = 4096;

function mappings(name: string): number {
  return readFileSync('/proc/self/maps', 'utf8').split(`/memfd:${name}`).length - 1;
}

describe('shared memory', () => {
  test('a size that is no size is refused', () => {
    for (const sizeBytes of [0, -1, 1.5, Number.NaN, Number.POSITIVE_INFINITY, 2 ** 60]) {
      assert.throws(() => SharedMemory.create({ sizeBytes }), { code: 'MILLRACE_ERR_USAGE' });
    }
  });

  test('more memory than there are addresses is an error with errno, not a crash', () => {
    assert.throws(() => SharedMemory.create({ sizeBytes: 2 ** 52 }), { name: 'SystemError', syscall: 'mmap' });
  });

  test('a range outside the memory is refused and nothing is copied', () => {
    using memory = SharedMemory.create({ sizeBytes: PAGE });
    const bytes = new Uint8Array(memory.buffer).fill(1);
    for (const [to, from, length] of [
      [0, 1, PAGE],
      [1, 0, PAGE],
      [PAGE + 1, 0, 0],
      [-1, 0, 1],
      [0, 0, 2 ** 53],
    ]) {
      assert.throws(() => copyMemory(memory, to, memory, from, length), RangeError);
    }
    assert.ok(bytes.every((byte) => byte === 1));
  });

  test('closing detaches every view, a second close is harmless, and use after it throws', () => {
    const memory = SharedMemory.create({ sizeBytes: PAGE, name: 'detach' });
    const views = [new Uint8Array(memory.buffer), new Float64Array(memory.buffer, 8, 2), new DataView(memory.buffer)];
    assert.equal(mappings('detach'), 1);
    memory.close();
    memory.close();
    assert.equal(mappings('detach'), 0);
    assert.equal(views[0]?.byteLength, 0);
    assert.equal(views[1]?.byteLength, 0);
    assert.throws(() => views[2]?.byteLength, TypeError);
    assert.throws(() => memory.fd, { code: 'MILLRACE_ERR_CLOSED' });
    assert.throws(() => copyMemory(memory, 0, memory, 0, 0), { code: 'ERR_MEMORY_CLOSED' });
  });

  test('a buffer whose bytes were moved keeps them when the memory closes', () => {
    const memory = SharedMemory.create({ sizeBytes: PAGE, name: 'moved' });
    new Uint8Array(memory.buffer)[7] = 42;
    const moved = memory.buffer.transfer();
    memory.close();
    assert.equal(new Uint8Array(moved)[7], 42);
    assert.equal(mappings('moved'), 1);
  });

  test('a buffer cannot be taken away by posting it to another thread', () => {
    using memory = SharedMemory.create({ sizeBytes: PAGE });
    const { port1 } = new MessageChannel();
    assert.throws(() => port1.postMessage(memory.buffer, [memory.buffer]), { name: 'DataCloneError' });
    port1.close();
    assert.equal(memory.buffer.byteLength, PAGE);
  });

  test('two mappings of one descriptor are the same bytes, and closing one leaves the other', () => {
    using first = SharedMemory.create({ sizeBytes: PAGE });
    using second = SharedMemory.open(first.duplicateFd());
    new Uint8Array(first.buffer)[100] = 9;
    assert.equal(new Uint8Array(second.buffer)[100], 9);
    second.close();
    assert.equal(new Uint8Array(first.buffer)[100], 9);
  });

  test('memory of another party that could shrink is refused unless trusted', () => {
    using file = Fd.open(tmpdir(), 0o20000000 | 0o2 | 0o200000); // O_TMPFILE | O_RDWR | O_DIRECTORY
    assert.throws(() => SharedMemory.open(file.duplicate(), { sizeBytes: PAGE }), {
      code: 'MILLRACE_ERR_UNSAFE_MEMORY',
    });
  });

  test('opening more than the memory has is refused and the descriptor is closed', () => {
    using memory = SharedMemory.create({ sizeBytes: PAGE });
    const copy = memory.duplicateFd();
    assert.throws(() => SharedMemory.open(copy, { sizeBytes: 2 * PAGE }), { code: 'MILLRACE_ERR_USAGE' });
    assert.ok(copy.isClosed);
  });

  test('a buffer that shows less than was mapped leaves the rest to copies', () => {
    using memory = SharedMemory.create({ sizeBytes: 4 * PAGE });
    for (const viewBytes of [-1, 0.5, 4 * PAGE + 1]) {
      assert.throws(() => SharedMemory.open(memory.duplicateFd(), { viewBytes }), { code: 'MILLRACE_ERR_USAGE' });
    }
    using part = SharedMemory.open(memory.duplicateFd(), { viewBytes: PAGE });
    assert.deepEqual([part.buffer.byteLength, part.sizeBytes], [PAGE, 4 * PAGE]);
    for (const sizeBytes of [64, 2000]) {
      const from = new Uint8Array(memory.buffer, 0, sizeBytes).map((_, index) => index + sizeBytes);
      new Uint8Array(memory.buffer).set(from, 0);
      copyMemory(part, 3 * PAGE, memory, 0, sizeBytes);
      assert.deepEqual(new Uint8Array(memory.buffer, 3 * PAGE, sizeBytes), from);
    }
    assert.throws(() => copyMemory(part, 4 * PAGE - 32, memory, 0, 64), RangeError);
  });

  test('another process sees the same bytes through an inherited descriptor', async () => {
    using memory = SharedMemory.create({ sizeBytes: PAGE });
    const words = new Int32Array(memory.buffer);
    words[0] = 41;
    const child = spawn(process.execPath, [join(import.meta.dirname, 'fixtures/add-in-process.ts'), '0', '1', '1'], {
      stdio: ['ignore', 'inherit', 'inherit', memory.fd],
    });
    const [code] = await once(child, 'exit');
    assert.equal(code, 0);
    assert.equal(words[0], 42);
  });

  test('huge pages are mapped, or refused with the reason', () => {
    assert.throws(() => SharedMemory.create({ sizeBytes: PAGE, hugePages: true }), { code: 'MILLRACE_ERR_USAGE' });
    const free = Number(/HugePages_Free:\s+(\d+)/.exec(readFileSync('/proc/meminfo', 'utf8'))?.[1] ?? 0);
    const create = () => SharedMemory.create({ sizeBytes: 2 * 1024 * 1024, hugePages: true, populate: true });
    if (free === 0) {
      assert.throws(create, { name: 'SystemError', code: 'ENOMEM' });
    } else {
      using memory = create();
      assert.equal(new Uint8Array(memory.buffer).at(-1), 0);
    }
  });

  test('what is there moves into huge pages, also for who has mapped it elsewhere', () => {
    const MIB = 1024 * 1024;
    using memory = SharedMemory.create({ sizeBytes: 6 * MIB + PAGE, name: 'to-be-huge' });
    using other = SharedMemory.open(memory.duplicateFd());
    const [here, there] = [memory, other].map(({ buffer }) => new Uint32Array(buffer));
    for (let at = 0; at < here.length; at++) here[at] = at * 2_654_435_761;
    const isHuge = memory.useHugePages(PAGE, 6 * MIB);
    for (let at = 0; at < here.length; at++) {
      if (there[at] === (at * 2_654_435_761) >>> 0 && here[at] === there[at]) continue;
      assert.fail(`word ${at} has changed`);
    }
    const mapped = readFileSync('/proc/self/smaps', 'utf8').match(/to-be-huge.*?^ShmemPmdMapped: +\d+/gms) ?? [];
    const sizes = mapped.map((text) => Number(text.slice(text.lastIndexOf(' '))));
    // The first page is outside of the range: two whole huge pages are left, in both.
    assert.deepEqual(sizes, isHuge ? [4096, 4096] : [0, 0]);
    assert.equal(memory.useHugePages(0, MIB), false);
  });

  test('copies between and within memories equal those of a plain array', () => {
    using first = SharedMemory.create({ sizeBytes: 256 });
    using second = SharedMemory.create({ sizeBytes: 256 });
    const memories = [first, second];
    const models = [new Uint8Array(256), new Uint8Array(256)];
    for (const [index, model] of models.entries()) {
      for (let i = 0; i < 256; i++) model[i] = i * (index + 3);
      new Uint8Array(memories[index].buffer).set(model);
    }
    const side = fc.integer({ min: 0, max: 1 });
    const position = fc.integer({ min: 0, max: 256 });
    fc.assert(
      fc.property(side, position, side, position, position, (to, toOffset, from, fromOffset, size) => {
        const length = Math.min(size, 256 - toOffset, 256 - fromOffset);
        copyMemory(memories[to], toOffset, memories[from], fromOffset, length);
        models[to].set(models[from].slice(fromOffset, fromOffset + length), toOffset);
        assert.deepEqual(new Uint8Array(first.buffer), models[0]);
        assert.deepEqual(new Uint8Array(second.buffer), models[1]);
      }),
    );
  });

  test('ten thousand memories made and closed leave no descriptor and no mapping', () => {
    const before = readdirSync('/proc/self/fd').length;
    for (let i = 0; i < 10_000; i++) SharedMemory.create({ sizeBytes: PAGE, name: 'churn' }).close();
    assert.ok(readdirSync('/proc/self/fd').length <= before);
    assert.equal(mappings('churn'), 0);
  });
});
