import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { after, before, describe, test } from 'node:test';
import fc from 'fast-check';
import { conformance } from '../../../test/conformance/index.ts';
import { recordSession, type Step, stepKinds } from '../../remoting/backend/fixtures/recorded-session.ts';
import { Device } from '../../verbs/index.ts';
import { softProvider } from '../soft/index.ts';
import { recordProvider } from './record.ts';
import { RecordingError } from './recording-lines.ts';
import { type ReplayOptions, type ReplayReport, replay } from './replay.ts';

const options: ReplayOptions = { provider: softProvider, completionTimeoutMs: 10_000 };

function play(lines: readonly string[], more: Partial<ReplayOptions> = {}): Promise<ReplayReport> {
  return replay(Readable.from([Buffer.from(lines.join(''))]), { ...options, ...more });
}

const step: fc.Arbitrary<Step> = fc.record({
  kind: fc.constantFrom(...stepKinds),
  isLeft: fc.boolean(),
  length: fc.nat({ max: 20_000 }),
  at: fc.nat({ max: 30_000 }),
  imm: fc.nat({ max: 0xffff_ffff }),
});

const oneOfEach = stepKinds.map((kind, index): Step => ({ kind, isLeft: index % 2 === 0, length: 100, at: 8, imm: 7 }));

