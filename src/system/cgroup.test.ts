// Tests of finding cgroup v2 among the mounts.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { findCgroup2Mount } from './cgroup.ts';

const root = '23 1 254:0 / / rw,relatime - ext4 /dev/vda rw';
const v1 = '35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory';

test('nothing is found in no mounts, or in nonsense', () => {
  assert.equal(findCgroup2Mount(''), null);
  assert.equal(findCgroup2Mount('cgroup2\n - cgroup2\n- - -\n'), null);
});

test('cgroup v1 alone is not cgroup v2', () => {
  assert.equal(findCgroup2Mount([root, v1].join('\n')), null);
});

test('a mount that is only called cgroup2 is none', () => {
  assert.equal(findCgroup2Mount('24 1 0:9 / /cgroup2 rw - tmpfs cgroup2 rw\n'), null);
});

test('the unified layout is found, whatever optional fields precede the dash', () => {
  const unified = '30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 master:1 - cgroup2 cgroup2 rw,nsdelegate';
  assert.equal(findCgroup2Mount([root, unified, ''].join('\n')), '/sys/fs/cgroup');
});

test('the hybrid layout is found', () => {
  const tmpfs = '31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755';
  const unified = '41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw';
  assert.equal(findCgroup2Mount([root, tmpfs, v1, unified].join('\n')), '/sys/fs/cgroup/unified');
});

test('spaces and backslashes in the path are decoded', () => {
  const odd = String.raw`41 31 0:38 / /mnt/my\040cgroup\134040x rw - cgroup2 none rw`;
  assert.equal(findCgroup2Mount(odd), String.raw`/mnt/my cgroup\040x`);
});

test('a whole tree is preferred to a bind mount of a part', () => {
  const part = '40 31 0:38 /docker/1 /part rw - cgroup2 cgroup2 rw';
  const whole = '41 31 0:38 / /whole rw - cgroup2 cgroup2 rw';
  assert.equal(findCgroup2Mount([part, whole].join('\n')), '/whole');
  assert.equal(findCgroup2Mount(part), '/part');
});
