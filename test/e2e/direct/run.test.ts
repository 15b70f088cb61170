// `millrace run`: a program that is started by it is the same process, with the same descriptors,
// signals, limits and terminal as without.

import assert from 'node:assert/strict';
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { after, describe, test } from 'node:test';

const root = join(import.meta.dirname, '../../..');
const millrace = join(root, 'millrace');
const library = join(root, 'build/direct/libmillrace-direct.so');
const folder = mkdtempSync(join(tmpdir(), 'millrace-run-'));
after(() => rmSync(folder, { recursive: true, force: true }));
const env = { PATH: process.env.PATH, MILLRACE_RUN_DIR: folder };

interface Outcome {
  readonly status: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: string;
  readonly stderr: string;
}

function run(words: readonly string[], change: Record<string, string> = {}, input = ''): Outcome {
  return spawnSync(millrace, ['run', ...words], { env: { ...env, ...change }, input, encoding: 'utf8' });
}

function programFile(name: string, text: string, mode = 0o755): string {
  const path = join(folder, name);
  writeFileSync(path, text);
  chmodSync(path, mode);
  return path;
}

describe('a program that cannot be run', () => {
  test('that does not exist ends as in a shell, with 127', () => {
    const { status, stderr } = run(['no-such-program']);
    assert.equal(status, 127);
    assert.match(stderr, /^millrace: run no-such-program: no such program; see whether .*\n$/);
    assert.equal(run([join(folder, 'none')]).status, 127);
  });

  test('that may not be executed ends as in a shell, with 126', () => {
    const path = programFile('plain', 'text', 0o644);
    const { status, stderr } = run([path]);
    assert.equal(status, 126);
    assert.match(stderr, /it may not be executed/);
    assert.equal(run([folder]).status, 126);
  });

  test('that names an interpreter which is missing is told so', () => {
    const { status, stderr } = run([programFile('orphan', '#!/no/such/interpreter\n')]);
    assert.equal(status, 127);
    assert.match(stderr, /the interpreter that it names does not exist/);
  });
});

