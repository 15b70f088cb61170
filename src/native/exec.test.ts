import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { describe, test } from 'node:test';

interface Request {
  readonly words: readonly string[];
  readonly changes?: Readonly<Record<string, string | null>>;
  readonly state?: Readonly<Record<string, unknown>>;
}

const program = join(import.meta.dirname, 'fixtures/become.ts');

function become({ words, changes = {}, state = {} }: Request): string {
  const { stdout, stderr } = spawnSync(
    process.execPath,
    ['--no-warnings', program, JSON.stringify({ words, changes, state })],
    {
      env: { ...process.env, KEPT: 'kept', GONE: 'gone' },
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'pipe', 'ignore'],
    },
  );
  return `${stdout}${stderr}`;
}

/** A shell would change some of it. */
const signals = ['grep', '-E', '^Sig(Blk|Ign)', '/proc/self/status'];

describe('becoming another program', () => {
  test('that cannot be started gives the reason, and this one goes on as before', () => {
    const [code, blocked, ignored = ''] = become({
      words: ['no-such-program'],
      state: { ignoredSignals: [1] },
    }).split(' ');
    assert.deepEqual([code, blocked], ['ENOENT', '0000000000000000']);
    const SIGPIPE = 1n << 12n;
    assert.equal(BigInt(`0x${ignored.trim()}`) & SIGPIPE, SIGPIPE);
    assert.match(become({ words: ['/etc'] }), /^EACCES /);
  });

  test('without a name is refused', () => {
    for (const words of [[], [''], ['', 'x']]) assert.match(become({ words }), /RangeError: expected a program/);
  });

  test('finds it in PATH, with its arguments, and the environment with its changes', () => {
    const echo = 'echo "$1,$2 $KEPT,$GONE,$NEW,$EMPTY"';
    assert.equal(
      become({ words: ['sh', '-c', echo, 'sh', 'a b', ''], changes: { GONE: null, NEW: 'new=', EMPTY: '' } }),
      'a b, kept,,new=,\n',
    );
    assert.equal(become({ words: ['sh', '-c', echo], changes: { KEP: 'x', KEPT2: 'y' } }), ', kept,gone,,\n');
  });

  test('ignores the signals that it should and no other, and blocks none', () => {
    const none = '0000000000000000';
    assert.equal(become({ words: signals }), `SigBlk:\t${none}\nSigIgn:\t${none}\n`);
    assert.equal(
      become({ words: signals, state: { ignoredSignals: [1, 13] } }),
      `SigBlk:\t${none}\nSigIgn:\t0000000000001001\n`,
    );
  });

  test('inherits the descriptors that it should, and no other', () => {
    const list = 'for fd in 3 4 5 6; do test -e /proc/$$/fd/$fd && echo $fd; done';
    assert.equal(become({ words: ['sh', '-c', list] }), '');
    assert.equal(become({ words: ['sh', '-c', list], state: { descriptors: [3, 987_654] } }), '3\n');
  });

  test('has the limit of open files that it should, which never grows', () => {
    assert.equal(become({ words: ['sh', '-c', 'ulimit -Sn'], state: { openFiles: 99 } }), '99\n');
    const hard = become({ words: ['sh', '-c', 'ulimit -Hn'] });
    assert.equal(become({ words: ['sh', '-c', 'ulimit -Sn'] }), hard);
  });

  test('has the flags of its standard streams that it should', () => {
    const flags = (stdioFlags: readonly number[]): number =>
      Number.parseInt(
        /flags:\s*(\d+)/.exec(become({ words: ['cat', '/proc/self/fdinfo/2'], state: { stdioFlags } }))?.[1] ?? '',
        8,
      );
    const O_NONBLOCK = 0o4000;
    assert.equal(flags([-1, -1, O_NONBLOCK]) & O_NONBLOCK, O_NONBLOCK);
    assert.equal(flags([-1, -1, 0]) & O_NONBLOCK, 0);
  });
});

test('a process ends at once with its exit code, also where a thread is stuck in a call', () => {
  const stuck = join(import.meta.dirname, 'fixtures/end-stuck.ts');
  const { status, stderr } = spawnSync(process.execPath, ['--no-warnings', stuck], { encoding: 'utf8' });
  assert.equal(status, 7, stderr);
});
