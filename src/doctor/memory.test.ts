import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { fakeMachine, systemError } from './fixtures/fake-machine.ts';
import { probeMemory } from './memory.ts';
import { probeUserfault, type UserfaultTrial } from './userfault.ts';

const THP = '/sys/kernel/mm/transparent_hugepage/shmem_enabled';

async function ask(files: Readonly<Record<string, string>>, tryHugePage: () => void = () => {}) {
  const [hugePages, memlock] = await probeMemory(fakeMachine({ files }), undefined, tryHugePage);
  assert.ok(hugePages && memlock);
  return { hugePages, memlock };
}

function throwing(code: string): () => never {
  return () => {
    throw systemError(code);
  };
}

describe('huge pages', () => {
  test('none reserved and none transparent is a no with both ways out', async () => {
    const { hugePages } = await ask({ [THP]: 'always within_size advise [never] deny force\n' }, throwing('ENOMEM'));
    assert.deepEqual([hugePages.answer, hugePages.isForbidden], ['no', false]);
    assert.equal(hugePages.detail, 'reserved: none free; transparent for shared memory: never');
    assert.match(hugePages.fix ?? '', /nr_hugepages.*shmem_enabled/);
  });

  test('a kernel without them says so', async () => {
    const { hugePages } = await ask({}, throwing('ENOSYS'));
    assert.equal(hugePages.answer, 'no');
    assert.match(hugePages.detail, /not in this kernel \(ENOSYS\); transparent for shared memory: not in this kernel/);
  });

  test('a failure that was not foreseen leaves the question open', async () => {
    const { hugePages } = await ask({}, throwing('EMFILE'));
    assert.equal(hugePages.answer, 'unknown');
  });

  test('transparent ones are as good as reserved ones', async () => {
    const { hugePages } = await ask({ [THP]: 'always within_size [advise] never deny force\n' }, throwing('ENOMEM'));
    assert.equal(hugePages.answer, 'yes');
  });

  test('one that was mapped is a yes', async () => {
    assert.equal((await ask({})).hugePages.answer, 'yes');
  });
});

describe('locked memory', () => {
  const limits = (soft: string) => ({ '/proc/self/limits': `Max locked memory         ${soft}    ${soft}    bytes\n` });

  test('without the line the question stays open', async () => {
    assert.equal((await ask({ '/proc/self/limits': 'Max cpu time\n' })).memlock.answer, 'unknown');
  });

  test('a small limit is a no with the ways to raise it', async () => {
    const { memlock } = await ask(limits('8388608'));
    assert.deepEqual([memlock.answer, memlock.detail, memlock.isForbidden], ['no', '8 MiB', true]);
    assert.match(memlock.fix ?? '', /LimitMEMLOCK/);
  });

  test('a small limit does not bind who holds CAP_IPC_LOCK', async () => {
    const { memlock } = await ask({ ...limits('8388608'), '/proc/self/status': 'CapEff:\t0000000000004000\n' });
    assert.deepEqual([memlock.answer, memlock.detail], ['yes', '8 MiB, which cap_ipc_lock lifts']);
  });

  test('no limit is a yes', async () => {
    assert.equal((await ask(limits('unlimited'))).memlock.answer, 'yes');
  });
});

describe('userfaultfd', () => {
  const trial = (faults: 'all' | 'user-mode', by: 'syscall' | 'device' = 'syscall'): UserfaultTrial => ({
    options: { faults, by },
    features: new Set(['missingShmem']),
  });

  test('a kernel without it is a no, and nothing is known of its faults', async () => {
    const [first, second] = await probeUserfault(undefined, throwing('ENOSYS'));
    assert.deepEqual([first?.answer, second?.answer], ['no', 'unknown']);
  });

  test('a refusal says whom to ask', async () => {
    const [first] = await probeUserfault(undefined, throwing('EPERM'));
    assert.deepEqual([first?.answer, first?.isForbidden], ['unknown', true]);
    assert.match(first?.fix ?? '', /\/dev\/userfaultfd/);
  });

  test('one for the program only is a yes, but not for system calls', async () => {
    const [first, second] = await probeUserfault(undefined, () => trial('user-mode'));
    assert.deepEqual([first?.answer, second?.answer, second?.isForbidden], ['yes', 'no', true]);
    assert.match(second?.consequence ?? '', /EFAULT/);
  });

  test('one for all faults is a yes to both, and says if the device gave it', async () => {
    const [first, second] = await probeUserfault(undefined, () => trial('all', 'device'));
    assert.deepEqual([first?.answer, second?.answer], ['yes', 'yes']);
    assert.equal(first?.detail, 'by /dev/userfaultfd: shared memory');
  });
});