describe('a program that is run', () => {
  test('is the same process, and its exit status is its own', async () => {
    const child = spawn(millrace, ['run', '--', 'sh', '-c', 'echo $$; exit 7'], { env });
    const [line] = (await once(createInterface(child.stdout), 'line')) as [string];
    assert.equal(Number(line), child.pid);
    assert.deepEqual(await once(child, 'close'), [7, null]);
  });

  test('gets signals itself, and is ended by them', async () => {
    const script = 'trap "echo got" USR1; echo ready; while :; do sleep 0.01; done';
    const child = spawn(millrace, ['run', 'sh', '-c', script], { env });
    const closed = once(child, 'close');
    for await (const line of createInterface(child.stdout)) {
      if (line === 'ready') child.kill('SIGUSR1');
      else if (line === 'got') child.kill('SIGTERM');
    }
    assert.deepEqual(await closed, [null, 'SIGTERM']);
  });

  test('ends when nobody reads its output', () => {
    const { stdout } = spawnSync(
      'bash',
      ['--norc', '-c', `"$0" run yes | head -n 1; echo "\${PIPESTATUS[0]}"`, millrace],
      {
        env,
        encoding: 'utf8',
      },
    );
    assert.equal(stdout, `y\n${128 + 13}\n`);
  });

  // What it finds, in a shell so that the same can be asked with and without millrace.
  const probe = [
    'grep -E "^SigIgn" /proc/self/status',
    'ulimit -Sn; ulimit -Hn; umask; pwd; ulimit -c',
    'for fd in 0 1 2 5 6 7 8; do readlink /proc/$$/fd/$fd; grep flags /proc/$$/fdinfo/$fd; done',
    'ls /proc/$$/fd; cat <&5; cat',
  ].join('; ');
  const starts: Readonly<Record<string, string>> = {
    'as usual': '"$@"',
    'with ignored signals': 'exec env --ignore-signal=HUP --ignore-signal=PIPE "$@"',
    'with a low limit of open files': 'ulimit -Sn 77; exec "$@"',
    'with pipes': 'echo input | "$@" 2>&1 | cat',
    'with closed descriptors between open ones': 'exec 3<&- 4<&- 9</dev/zero; exec "$@"',
  };
  for (const [how, start] of Object.entries(starts)) {
    test(`finds everything as without millrace: ${how}`, () => {
      const inherited = programFile('inherited', 'inherited\n');
      const ask = (...words: readonly string[]): string => {
        // Descriptor 5 is a file, 6 a pipe, 7 a file that is written, 8 the output.
        const script = `exec 5<"$1" 6< <(exec sleep 0) 7>>"$2" 8>&1; shift 2; ${start}`;
        const { stdout, stderr } = spawnSync(
          'bash',
          ['--norc', '-c', script, 'bash', inherited, join(folder, 'written'), ...words, 'sh', '-c', probe],
          { env, encoding: 'utf8', input: 'input\n' },
        );
        return `${stdout}${stderr}`.replace(/(pipe|socket):\[\d+\]/g, '$1');
      };
      const without = ask('env');
      assert.match(without, /^flags:/m);
      assert.match(without, /inherited\ninput\n/);
      assert.equal(ask(millrace, 'run'), without);
    });
  }

  test('gets arguments and environment as bytes, and the library in front of other preloaded ones', () => {
    const script = '"$0" run sh -c \'printf %s "$1"; printf %s "$BYTES"\' sh "$(printf "\\377")" | od -An -tx1';
    const { stdout } = spawnSync('bash', ['--norc', '-c', `export BYTES=$(printf "\\376"); ${script}`, millrace], {
      env,
      encoding: 'utf8',
    });
    assert.equal(stdout, ' ff fe\n');
    const other = `${library}.none`;
    const { stdout: variables } = run(['env'], { LD_PRELOAD: other, MILLRACE_START: 'nonsense' });
    assert.match(variables, new RegExp(`^LD_PRELOAD=${library}:${other}$`, 'm'));
    assert.match(variables, new RegExp(`^MILLRACE_DIRECT_SOCKET=${folder}/`, 'm'));
    assert.doesNotMatch(variables, /MILLRACE_START/);
  });

  test('finds the socket of the instance that was named, or the one in the environment', () => {
    const show = (words: readonly string[], change = {}): string =>
      run([...words, 'sh', '-c', 'echo $MILLRACE_DIRECT_SOCKET'], change).stdout.trim();
    assert.match(show(['--instance', 'other']), /other/);
    assert.equal(show([], { MILLRACE_DIRECT_SOCKET: '/mounted/socket' }), '/mounted/socket');
    assert.match(show(['--instance', 'other'], { MILLRACE_DIRECT_SOCKET: '/mounted/socket' }), /other/);
  });

  test('passes on all of its input and output, although something was said before', () => {
    const input = 'x'.repeat(2 ** 20);
    const { stdout, stderr } = run(['busybox', 'cat'], { MILLRACE_DIRECT: 'verbose' }, input);
    assert.equal(stdout, input);
    assert.match(stderr, /^millrace: \S+busybox is linked statically, so its connections are plain TCP\n$/);
  });

  test('that is a script without a first line is run by a shell', () => {
    assert.equal(run([programFile('bare', 'echo $1; exit 3\n'), 'word']).stdout, 'word\n');
  });

  test('has the terminal, and Ctrl-C ends it', async () => {
    const words = `${millrace} run sh -c 'test -t 0 && test -t 1 && stty size && echo ready; exec sleep 1000'`;
    const child = spawn('script', ['--quiet', '--return', '--command', `stty rows 31 cols 99; ${words}`, '/dev/null'], {
      env: { ...env, SHELL: '/bin/sh' },
    });
    const closed = once(child, 'close');
    const lines: string[] = [];
    for await (const line of createInterface(child.stdout)) {
      lines.push(line);
      if (line === 'ready') child.stdin.write('\x03');
    }
    assert.deepEqual(lines.slice(0, 2), ['31 99', 'ready']);
    assert.deepEqual(await closed, [130, null]);
  });
});

describe('the library', () => {
  const source = programFile('hello.c', '#include <stdio.h>\nint main(void) { puts("hello"); return 5; }\n');
  const compile = (compiler: string): string => {
    const path = join(folder, `hello-${compiler}`);
    execFileSync(compiler, [source, '-o', path]);
    return path;
  };

  test('needs no other library and no version of a function', () => {
    const dynamic = execFileSync('readelf', ['--dynamic', '--version-info', '--wide', library], { encoding: 'utf8' });
    assert.doesNotMatch(dynamic, /NEEDED|VERNEED/);
    assert.match(dynamic, /BIND_NOW/);
  });

  test('loads into programs of glibc and of musl, and into those that they start', () => {
    const [glibc, musl] = ['gcc', 'musl-gcc'].map(compile) as [string, string];
    for (const words of [[glibc], [musl], ['sh', '-c', `${musl}; exec ${glibc}`]]) {
      const { status, stdout, stderr } = run(words);
      assert.deepEqual({ status, stderr }, { status: 5, stderr: '' }, words.join(' '));
      assert.match(stdout, /^(hello\n)+$/);
    }
  });
});
