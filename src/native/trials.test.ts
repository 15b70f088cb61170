import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { SystemError } from '../errors.ts';
import { addon } from './addon.ts';
import { tryKvmGuest } from './kvm.ts';
import { lookUpLibrary } from './library.ts';
import { createBestUserfault, UserfaultFd } from './userfault.ts';

describe('a trial of KVM', () => {
  test('a device that is not there, or is something else, is an error or a failed first step', () => {
    assert.throws(() => tryKvmGuest('/dev/no-kvm'), { code: 'ENOENT' });
    assert.deepEqual(tryKvmGuest('/dev/null'), {
      ran: false,
      step: 'create a virtual machine',
      reason: 'ENOTTY',
      isTimeout: false,
    });
    assert.throws(() => addon.kvmTryGuest('x' as never), TypeError);
  });

  test('ends within its second, whatever the machine', (t) => {
    const startMs = performance.now();
    try {
      const trial = tryKvmGuest();
      t.diagnostic(trial.ran ? 'a guest ran' : `${trial.step}: ${trial.reason}`);
    } catch (error) {
      if (!(error instanceof SystemError)) throw error;
      t.diagnostic(error.message);
    }
    assert.ok(performance.now() - startMs < 2000);
  });
});

describe('a library', () => {
  test('that is not there says why', () => {
    const found = lookUpLibrary('libmillrace-none.so.1', 'x');
    assert.equal(found.state, 'absent');
    assert.ok(found.state === 'absent' && found.reason.includes('libmillrace-none.so.1'));
  });

  test('without the symbol is told from one that is absent', () => {
    assert.equal(lookUpLibrary('libc.so.6', 'no_such_symbol').state, 'symbol-missing');
  });

  test('with the symbol says where it is', () => {
    const found = lookUpLibrary('libc.so.6', 'read');
    assert.ok(found.state === 'found' && found.path.endsWith('libc.so.6'));
  });

  test('is not looked for by something that is no name', () => {
    assert.throws(() => lookUpLibrary(7 as never, 'x'), TypeError);
    assert.throws(() => lookUpLibrary('x'.repeat(300), 'x'), RangeError);
  });
});

describe('userfaultfd', () => {
  test('a descriptor of something else cannot shake hands', () => {
    assert.throws(() => new UserfaultFd(addon.eventfd(0)).handshake(), { code: 'ENOTTY', syscall: 'UFFDIO_API' });
    assert.throws(() => addon.userfaultHandshake(-1, -1), RangeError);
  });

  test('the best one there is tells its features once, or says why there is none', (t) => {
    let best: ReturnType<typeof createBestUserfault>;
    try {
      best = createBestUserfault();
    } catch (error) {
      if (error instanceof SystemError) return t.skip(error.message);
      throw error;
    }
    using fd = best.fd;
    assert.ok(fd.handshake().size > 0);
    assert.throws(() => fd.handshake(), { code: 'EINVAL' });
    fd.close();
    assert.throws(() => fd.handshake(), { code: 'MILLRACE_ERR_CLOSED' });
  });
});
