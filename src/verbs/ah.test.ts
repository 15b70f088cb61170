import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { paperDevice } from './fixtures/paper-device.ts';

describe('an address handle', () => {
  test('needs a valid path', () => {
    const pd = paperDevice().createPd();
    for (const path of [
      { gid: 'nowhere' },
      { gid: 'fe80::1', lid: 65_536 },
      { gid: 'fe80::1', gidIndex: -1 },
      { gid: 'fe80::1', hopLimit: 256 },
    ]) {
      assert.throws(() => pd.createAh(path), { code: 'MILLRACE_ERR_USAGE' }, JSON.stringify(path));
    }
  });

  test('has a number until it is closed, by itself or with its domain', () => {
    const pd = paperDevice().createPd();
    const [one, two] = [pd.createAh({ gid: 'fe80::1' }), pd.createAh({ gid: 'fe80::1', gidIndex: 1 })];
    assert.ok(one.handle > 0 && two.handle > 0 && one.handle !== two.handle);
    one.close();
    one.close();
    assert.throws(() => one.handle, { code: 'MILLRACE_ERR_CLOSED' });
    pd.close();
    assert.equal(two.isClosed, true);
    assert.throws(() => pd.createAh({ gid: 'fe80::1' }), { code: 'MILLRACE_ERR_CLOSED' });
  });
});
