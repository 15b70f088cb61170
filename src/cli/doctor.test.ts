import assert from 'node:assert/strict';
import { PassThrough } from 'node:stream';
import { describe, test } from 'node:test';
import type { Finding, Report } from '../doctor/index.ts';
import { featureLines, renderReport } from './doctor.ts';

const plain = (_style: string, text: string): string => text;

const finding: Finding = {
  id: 'a',
  group: 'kernel',
  title: 'a thing',
  answer: 'yes',
  detail: 'here',
  neededBy: [],
  improves: [],
  isForbidden: false,
};

function reportOf(...findings: readonly Finding[]): Report {
  const features = [{ feature: 'lab', title: 'lab and demo', status: 'partly', because: ['b'] }] as const;
  return { v: 1, readiness: 'ready', findings, features };
}

function render(report: Report, { columns = 100, isTTY = false, env = {} } = {}): string {
  return renderReport(report, { stdout: Object.assign(new PassThrough(), { columns, isTTY }), env });
}

describe('the report for people', () => {
  const missing: Finding = {
    ...finding,
    id: 'b',
    title: 'another',
    answer: 'no',
    detail: 'gone',
    consequence: 'it is missed',
    fix: 'get one',
  };

  test('shows consequence and fix under what is not a yes, and a fix that repeats only once', () => {
    const open: Finding = { ...missing, id: 'c', title: 'third', answer: 'unknown', detail: 'who knows' };
    assert.deepEqual(render(reportOf(finding, missing, open)).split('\n'), [
      'kernel',
      '  yes  a thing  here',
      '  no   another  gone',
      '       so:   it is missed',
      '       fix:  get one',
      '  ?    third    who knows',
      '       so:   it is missed',
      '       fix:  as above',
      '',
      'what works here',
      '  works partly    lab and demo  without: another',
      '',
      'The demo and the proxy with its defaults run here.',
      '',
    ]);
  });

  test('breaks long details and endless words within the columns', () => {
    const long = { ...missing, detail: `${'word '.repeat(40)}${'x'.repeat(150)}`, fix: `do ${'y'.repeat(150)}` };
    for (const columns of [60, 80, 100]) {
      const lines = render(reportOf(long), { columns }).split('\n');
      assert.ok(Math.max(...lines.map((line) => line.length)) <= columns);
    }
  });

  test('is coloured on a terminal only, and not under NO_COLOR', () => {
    assert.ok(render(reportOf(finding), { isTTY: true }).includes('\u001b['));
    assert.ok(!render(reportOf(finding), { isTTY: true, env: { NO_COLOR: '1' } }).includes('\u001b['));
    assert.ok(!render(reportOf(finding)).includes('\u001b['));
  });

  test('names a finding in the way of a feature by its title, or by its id where it has none', () => {
    assert.deepEqual(featureLines(reportOf(finding), plain), ['works partly    lab and demo  without: b']);
  });
});
