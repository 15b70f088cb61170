// Tests of what a guest may be asked to be.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { UnsupportedError, UsageError } from '../../errors.ts';
import { checkMemory, type GuestOptions, guestSpec } from './spec.ts';

const wrong: readonly (readonly [GuestOptions, RegExp])[] = [
  [{ memoryMb: 10 }, /memoryMb 10 is not a whole number from 256/],
  [{ memoryMb: Number.NaN }, /memoryMb NaN/],
  [{ cpus: 0 }, /cpus 0/],
  [{ cpus: 1.5 }, /cpus 1\.5/],
  [{ limitMs: 0 }, /limitMs 0/],
  [{ name: 'A b' }, /the name "A b"/],
  [{ share: 'relative' }, /not an absolute path/],
  [{ share: '/' }, /cannot be shared/],
  [{ share: '/no/such/folder' }, /does not exist/],
  [{ modules: ['brigde'] }, /no extra module brigde.*bridge/],
  [{ network: { address: ['10.0.0.1'] } }, /no address with a prefix length/],
  [{ network: { address: ['10.0.0.1/24\nlink del eth0'] } }, /no address/],
  [{ network: { hostAddress: ['10.0.0.1/24'] } }, /without a host/],
  [{ network: { mtu: 100 } }, /mtu 100/],
  [{ sharing: { memory: { fd: 3, sizeBytes: 12_288 }, ports: [] } }, /12288 bytes of shared memory.*power of two/],
  [{ sharing: { memory: { fd: 3, sizeBytes: 4096 }, ports: [{ name: 'a,b', fd: 4 }] } }, /the name of a port/],
];

for (const [options, message] of wrong) {
  test(`a guest of ${JSON.stringify(options)} is refused`, () => {
    assert.throws(
      () => guestSpec(options),
      (error) => error instanceof UsageError && message.test(error.message),
    );
  });
}

test('more memory than there is, is refused before QEMU takes it', () => {
  assert.throws(() => checkMemory(guestSpec({ memoryMb: 1024 }), 'MemAvailable:  1048576 kB\n'), UnsupportedError);
  checkMemory(guestSpec({ memoryMb: 1024 }), 'MemAvailable:  1200000 kB\n');
  // Kernels that do not say are believed to have enough.
  checkMemory(guestSpec({ memoryMb: 1024 }), '');
});

test('a guest asked for nothing has the defaults', () => {
  const { name, memoryMb, cpus, share } = guestSpec({});
  assert.deepEqual({ name, memoryMb, cpus, share }, { name: 'vm', memoryMb: 1024, cpus: 2, share: undefined });
});
