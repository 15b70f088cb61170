// Tests of the host's end of an agent, against an agent that says what the test wants.

import assert from 'node:assert/strict';
import { duplexPair } from 'node:stream';
import { test } from 'node:test';
import { MillraceError, UsageError } from '../../errors.ts';
import { AgentClient } from './agent-client.ts';
import { encodeFrame, type Frame, FrameDecoder, type FrameType, protocolVersion } from './frames.ts';

type Answer = (type: FrameType, id: number, payload?: Uint8Array | string) => void;

/** A session whose agent answers each frame by `react`. */
function sessionWith(react: (frame: Frame, answer: Answer) => void): {
  readonly session: AgentClient;
  readonly answer: Answer;
  readonly send: (bytes: Uint8Array) => void;
} {
  const [ours, theirs] = duplexPair();
  const decoder = new FrameDecoder();
  const answer: Answer = (type, id, payload) => void theirs.write(encodeFrame(type, id, payload));
  theirs.on('data', (chunk: Buffer) => {
    for (const frame of decoder.push(chunk)) react(frame, answer);
  });
  return { session: new AgentClient(ours, 'test'), answer, send: (bytes) => void theirs.write(bytes) };
}

const exitText = (code: number | null, signal: string | null = null, error: string | null = null): string =>
  JSON.stringify({ code, signal, error });

const wrongUses: readonly (readonly [string, Parameters<AgentClient['run']>])[] = [
  ['no words', [[]]],
  ['an empty word first', [['']]],
  ['a zero byte in a word', [['a\0b']]],
  ['a zero byte in a variable', [['a'], { env: { A: '\0' } }]],
  ['two megabytes of words', [['x'.repeat(2 ** 21)]]],
];

for (const [what, args] of wrongUses) {
  test(`a command with ${what} is refused before the guest hears of it`, async () => {
    const { session } = sessionWith(() => assert.fail('the agent was asked'));
    await assert.rejects(session.run(...args), UsageError);
  });
}

test('output of commands that run at once is kept apart', async () => {
  const ids: number[] = [];
  const { session } = sessionWith(({ type, id }, answer) => {
    if (type !== 'start') return;
    ids.push(id);
    if (ids.length < 2) return;
    for (const each of ids) answer('stdout', each, `out ${each};`);
    for (const each of ids.toReversed()) answer('stderr', each, `err ${each}`);
    for (const each of ids) answer('stdout', each, 'end');
    for (const each of ids.toReversed()) answer('exit', each, exitText(each));
  });
  const [first, second] = await Promise.all([session.run(['a']), session.run(['b'])]);
  assert.deepEqual(first, { status: 1, signal: null, stdout: 'out 1;end', stderr: 'err 1' });
  assert.deepEqual(second, { status: 2, signal: null, stdout: 'out 2;end', stderr: 'err 2' });
});

test('a signal that ended a command is told as shells tell it', async () => {
  const { session } = sessionWith(({ type, id }, answer) => {
    if (type === 'start') answer('exit', id, exitText(null, 'SIGSEGV'));
  });
  assert.deepEqual(await session.run(['a']), { status: 139, signal: 'SIGSEGV', stdout: '', stderr: '' });
});

test('a command the agent could not start is an error', async () => {
  const { session } = sessionWith(({ type, id }, answer) => {
    if (type === 'start') answer('exit', id, exitText(null, null, 'no such folder'));
  });
  await assert.rejects(session.run(['a'], { cwd: '/none' }), /run a in guest test: no such folder/);
});

test('a timeout waits until the agent says that the command is gone', async () => {
  const seen: FrameType[] = [];
  const { session } = sessionWith(({ type, id }, answer) => {
    seen.push(type);
    if (type === 'start') answer('stdout', id, 'still busy\n');
    if (type === 'kill') answer('exit', id, exitText(null, 'SIGKILL'));
  });
  await assert.rejects(session.run(['slow'], { timeoutMs: 20 }), /did not end within 20 ms\n {2}still busy$/);
  assert.deepEqual(seen, ['start', 'kill']);
});

test('an abort ends a run with its reason', async () => {
  const controller = new AbortController();
  const { session } = sessionWith(({ type, id }, answer) => {
    if (type === 'start') controller.abort(new Error('enough'));
    if (type === 'kill') answer('exit', id, exitText(null, 'SIGKILL'));
  });
  await assert.rejects(session.run(['slow'], { signal: controller.signal }), /enough/);
});

test('a listener that throws ends its command, and no other', async () => {
  const { session } = sessionWith(({ type, id }, answer) => {
    if (type === 'start') answer('stdout', id, 'x');
    if (type === 'start' && id === 2) answer('exit', id, exitText(0));
    if (type === 'kill') answer('exit', id, exitText(null, 'SIGKILL'));
  });
  const onOutput = (): void => {
    throw new Error('listener');
  };
  const results = await Promise.allSettled([session.run(['a'], { onOutput }), session.run(['b'])]);
  assert.deepEqual(
    results.map(({ status }) => status),
    ['rejected', 'fulfilled'],
  );
});

test('output that is not captured reaches the listener only', async () => {
  const { session } = sessionWith(({ type, id }, answer) => {
    if (type !== 'start') return;
    answer('stderr', id, 'seen');
    answer('exit', id, exitText(0));
  });
  const seen: string[] = [];
  const onOutput = (chunk: Uint8Array, stream: string): void =>
    void seen.push(`${stream} ${Buffer.from(chunk).toString()}`);
  const { stderr } = await session.run(['a'], { onOutput, isCaptured: false });
  assert.deepEqual({ stderr, seen }, { stderr: '', seen: ['stderr seen'] });
});

const nonsense: readonly (readonly [string, Uint8Array])[] = [
  ['bytes that are no frame', Buffer.alloc(20, 0xff)],
  ['an exit status of 999', encodeFrame('exit', 1, exitText(999))],
  ['a signal nobody knows', encodeFrame('exit', 1, exitText(null, 'SIGFOO'))],
  ['an exit that is no JSON', encodeFrame('exit', 1, '{')],
  ['a frame only hosts send', encodeFrame('kill', 1)],
];

for (const [what, bytes] of nonsense) {
  test(`a guest that sends ${what} fails every command, and is not listened to any more`, async () => {
    const { session, send } = sessionWith(({ type }) => {
      if (type === 'start') send(bytes);
    });
    const isNonsense = (error: unknown): boolean =>
      error instanceof MillraceError && /violated the protocol/.test(error.message);
    await assert.rejects(session.run(['a']), isNonsense);
    await assert.rejects(session.run(['b']), isNonsense);
  });
}

test('a guest that died fails what runs, what comes later, and whoever waits for it to boot', async () => {
  const { session } = sessionWith(() => {});
  const running = session.run(['a']);
  session.fail(new Error('dead'));
  await assert.rejects(running, /dead/);
  await assert.rejects(session.run(['b']), /dead/);
  await assert.rejects(session.ready, /dead/);
});

test('a guest of another version is refused, one of this is ready', async () => {
  const hello = (version: number): string => JSON.stringify({ version, kernel: '6.12', problems: '' });
  const old = sessionWith(() => {});
  old.answer('ready', 0, hello(protocolVersion - 1));
  await assert.rejects(old.session.ready, /of another version/);
  const { session, answer } = sessionWith(() => {});
  answer('ready', 0, hello(protocolVersion));
  assert.equal((await session.ready).kernel, '6.12');
});
