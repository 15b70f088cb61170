// No wake-up is lost in any interleaving of the two sides, and the model finds the lost one when a
// step is left out.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { explore } from '../../../channel/fixtures/explore.ts';
import { omissions, sleepWorld } from '../fixtures/sleep-model.ts';

describe('going to sleep and being woken', () => {
  for (const omission of omissions) {
    test(`without '${omission}' a wake-up is lost`, () => {
      assert.notDeepEqual(explore(sleepWorld(3, omission)).trace, []);
    });
  }

  test('no side sleeps while there is work, in any order of steps', () => {
    const { states, trace } = explore(sleepWorld(5));
    assert.deepEqual(trace, []);
    assert.ok(states > 50, `${states} states`);
  });
});
