import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseCsv } from './redis.ts';

test('redis-benchmark figures are found by the names of their columns', () => {
  const csv = [
    'WARNING: something',
    '"test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms","max_latency_ms"',
    '"SET","50761.42","0.300","0.112","0.295","0.415","0.559","1.055"',
    '',
  ].join('\n');
  assert.deepEqual(parseCsv(csv), [
    { test: 'SET', requestsPerSecond: 50761.42, p50Ms: 0.295, p95Ms: 0.415, p99Ms: 0.559 },
  ]);
});

test('an output without figures has none', () => assert.deepEqual(parseCsv('Could not connect to Redis\n'), []));
