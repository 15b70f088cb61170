import assert from 'node:assert/strict';
import { test } from 'node:test';
import { runCaptured } from './fixtures/captured-world.ts';

test('guest run refuses what makes no sense before anything is started', async () => {
  for (const [words, code, message] of [
    [['--', 'true'].slice(0, 1), 2, /missing required argument 'command'|there is no command/],
    [['--shared', '3MiB', '--', 'true'], 2, /Give a power of two from 1MiB on/],
    [['--shared', '512', '--', 'true'], 2, /Give a power of two/],
    [['--programs', '0', '--', 'true'], 2, /Give a whole number/],
    [['--programs', '31', '--', 'true'], 2, /among 31 ports: at most 30/],
    [['--shared', '1MiB', '--programs', '16', '--', 'true'], 2, /with more than 64 KiB each/],
    [['--backend', '/no/such/socket', '--device', 'soft-shm', '--', 'true'], 2, /do not go with --backend/],
    [['--backend', '/no/such/socket', '--', 'true'], 3, /connect to the remoting backend at .*: nobody listens there/],
    [['--name', 'no name', '--', 'true'], 2, /the name "no name" is not/],
  ] as const) {
    const outcome = await runCaptured(['guest', 'run', ...words]);
    assert.equal(outcome.code, code, `${words.join(' ')}: ${outcome.stderr}`);
    assert.match(outcome.stderr, message);
    assert.equal(outcome.stdout, '');
  }
});
