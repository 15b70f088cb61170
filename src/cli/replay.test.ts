import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { softProvider } from '../providers/soft/index.ts';
import { recordSession } from '../remoting/backend/fixtures/recorded-session.ts';
import { runCaptured } from './fixtures/captured-world.ts';

describe('replay', () => {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-replay-'));
  const file = join(folder, 'recording.jsonl');
  before(async () => {
    const step = { kind: 'send', isLeft: true, length: 100, at: 0, imm: 5 } as const;
    writeFileSync(file, (await recordSession(softProvider, 'soft-tcp', [step])).join(''));
  });
  after(() => rmSync(folder, { recursive: true }));

  test('a file that is not there, one that is none, and a device that is not there are usage errors', async () => {
    const other = join(folder, 'other');
    writeFileSync(other, 'hello\n');
    for (const [words, reason] of [
      [['replay', join(folder, 'absent')], /replay .*absent: ENOENT/],
      [['replay', other], /line 1: it is not JSON/],
      [['replay', file, '--device', 'soft-tpc'], /there is no RDMA device soft-tpc.*soft-tcp/],
      [['replay', file, '--timeout', '0'], /Give a number of seconds/],
    ] as const) {
      const { code, stderr } = await runCaptured(words);
      assert.equal(code, 2, stderr);
      assert.match(stderr, reason);
    }
  });

  test('the same completions are a success, others are listed', async () => {
    const same = await runCaptured(['replay', file]);
    assert.equal(same.code, 0, same.stdout);
    assert.match(same.stdout, /^\d+ calls on soft-tcp: 4 requests, 4 completions, 0 differences\n$/);
    const json = await runCaptured(['replay', file, '--json', '-d', 'soft-shm']);
    assert.equal(JSON.parse(json.stdout).differenceCount, 0);
  });
});
