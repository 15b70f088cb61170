import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { runCaptured } from './fixtures/captured-world.ts';

describe('millrace relay', () => {
  test('explains itself with examples', async () => {
    const { code, stdout } = await runCaptured(['relay', '--help']);
    assert.equal(code, 0);
    assert.match(stdout, /Usage: millrace relay/);
    assert.match(stdout, /--peer b=10\.0\.0\.2:4790/);
  });

  test('nonsense is one line and a usage error', async () => {
    const rule = ['--rule', 'connect to any'];
    for (const [args, message] of [
      [[], /nothing to carry; give --rule/],
      [['--rules', '/does/not/exist'], /read rules from \/does\/not\/exist: ENOENT/],
      [['--rule', 'carry everything'], /'carry' is none of/],
      [['--rules', 'x', ...rule], /cannot be used with option/],
      [[...rule, '--listen', '0.0.0.0'], /one address of this host/],
      [[...rule, '--listen', 'localhost'], /expected an address/],
      [[...rule, '--listen', '127.0.0.1', '--listen', '127.0.0.2'], /one IPv4 and one IPv6/],
      [[...rule, '--peer', '10.0.0.2'], /as b=10\.0\.0\.2:4790/],
      [[...rule, '--announce', '10.0.0.2'], /no address and port/],
      [[...rule, '--control-port', 'x'], /expected 0 to 65535/],
    ] as const) {
      const { code, stdout, stderr } = await runCaptured(['relay', ...args]);
      assert.equal(code, 2, args.join(' '));
      assert.equal(stdout, '');
      assert.match(stderr, message);
    }
  });
});
