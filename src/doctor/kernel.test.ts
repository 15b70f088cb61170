import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { probeCapabilities } from './capabilities.ts';
import { fakeMachine, systemError } from './fixtures/fake-machine.ts';
import { probeKernel } from './kernel.ts';

async function ask(files: Readonly<Record<string, string | Error>>) {
  const [version, bpffs] = await probeKernel(fakeMachine({ files }));
  assert.ok(version && bpffs);
  return { version, bpffs };
}

describe('the kernel', () => {
  test('a release that is no number leaves the question open', async () => {
    const { version } = await ask({ '/proc/sys/kernel/osrelease': 'tomorrow\n' });
    assert.equal(version.answer, 'unknown');
    assert.match(version.detail, /"tomorrow"/);
  });

  test('without /proc nothing is known', async () => {
    const { version, bpffs } = await ask({});
    assert.deepEqual([version.answer, bpffs.answer], ['unknown', 'unknown']);
  });

  test('an unreadable /proc is a refusal', async () => {
    const { bpffs } = await ask({ '/proc/self/mounts': systemError('EACCES') });
    assert.deepEqual([bpffs.answer, bpffs.isForbidden], ['unknown', true]);
  });

  test('versions are compared as numbers', async () => {
    for (const [release, expected] of [
      ['4.19.0-27-amd64', 'no'],
      ['5.9.16', 'no'],
      ['5.10.0-33-amd64', 'yes'],
      ['6.1.0', 'yes'],
      ['10.0.0', 'yes'],
    ] as const) {
      const { version } = await ask({ '/proc/sys/kernel/osrelease': `${release}\n` });
      assert.deepEqual([version.answer, version.detail], [expected, release]);
    }
  });

  test('the BPF file system is found wherever it is mounted', async () => {
    const { bpffs } = await ask({ '/proc/self/mounts': 'proc /proc proc rw 0 0\nnone /run/bpf bpf rw 0 0\n' });
    assert.deepEqual([bpffs.answer, bpffs.detail], ['yes', '/run/bpf']);
  });

  test('without a BPF file system the fix is a mount', async () => {
    const { bpffs } = await ask({ '/proc/self/mounts': 'bpf /proc proc rw 0 0\n' });
    assert.deepEqual([bpffs.answer, bpffs.fix], ['no', 'mount -t bpf bpf /sys/fs/bpf']);
  });
});

describe('capabilities', () => {
  const withMask = (hex: string) =>
    probeCapabilities(fakeMachine({ files: { '/proc/self/status': `Name:\tnode\nCapEff:\t${hex}\n` } }));

  test('a status without the line leaves the question open', async () => {
    const finding = await probeCapabilities(fakeMachine({ files: { '/proc/self/status': 'Name:\tnode\n' } }));
    assert.equal(finding.answer, 'unknown');
  });

  test('none is a matter of permission', async () => {
    const finding = await withMask('0000000000000000');
    assert.deepEqual([finding.answer, finding.isForbidden], ['no', true]);
    assert.match(finding.fix ?? '', /root/);
  });

  test('CAP_BPF alone is not enough to attach', async () => {
    const finding = await withMask((1n << 39n).toString(16).padStart(16, '0'));
    assert.equal(finding.answer, 'no');
    assert.match(finding.detail, /^cap_bpf; not cap_net_admin/);
  });

  test('the three small ones do, and so does CAP_SYS_ADMIN with CAP_NET_ADMIN', async () => {
    for (const bits of [
      [12n, 38n, 39n],
      [12n, 21n],
    ]) {
      const mask = bits.reduce((sum, bit) => sum | (1n << bit), 0n);
      assert.equal((await withMask(mask.toString(16).padStart(16, '0'))).answer, 'yes');
    }
  });
});
