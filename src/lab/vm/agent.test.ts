// Tests of the agent on this machine, with a folder in place of the guest's cgroups: what it runs,
// and what it answers.

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { Agent } from './agent.ts';
import { agentSource } from './agent-files.ts';
import { PipePool } from './agent-pipes.ts';
import { type ExitMessage, encodeFrame, FrameDecoder, type FrameType } from './frames.ts';

const cgroups = mkdtempSync(join(tmpdir(), 'millrace-agent-'));
after(() => rmSync(cgroups, { recursive: true, force: true }));

/** One for all: pipes that were used must be as good as new. */
const pipes = new PipePool(cgroups);
let lastId = 0;

interface Ended extends ExitMessage {
  readonly stdout: Buffer;
  readonly stderr: Buffer;
}

async function run(words: readonly string[], { input = '', cwds = ['/'], env = {} } = {}): Promise<Ended> {
  const id = ++lastId;
  const decoder = new FrameDecoder();
  const output = { stdout: [] as Buffer[], stderr: [] as Buffer[] };
  const { promise, resolve } = Promise.withResolvers<Ended>();
  const agent = new Agent(
    async (bytes) => {
      for (const { type, payload } of decoder.push(bytes)) {
        if (type === 'stdout' || type === 'stderr') output[type].push(payload);
        if (type !== 'exit') continue;
        const exit = JSON.parse(payload.toString()) as ExitMessage;
        resolve({ ...exit, stdout: Buffer.concat(output.stdout), stderr: Buffer.concat(output.stderr) });
      }
    },
    pipes,
    cgroups,
  );
  const tell = (type: FrameType, payload: string): void => {
    for (const frame of new FrameDecoder().push(encodeFrame(type, id, payload))) agent.receive(frame);
  };
  tell('start', JSON.stringify({ words, env: { PATH: process.env.PATH ?? '', ...env }, cwds, hasInput: input !== '' }));
  if (input !== '') {
    tell('input', input);
    tell('input', '');
  }
  return promise;
}

test('a working directory that does not exist is told, not run in', async () => {
  const { code, error } = await run(['true'], { cwds: ['/none/such'] });
  assert.equal(code, null);
  assert.match(error ?? '', /\/none\/such does not exist/);
});

test('a program that does not exist ends as in a shell', async () => {
  const { code, stderr } = await run(['no-such-program']);
  assert.equal(code, 127);
  assert.match(stderr.toString(), /not found/);
});

test('the first working directory that exists is taken', async () => {
  assert.equal((await run(['pwd'], { cwds: ['/none', '/usr'] })).stdout.toString(), '/usr\n');
});

test('words are not looked at by a shell', async () => {
  const { stdout } = await run(['printf', '%s|', '$HOME', '`id`', 'a b', '', '*']);
  assert.equal(stdout.toString(), '$HOME|`id`|a b||*|');
});

test('both outputs, the input, the variables and the status arrive', async () => {
  const script = 'cat; echo "$WHO" >&2; exit 42';
  const { code, stdout, stderr } = await run(['sh', '-c', script], { input: 'in\0put', env: { WHO: 'me' } });
  assert.deepEqual([code, stdout.toString(), stderr.toString()], [42, 'in\0put', 'me\n']);
});

test('its streams are pipes, which it may open by name', async () => {
  const script = 'cat /dev/stdin; echo out > /dev/stdout; echo err > /dev/stderr';
  const { code, stdout, stderr } = await run(['bash', '-c', script], { input: 'in\n' });
  assert.deepEqual([code, stdout.toString(), stderr.toString()], [0, 'in\nout\n', 'err\n']);
});

test('many commands, more than there are pipes at first, do not mix', async () => {
  const runs = Array.from({ length: 12 }, (_, index) => run(['sh', '-c', 'cat; echo end'], { input: `${index} ` }));
  const said = (await Promise.all(runs)).map(({ stdout }) => stdout.toString());
  assert.deepEqual(
    said,
    runs.map((_, index) => `${index} end\n`),
  );
  assert.equal((await run(['cat'])).stdout.length, 0);
});

test('a command that does not read a large input ends all the same', async () => {
  assert.equal((await run(['true'], { input: 'x'.repeat(500_000) })).code, 0);
});

test('a command killed by a signal says by which', async () => {
  const { code, signal } = await run(['sh', '-c', 'kill -TERM $$']);
  assert.deepEqual([code, signal], [null, 'SIGTERM']);
});

test('the image carries the agent as JavaScript that imports only what is beside it', () => {
  const files = agentSource();
  assert.deepEqual(
    files.map(({ name }) => name),
    ['agent-main.mjs', 'agent.mjs', 'agent-pipes.mjs', 'frames.mjs'],
  );
  for (const { text } of files) {
    assert.doesNotMatch(text, /interface |: string\b/);
    const imports = [...text.matchAll(/ from '([^']+)'/g)].map(([, from = '']) => from);
    assert.ok(
      imports.every((from) => from.startsWith('node:') || files.some(({ name }) => from === `./${name}`)),
      imports.join(),
    );
  }
});
