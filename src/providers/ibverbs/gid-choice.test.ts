import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { type GidEntry, preferredGid, sourceGid } from './gid-choice.ts';

/** As a RoCE port with two addresses has it: every GID once for each version. */
const roce: readonly GidEntry[] = [
  { index: 0, gid: 'fe80::1', type: 'RoCE v1' },
  { index: 1, gid: 'fe80::1', type: 'RoCE v2' },
  { index: 2, gid: 'fd99::1', type: 'RoCE v1' },
  { index: 3, gid: 'fd99::1', type: 'RoCE v2' },
  { index: 4, gid: '::ffff:10.0.0.1', type: 'RoCE v1' },
  { index: 5, gid: '::ffff:10.0.0.1', type: 'RoCE v2' },
  { index: 6, gid: '::ffff:10.0.0.2', type: 'RoCE v2' },
];

describe('the choice of a GID', () => {
  test('an empty table has none to choose', () => {
    assert.equal(preferredGid([], true), undefined);
    assert.equal(preferredGid([], false), undefined);
    assert.equal(sourceGid([], true, 'fe80::2'), undefined);
  });

  test('version 2 comes before version 1, IPv4 before IPv6 before link-local, and the first of equals', () => {
    assert.equal(preferredGid(roce, true)?.index, 5);
    assert.equal(preferredGid(roce.toReversed(), true)?.index, 5);
    assert.equal(preferredGid(roce.slice(0, 4), true)?.index, 3);
    assert.equal(preferredGid(roce.slice(0, 2), true)?.index, 1);
    assert.equal(preferredGid(roce.slice(0, 1), true)?.index, 0);
  });

  test('on InfiniBand it is the first, whatever it looks like', () => {
    const entries: readonly GidEntry[] = [
      { index: 0, gid: 'fe80::2:c903:33:1', type: 'IB' },
      { index: 1, gid: '2001:db8::1', type: 'IB' },
    ];
    assert.equal(preferredGid(entries, false)?.index, 0);
    assert.equal(sourceGid(entries, false, '2001:db8::2')?.index, 0);
  });

  test('a peer is reached from a GID of its own family, or else from the preferred one', () => {
    assert.equal(sourceGid(roce, true, '::ffff:10.0.0.9')?.index, 5);
    assert.equal(sourceGid(roce, true, 'fd99::9')?.index, 3);
    assert.equal(sourceGid(roce, true, 'fe80::9')?.index, 1);
    assert.equal(sourceGid(roce.slice(4), true, 'fd99::9')?.index, 5);
  });
});
