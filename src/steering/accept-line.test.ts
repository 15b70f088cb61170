// Accept lines as people write them.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { formatAcceptLine, parseAcceptLines } from './accept-line.ts';

describe('accept lines', () => {
  test('what makes no sense is refused in one line that says what was meant', () => {
    for (const [line, reason] of [
      ['acept from b', /^accept line 'acept from b': 'acept' is none of accept, deny \(did you mean accept\?\)$/],
      ['connect', /'connect' is none of accept, deny/],
      ['accept form b', /'form' is none of from, to, command \(did you mean from\?\)/],
      ['accept from', /nothing follows 'from'/],
      ['accept from b from c', /'from' comes twice/],
      ['accept from b,', /'' is no name of a peer, nor a pattern, as b or web-\*/],
      ['accept from .*', /'\.\*' is no name of a peer/],
      ['accept from web/*', /'web\/\*' is no name/],
      [`accept from ${'b'.repeat(64)}`, /is no name of a peer/],
      ['deny to 10.0.0.0/33', /^accept line 'deny to 10\.0\.0\.0\/33': .*no network/],
      ['deny to any:90-80', /no port or range/],
      ['deny command a-name-that-is-too-long', /at most 15 bytes/],
      ['deny redirect', /'redirect' is none of from, to, command/],
    ] as const) {
      assert.throws(() => parseAcceptLines(line), { code: 'MILLRACE_ERR_USAGE', message: reason }, line);
    }
  });

  test('a line is printed as it is written', () => {
    for (const line of [
      'accept',
      'deny from web-*,b,*.example to 10.0.0.0/8:80,443-500 command redis-server',
      'accept to [fd00::/8]:6379',
      'deny from * to any:22',
      'accept command sshd',
    ]) {
      assert.deepEqual(parseAcceptLines(`${line} # why`).map(formatAcceptLine), [line]);
    }
  });
});
