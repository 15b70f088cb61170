import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Answer, Feature, Finding } from './finding.ts';
import { readiness, summarize } from './summary.ts';

interface Options {
  readonly needs?: readonly Feature[];
  readonly improves?: readonly Feature[];
  readonly isForbidden?: boolean;
}

function finding(id: string, answer: Answer, { needs = [], improves = [], isForbidden = false }: Options): Finding {
  return { id, group: 'kernel', title: id, answer, detail: '', neededBy: needs, improves, isForbidden };
}

function statusOf(feature: Feature, findings: readonly Finding[]) {
  const found = summarize(findings).find((summary) => summary.feature === feature);
  return { status: found?.status, because: found?.because };
}

describe('the summary', () => {
  test('one no outweighs what is open, and is the reason given', () => {
    const findings = [finding('a', 'unknown', { needs: ['lab'] }), finding('b', 'no', { needs: ['lab'] })];
    assert.deepEqual(statusOf('lab', findings), { status: 'no', because: ['b'] });
  });

  test('what is open leaves the feature open', () => {
    const findings = [finding('a', 'unknown', { needs: ['lab'] }), finding('b', 'no', { improves: ['lab'] })];
    assert.deepEqual(statusOf('lab', findings), { status: 'unknown', because: ['a'] });
  });

  test('what would improve a feature does not stop it', () => {
    const findings = [finding('a', 'yes', { needs: ['vortex'] }), finding('b', 'no', { improves: ['vortex'] })];
    assert.deepEqual(statusOf('vortex', findings), { status: 'partly', because: ['b'] });
  });

  test('a feature whose needs are all met works', () => {
    assert.deepEqual(statusOf('lab', [finding('a', 'yes', { needs: ['lab'] })]), { status: 'works', because: [] });
  });
});

describe('readiness', () => {
  test('is about the lab and connect steering only', () => {
    assert.equal(readiness([finding('a', 'no', { needs: ['ibverbs', 'vm'], improves: ['lab'] })]), 'ready');
  });

  test('a missing kernel feature is unsupported', () => {
    assert.equal(readiness([finding('a', 'no', { needs: ['connect'] })]), 'unsupported');
  });

  test('a refusal anywhere makes it a matter of permission', () => {
    const findings = [
      finding('a', 'unknown', { needs: ['connect'] }),
      finding('b', 'unknown', { needs: ['lab'], isForbidden: true }),
    ];
    assert.equal(readiness(findings), 'forbidden');
  });
});
