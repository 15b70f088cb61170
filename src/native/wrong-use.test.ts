import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { type Addon, addon } from './addon.ts';
import { SharedMemory } from './memory.ts';
import { Socket } from './socket.ts';

// What a program can hand to the addon by mistake. No number here is an open descriptor of the
// process, so that the calls which get through their checks end in EBADF.
const junk: readonly unknown[] = [
  undefined,
  null,
  true,
  '',
  'text',
  'nul\0',
  'x'.repeat(5000),
  Symbol('s'),
  {},
  [],
  [1],
  () => 0,
  1n,
  /r/,
  new Date(0),
  Number.NaN,
  Number.POSITIVE_INFINITY,
  -1,
  0.5,
  987_654,
  2 ** 31 - 1,
  -(2 ** 31),
  2 ** 53,
  -(2 ** 63),
  1e300,
  new Uint8Array(0),
  new Uint8Array(3),
  new Float64Array(2),
  new ArrayBuffer(8),
  new DataView(new ArrayBuffer(4)),
];

/** Calls that do what they are told with numbers alone; their junk is not random. */
const blocking: ReadonlySet<string> = new Set(['futexWait', 'epollWait']);

/** But for the one that ends the process, whatever number it is given. */
const names = Object.getOwnPropertyNames(addon).filter(
  (name) => typeof addon[name as keyof Addon] === 'function' && name !== 'endProcess',
);

describe('the addon under wrong use', () => {
  test('it exports functions', () => assert.ok(names.length > 40, `${names.length} functions`));

  for (const name of names) {
    test(`${name} answers junk with an error or -errno`, () => {
      const call = addon[name as keyof Addon] as (...args: unknown[]) => unknown;
      const args = fc.array(fc.constantFrom(...junk), { maxLength: blocking.has(name) ? 3 : 7 });
      fc.assert(
        fc.property(args, (list) => {
          try {
            const result = call(...list);
            if (typeof result === 'number' && result > 2) addon.close(result);
          } catch (error) {
            assert.ok(error instanceof Error);
            assert.match((error as { code?: string }).code ?? error.name, /^(ERR_|E[A-Z]+$|MILLRACE_)/);
          }
        }),
        { numRuns: 300 },
      );
    });
  }

  test('a foreign descriptor is not closed, a closed one is EBADF', () => {
    assert.equal(addon.close(1), -9);
    using memory = SharedMemory.create({ sizeBytes: 4096 });
    using socket = Socket.stream('unix');
    const fd = socket.fd;
    socket.close();
    assert.equal(addon.recv(fd, memory.id, 0, 1, 0), -9);
    assert.equal(addon.send(fd, memory.id, 0, 1, 0), -9);
  });

  test('a mapping number that was given back is refused', () => {
    const memory = SharedMemory.create({ sizeBytes: 4096 });
    const { id, buffer } = memory;
    memory.close();
    assert.throws(() => addon.unmap(id, buffer), RangeError);
    assert.throws(() => addon.forgetMapping(id), RangeError);
    assert.throws(() => addon.recv(0, id, 0, 1, 0), { code: 'ERR_MEMORY_CLOSED' });
  });

  test('a buffer of another mapping leaves the mapping to its finalizer', () => {
    const memory = SharedMemory.create({ sizeBytes: 4096 });
    addon.unmap(memory.id, new ArrayBuffer(4096));
    assert.equal(memory.buffer.byteLength, 4096);
    new Uint8Array(memory.buffer)[0] = 1;
    assert.throws(() => memory.close(), RangeError);
  });
});