describe('a recording', { timeout: 120_000 }, () => {
  const runtimeDir = mkdtempSync(join(tmpdir(), 'millrace-replay-'));
  const previous = process.env.MILLRACE_RUN_DIR;
  let lines: string[] = [];
  before(async () => {
    process.env.MILLRACE_RUN_DIR = runtimeDir;
    lines = await recordSession(softProvider, 'soft-shm', oneOfEach);
  });
  after(() => {
    if (previous === undefined) delete process.env.MILLRACE_RUN_DIR;
    else process.env.MILLRACE_RUN_DIR = previous;
    rmSync(runtimeDir, { recursive: true });
  });

  test('with an invalid line is refused in one line that names it', async () => {
    const garbage: readonly (readonly [string, RegExp])[] = [
      ['', /it is not JSON/],
      ['{"call"', /it is not JSON/],
      ['null', /line 2: /],
      ['{"call":"format","us":0}', /line 2: call: /],
      ['{"call":"close","us":0,"id":0}', /line 2: id: /],
      ['{"call":"close","us":0,"id":99}', /line 2: object 99 was never made/],
      ['{"call":"createPd","us":0,"device":5,"id":6}', /line 2: object 5 is not a device that was made before/],
      ['{"call":"createPd","us":0,"device":5,"id":6,"more":1}', /line 2: .*more/],
      ['{"call":"poll","us":0,"cq":1,"completions":{}}', /line 2: completions: /],
    ];
    for (const [line, reason] of garbage) {
      await assert.rejects(play([lines[0] ?? '', `${line}\n`, ...lines.slice(1)]), (error) => {
        assert.ok(error instanceof RecordingError, String(error));
        assert.equal(error.line, 2);
        assert.match(error.message, reason);
        assert.doesNotMatch(error.message, /\n/);
        return true;
      });
    }
    await assert.rejects(play([]), /line 1: it is empty/);
    await assert.rejects(play(['{"millrace":"recording","version":2}\n']), /line 1: version: /);
    await assert.rejects(play(lines.slice(1)), /line 1: /);
    const half = [...lines.slice(0, 5), (lines[5] ?? '').slice(0, 20)];
    await assert.rejects(play(half), /line 6: it is not JSON/);
  });

  test('that asks for more memory than it may is refused', async () => {
    await assert.rejects(play(lines, { maxMemoryBytes: 100_000 }), /line \d+: \d+ more bytes of memory: the bound is/);
  });

  test('whose lines are shuffled or cut ends in a report or a RecordingError, whatever they are', async () => {
    await fc.assert(
      fc.asyncProperty(fc.shuffledSubarray(lines.slice(1), { maxLength: 40 }), async (some) => {
        try {
          await play([lines[0] ?? '', ...some], { completionTimeoutMs: 1 });
        } catch (error) {
          assert.ok(error instanceof RecordingError, String(error));
        }
      }),
      { numRuns: 100 },
    );
  });

  for (const device of ['soft-shm', 'soft-tcp']) {
    test(`of a random program is replayed on ${device} without a difference`, async () => {
      await fc.assert(
        fc.asyncProperty(fc.array(step, { maxLength: 20 }), async (steps) => {
          const recorded = await recordSession(softProvider, 'soft-shm', steps);
          const report = await play(recorded, { device });
          assert.deepEqual(report.differences, []);
          assert.equal(report.skipped + report.unasked + report.unrecordedRanges, 0);
          assert.equal(report.device, device);
          assert.ok(report.completions >= steps.length + 2);
        }),
        { numRuns: 15 },
      );
    });
  }

  test('that was changed is reported with the line, what came and what was recorded', async () => {
    const at = lines.findIndex((line) => line.includes('"opcode":"receive"') && line.includes('"imm":7'));
    const changes: readonly (readonly [RegExp, string, RegExp])[] = [
      [
        /"imm":7/,
        '"imm":8',
        /receive of 100 bytes with immediate 7; recorded was receive of 100 bytes with immediate 8/,
      ],
      [/"byteLength":100/, '"byteLength":99', /recorded was receive of 99 bytes/],
      [/"status":"SUCCESS"/, '"status":"LOC_LEN_ERR"', /recorded was LOC_LEN_ERR/],
      [/"opcode":"receive"/, '"opcode":"receiveWriteWithImm"', /recorded was receiveWriteWithImm/],
    ];
    for (const [from, to, what] of changes) {
      const changed = lines.with(at, (lines[at] ?? '').replace(from, to));
      const { differences } = await play(changed);
      assert.equal(differences.length, 1);
      assert.equal(differences[0]?.line, at + 1);
      assert.match(differences[0]?.what ?? '', what);
    }
    const posted = lines.findIndex((line) => line.includes('"opcode":"read"'));
    const without = await play(lines.toSpliced(posted, 1), { completionTimeoutMs: 50 });
    assert.match(without.differences[0]?.what ?? '', /no completion in 50 ms; recorded was read of 100 bytes/);
    const failing = lines.map((line) => line.replace('"access":15,"id"', '"access":2,"id"'));
    assert.match(
      (await play(failing, { completionTimeoutMs: 50 })).differences[0]?.what ?? '',
      /registerMr failed with MILLRACE_ERR_USAGE/,
    );
  });

  test('whose peer was elsewhere reports that, and does not hang', async () => {
    const numbers = lines.flatMap((line) => /"createQp".*"number":(\d+)/.exec(line)?.[1] ?? []);
    // As if the second QP had been made by another program.
    const outside = lines.map((line) => line.replace(`"destQpNumber":${numbers[1]},`, '"destQpNumber":77,'));
    const startMs = performance.now();
    const report = await play(outside, { completionTimeoutMs: 300 });
    assert.ok(performance.now() - startMs < 5000);
    assert.match(report.outside[0]?.what ?? '', new RegExp(`peer of QP ${numbers[0]}, QP 77, is not in the recording`));
    assert.ok(report.skipped > 0);
  });

  test('keeps bytes up to its bound, a hash of longer ranges, and stops at its length', async () => {
    const long: Step = { kind: 'write', isLeft: true, length: 3000, at: 0, imm: 0 };
    const hashed = await recordSession(softProvider, 'soft-shm', [long], { maxDataBytes: 1000 });
    assert.ok(hashed.some((line) => line.includes('"sha256"') && line.includes('"sizeBytes":3000')));
    const report = await play(hashed);
    assert.equal(report.unrecordedRanges, 1);
    assert.equal(report.differenceCount, 0);
    const kept = lines.find((line) => line.includes('"opcode":"write"')) ?? '';
    const bytes = Buffer.from(JSON.parse(kept).rows[0].data[0], 'base64');
    assert.deepEqual([bytes.length, new Set(bytes).size], [100, 1]);

    const cut = await recordSession(softProvider, 'soft-shm', oneOfEach, { maxBytes: 4000 });
    assert.ok(cut.join('').length < 4200);
    assert.match(cut.at(-1) ?? '', /"truncated"/);
    assert.equal((await play(cut)).isTruncated, true);
  });
});

describe('a provider that is recorded passes the suite as it did', () => {
  conformance({
    name: 'recorded shm',
    async open() {
      const recorded = recordProvider(softProvider, () => {});
      const left = new Device(recorded.openDevice('soft-shm'));
      const right = new Device(recorded.openDevice('soft-shm'));
      return {
        left,
        right,
        async [Symbol.asyncDispose]() {
          left.close();
          right.close();
        },
      };
    },
  });
});
