import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { runCaptured } from './fixtures/captured-world.ts';
import { fakeDaemon } from './fixtures/daemon.ts';

describe('millrace explain and reload', () => {
  test('without a daemon are one line that says how to start one', async () => {
    const env = { MILLRACE_RUN_DIR: '/does/not/exist' };
    for (const command of [['explain', '1'], ['reload']]) {
      const { code, stdout, stderr } = await runCaptured(command, { env });
      assert.deepEqual([code, stdout], [3, '']);
      assert.match(stderr, /no daemon answers on .* \(start one with 'millrace up'\)/);
    }
  });

  test('explain wants to know which', async () => {
    const { code, stderr } = await runCaptured(['explain']);
    assert.equal(code, 2);
    assert.match(stderr, /missing required argument 'which'/);
  });

  test('print what the daemon says, line by line', async () => {
    await using daemon = await fakeDaemon();
    for (const command of [['explain', '4711'], ['reload']]) {
      const { code, stdout, stderr } = await daemon.run(command);
      assert.deepEqual([code, stderr], [0, '']);
      assert.match(stdout, /\w.*\n/);
    }
  });
});
