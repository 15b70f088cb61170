import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { PerfParameters } from './parameters.ts';
import { bandwidthOf, latencyOf, tableOf } from './report.ts';
import { summarizeSamples } from './statistics.ts';

const parameters: PerfParameters = {
  test: 'write-bw',
  transport: 'shm',
  sizeBytes: 65_536,
  iterations: 5000,
  durationS: 0,
  queuePairs: 1,
  txDepth: 128,
};
const head = { v: 1, role: 'client', device: 'soft-shm', parameters } as const;

describe('a perf report', () => {
  test('percentiles are samples, also when there are few', () => {
    const one = summarizeSamples(Float64Array.of(7));
    assert.deepEqual([one.min, one.max, one.p50, one.p99, one['p99.99'], one.stdev], [7, 7, 7, 7, 7, 0]);
    const many = summarizeSamples(Float64Array.from({ length: 1000 }, (_, index) => 1000 - index));
    assert.deepEqual([many.min, many.p50, many.p90, many.p99, many['p99.9'], many.max], [1, 500, 900, 990, 999, 1000]);
    assert.equal(many.average, 500.5);
    assert.ok(Math.abs(many.stdev - 288.67) < 0.01);
  });

  test('bandwidth has the columns of perftest, each figure below its title', () => {
    const figures = { iterations: 5000, elapsedNs: 5e8, averageBytesPerS: 5000 * 65_536 * 2, peakBytesPerS: 2 ** 30 };
    const [, header, row] = tableOf({ ...head, ...bandwidthOf(figures) });
    assert.equal(header, ' #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]');
    assert.match(row, /^ 65536 +5000 +1024.00 +625.00 +0.010000$/);
    for (const [title, figure] of [
      ['#iterations', '5000 '],
      ['BW peak', '1024.00'],
      ['BW average', '625.00'],
      ['MsgRate', '0.010000'],
    ] as const) {
      assert.equal(row.indexOf(` ${figure}`), header.indexOf(` ${title}`));
    }
  });

  test('latency has the columns of perftest, each figure below its title', () => {
    const samplesNs = Float64Array.from({ length: 100 }, (_, index) => (index + 1) * 1000);
    const [, header, row] = tableOf({ ...head, ...latencyOf({ iterations: 100, samplesNs }) });
    assert.equal(
      header,
      ' #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]' +
        '   99% percentile[usec]   99.9% percentile[usec]',
    );
    assert.deepEqual(row.trim().split(/ +/), [
      '65536',
      '100',
      '1.00',
      '100.00',
      '50.00',
      '50.50',
      '28.87',
      '99.00',
      '100.00',
    ]);
    assert.equal(row.lastIndexOf(' 100.00'), header.indexOf(' 99.9% percentile'));
    assert.equal(row.indexOf(' 28.87'), header.indexOf(' t_stdev'));
  });

  test('a server that measured nothing prints no table', () => {
    assert.deepEqual(tableOf({ ...head, role: 'server', iterations: 5 }), []);
  });
});
