import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { answer, type Question } from './finding.ts';
import { systemError } from './fixtures/fake-machine.ts';

const question: Question = {
  id: 'x',
  group: 'kernel',
  title: 'a thing',
  neededBy: ['lab'],
  consequence: 'it is missed',
  fix: 'get one',
};

describe('answering a question', () => {
  test('a probe that throws leaves the question open and says why', async () => {
    const finding = await answer(question, () => assert.fail('the probe is broken'));
    assert.equal(finding.answer, 'unknown');
    assert.equal(finding.detail, 'the probe is broken');
    assert.equal(finding.isForbidden, false);
    assert.equal(finding.consequence, 'it is missed');
  });

  test('a probe that throws something that is no error is no crash either', async () => {
    const finding = await answer(question, () => Promise.reject('just text'));
    assert.equal(finding.answer, 'unknown');
    assert.equal(finding.detail, 'just text');
  });

  test('a refused permission is marked as such', async () => {
    for (const code of ['EPERM', 'EACCES']) {
      const finding = await answer(question, () => Promise.reject(systemError(code)));
      assert.deepEqual([finding.answer, finding.isForbidden], ['unknown', true]);
    }
  });

  test('a yes has neither consequence nor fix', async () => {
    const finding = await answer(question, () => ({ answer: 'yes', detail: 'here' }));
    assert.deepEqual(finding, {
      id: 'x',
      group: 'kernel',
      title: 'a thing',
      answer: 'yes',
      detail: 'here',
      neededBy: ['lab'],
      improves: [],
      isForbidden: false,
    });
  });

  test('a probe that knows better replaces consequence and fix', async () => {
    const finding = await answer(question, () => ({ answer: 'no', detail: '', consequence: 'worse', fix: 'other' }));
    assert.deepEqual([finding.consequence, finding.fix], ['worse', 'other']);
  });

  test('an abort is no answer', async () => {
    const controller = new AbortController();
    const reason = new Error('enough');
    const probe = () => {
      controller.abort(reason);
      return assert.fail('what the abort broke');
    };
    await assert.rejects(answer(question, probe, controller.signal), reason);
    await assert.rejects(answer(question, probe, controller.signal), reason);
  });
});
