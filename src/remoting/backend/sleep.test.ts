// No wake-up is lost: every interleaving of the two sides is looked at, and what the model leaves out is missed by it.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { explore } from '../../channel/fixtures/explore.ts';
import { omissions, sleepWorld } from './fixtures/sleep-model.ts';

describe('going to sleep and being woken', () => {
  for (const omission of omissions) {
    test(`without '${omission}' somebody sleeps for ever`, () => {
      assert.notDeepEqual(explore(sleepWorld(3, omission)).trace, []);
    });
  }

  test('nobody sleeps while there is work, whoever has the next step', () => {
    const { states, trace } = explore(sleepWorld(5));
    assert.deepEqual(trace, []);
    assert.ok(states > 50, `${states} states`);
  });
});
