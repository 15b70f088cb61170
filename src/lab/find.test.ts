// Tests of picking a lab.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { findLab } from './find.ts';
import { labSpec } from './spec.ts';
import type { KnownLab, LabState } from './sweep.ts';

function known(id: string, name: string | null, state: LabState = 'persistent'): KnownLab {
  return {
    state,
    record: { ...labSpec(name === null ? {} : { name }), id, owner: null, createdAt: '2026-01-01T00:00:00.000Z' },
  };
}

test('a wrong name is not running, with a guess', () => {
  const labs = [known('00000001', 'demo'), known('00000002', null)];
  assert.throws(() => findLab(labs, 'dem'), {
    code: 'MILLRACE_ERR_NOT_RUNNING',
    message: 'there is no lab "dem" (did you mean demo?)',
  });
  assert.throws(() => findLab([], 'demo'), { message: 'there is no lab "demo"' });
});

test('without a name, no lab is not running and several are a matter of choice', () => {
  assert.throws(() => findLab([known('00000001', 'test', 'alive')]), { code: 'MILLRACE_ERR_NOT_RUNNING' });
  assert.throws(() => findLab([known('00000001', 'x'), known('00000002', null)]), {
    code: 'MILLRACE_ERR_USAGE',
    message: /x, 00000002/,
  });
});

test('name, id and the only persistent one are found', () => {
  const labs = [known('00000001', 'demo'), known('00000002', 'test', 'alive')];
  assert.equal(findLab(labs, 'test'), labs[1]);
  assert.equal(findLab(labs, '00000001'), labs[0]);
  assert.equal(findLab(labs), labs[0]);
});
