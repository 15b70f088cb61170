import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { EventEmitter, once } from 'node:events';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { describe, test } from 'node:test';
import { temporaryFolder } from '../server/fixtures/fake-source.ts';
import { runCaptured } from './fixtures/captured-world.ts';

const verbs = new URL('../providers/index.ts', import.meta.url).href;
const guestProgram = `
  const { openDevice } = await import(${JSON.stringify(verbs)});
  const device = openDevice('soft-shm');
  device.createPd();
  process.stdout.write('open');
  process.stdin.resume().on('end', () => device.close());`;

type Line = Readonly<Record<string, unknown>>;
type Env = Record<string, string | undefined>;
type Hears = (event: string) => Promise<Line>;

/** A backend in a folder of its own that runs until the callback is done; what it said. */
async function withBackend(
  use: (env: Env, ready: { socket: string; url: string }, hears: Hears) => Promise<void>,
): Promise<readonly Line[]> {
  using folder = temporaryFolder();
  const env = { PATH: process.env.PATH, MILLRACE_RUN_DIR: folder.path };
  const stop = new AbortController();
  const stdout = new PassThrough({ encoding: 'utf8' });
  const lines: Line[] = [];
  const heard = new EventEmitter();
  stdout.on('data', (chunk: string) => {
    for (const text of chunk.trim().split('\n')) {
      const line = JSON.parse(text) as Line;
      lines.push(line);
      heard.emit(String(line.event), line);
    }
  });
  const hears: Hears = async (event) =>
    lines.find((line) => line.event === event) ?? ((await once(heard, event)) as [Line])[0];
  const args = ['backend', '--device', 'soft-shm', '--memory', '64MiB', '--http', '127.0.0.1:0', '--json'];
  const ended = runCaptured(args, { env, signal: stop.signal, stdout });
  try {
    const ready = await Promise.race([hears('ready'), ended.then(({ stderr }) => assert.fail(stderr))]);
    await use(env, ready as unknown as { socket: string; url: string }, hears);
  } finally {
    stop.abort();
    const { code } = await ended;
    assert.equal(code, 0);
    assert.equal(existsSync(join(folder.path, 'backend', 'guests')), false);
    assert.equal(existsSync(join(folder.path, 'backend', 'api')), false);
  }
  return lines;
}

describe('millrace backend', () => {
  test('nonsense is one line and a usage error', async () => {
    for (const [args, message] of [
      [['--device', 'soft-shn'], /lend soft-shn: there is no such device \(did you mean soft-shm\?\)/],
      [['--memory', 'much'], /Give a size, as 64MiB/],
      [['--uid', 'root'], /Give a whole number/],
      [['--http', '9100'], /Give an address and port/],
      [['--wait', 'never'], /Allowed choices are/],
    ] as const) {
      const { code, stdout, stderr } = await runCaptured(['backend', ...args]);
      assert.equal(code, 2, args.join(' '));
      assert.equal(stdout, '');
      assert.match(stderr, message);
    }
  });

  test('lends devices to guests, and says who they are until they end', async () => {
    const events = await withBackend(async (env, { socket, url }, hears) => {
      // Calls block their thread until the backend answers, so the guest is another process.
      const guest = spawn(process.execPath, ['--no-warnings', '--input-type=module', '-e', guestProgram], {
        env: { ...process.env, MILLRACE_BACKEND: socket },
        stdio: ['pipe', 'pipe', 'inherit'],
      });
      using _ = { [Symbol.dispose]: () => guest.kill() };
      const gone = once(guest, 'exit');
      await once(guest.stdout, 'data');
      const { stdout } = await runCaptured(['guest'], { env });
      assert.match(stdout, /^lending soft-shm at .*\n1 of 64 guests; 1 accepted so far, 0 refused, 0 dropped\n/);
      assert.match(stdout, /^ +1 +pid \d+ of uid \d+ /m);
      const detail = await runCaptured(['guest', 'show', '1'], { env });
      assert.match(detail.stdout, /^ {2}pds +1 of \d+$/m);
      assert.match(detail.stdout, /^ {2}memoryBytes +.* of 64 MiB$/m);
      const json = JSON.parse((await runCaptured(['guest', '--json'], { env })).stdout) as { guests: { id: number }[] };
      assert.deepEqual(
        json.guests.map(({ id }) => id),
        [1],
      );
      const text = await (await fetch(`${url}/metrics`)).text();
      assert.match(text, /^millrace_backend_guests 1$/m);
      assert.match(text, /^millrace_guest_used\{guest="1",kind="pds"\} 1$/m);
      guest.stdin.end();
      await gone;
      await hears('ended');
      assert.match((await runCaptured(['guest'], { env })).stdout, /^0 of 64 guests/m);
    });
    assert.deepEqual(
      events.map(({ event }) => event),
      ['ready', 'connected', 'ended'],
    );
  });

  test('a guest that is not there, and a backend that does not run, are one line each', async () => {
    await withBackend(async (env) => {
      const outcome = await runCaptured(['guest', 'show', '7'], { env });
      assert.deepEqual(outcome, {
        code: 2,
        stdout: '',
        stderr: 'millrace: there is no guest 7; no guest is connected\n',
      });
    });
    using folder = temporaryFolder();
    const { code, stderr } = await runCaptured(['guest'], { env: { MILLRACE_RUN_DIR: folder.path } });
    assert.equal(code, 3);
    assert.match(stderr, /^millrace: no backend answers on .*\(start one with 'millrace backend'\)\n$/);
  });
});
