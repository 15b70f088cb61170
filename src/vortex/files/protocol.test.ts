import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { filesProtocol } from './protocol.ts';

const offer = { kind: 'offer', name: 'x', sizeBytes: 1, modifiedNs: '1' };
const hello = { millrace: 'files', version: 2 };

describe('what sender and receiver of a file say', () => {
  test('names that lead out of a folder, or are none, are refused', () => {
    for (const name of ['', '.', '..', '../x', '/etc/passwd', 'a/b', 'a\0b', 'a\nb', '\u001b[2J', 'x'.repeat(256), 7]) {
      assert.throws(() => filesProtocol.decode({ ...offer, name }), /name is .*; expected the name of a file/);
    }
    assert.throws(() => filesProtocol.decode({ ...offer, name: '€'.repeat(86) }), /expected the name of a file/);
    assert.throws(() => filesProtocol.decode({ ...offer, name: '\ud800' }), /expected the name of a file/);
    for (const name of ['a', '.a', '...', 'ä €', 'x'.repeat(255)]) filesProtocol.decode({ ...offer, name });
  });

  test('what breaks the protocol is refused with a reason', () => {
    for (const [line, reason] of [
      [null, /files message is null; expected an object/],
      [{}, /its kind is missing/],
      [{ ...hello, millrace: 'vortex' }, /its protocol is "vortex"; expected files/],
      [{ ...hello, version: 1 }, /its version is 1; expected 2/],
      [{ ...hello, more: 1 }, /more is no field of it/],
      [{ kind: 'have', bytes: -1 }, /bytes is -1/],
      [{ kind: 'have', bytes: 1.5 }, /bytes is 1.5/],
      [{ kind: 'have', bytes: 2 ** 53 }, /bytes is/],
      [{ kind: 'have', bytes: 1, busy: true }, /busy is no field of it/],
      [{ kind: 'stream', port: 0, startBytes: 0 }, /port is 0; expected 1 to 65535/],
      [{ kind: 'sum', sizeBytes: 1, sha256: 'AB' }, /sha256 is "AB"; expected 64 hexadecimal digits/],
      [{ ...offer, modifiedNs: 5 }, /modifiedNs is 5; expected nanoseconds/],
      [{ kind: 'failed', code: 'rm -rf', reason: '' }, /code is "rm -rf"; expected an error code/],
    ] as const) {
      assert.throws(() => filesProtocol.decode(line), { code: 'MILLRACE_ERR_PROTOCOL', message: reason });
    }
  });

  test('a reason moves no cursor', () => {
    const failed = filesProtocol.decode({ kind: 'failed', code: 'ENOSPC', reason: 'a\u001b[2Jb\nc' });
    assert.deepEqual(failed, { kind: 'failed', code: 'ENOSPC', reason: 'ab\\x0ac' });
  });
});
