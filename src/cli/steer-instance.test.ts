import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { PinnedInstance } from '../steering/index.ts';
import { instanceToRemove, instanceToShow, refuseServed } from './steer-instance.ts';

const pinned = (name: string, daemon: PinnedInstance['daemon']): PinnedInstance => ({ name, owner: null, daemon });

describe('the instance that a command means', () => {
  test('to show: the only one, or the only one that a daemon serves', () => {
    for (const daemon of ['alive', 'dead', 'unknown', 'none'] as const) {
      assert.equal(instanceToShow([pinned('one', daemon)]), 'one');
    }
    assert.equal(
      instanceToShow([pinned('left', 'dead'), pinned('millrace', 'alive'), pinned('idle', 'none')]),
      'millrace',
    );
    assert.throws(() => instanceToShow([]), { code: 'MILLRACE_ERR_NOT_RUNNING', message: /millrace up/ });
    for (const daemon of ['alive', 'none'] as const) {
      const several = [pinned('one', daemon), pinned('other', daemon)];
      assert.throws(() => instanceToShow(several), { code: 'MILLRACE_ERR_USAGE', message: /one, other; .*--instance/ });
    }
  });

  test('to remove: the only one that no daemon serves', () => {
    assert.equal(instanceToRemove([pinned('millrace', 'alive'), pinned('left', 'dead')]), 'left');
    assert.throws(() => instanceToRemove([]), { code: 'MILLRACE_ERR_NOT_RUNNING', message: /nothing is steered/ });
    assert.throws(() => instanceToRemove([pinned('millrace', 'alive')]), {
      code: 'MILLRACE_ERR_NOT_RUNNING',
      message: /a daemon serves millrace; stop the daemon/,
    });
    const several = [pinned('one', 'none'), pinned('other', 'dead'), pinned('millrace', 'alive')];
    assert.throws(() => instanceToRemove(several), { code: 'MILLRACE_ERR_USAGE', message: /: one, other; name one/ });
  });

  test('that a daemon serves is not attached again', () => {
    refuseServed('millrace', [pinned('millrace', 'dead'), pinned('other', 'alive')]);
    assert.throws(() => refuseServed('millrace', [pinned('millrace', 'alive')]), {
      code: 'MILLRACE_ERR_USAGE',
      message: /serves the instance millrace/,
    });
  });
});
