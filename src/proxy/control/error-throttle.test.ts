import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { ErrorThrottle } from './error-throttle.ts';

describe('the filter of errors', () => {
  test('tells the same line once a while, and of very many that there are more', () => {
    const told: string[] = [];
    const filter = new ErrorThrottle((message) => void told.push(message));
    filter.report('one', '', 0);
    filter.report('one', '', 59_999);
    filter.report('one', '', 60_000);
    assert.deepEqual(told.splice(0), ['one', 'one']);
    for (let index = 0; index < 1000; index++) filter.report(`line ${index}`, '', 120_000);
    assert.equal(told.length, 101);
    assert.match(told.at(-1) ?? '', /the rest is left out/);
    filter.report('line 0', '', 180_000);
    assert.equal(told.at(-1), 'line 0');
  });
});
