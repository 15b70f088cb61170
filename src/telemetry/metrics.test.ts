import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { verdictWords } from '../steering/index.ts';
import { link, peer, status } from './fixtures/fake-status.ts';
import { guestMetricSpecs } from './guest-metrics.ts';
import { metricSpecs, metricsText } from './metrics.ts';

const manual = readFileSync(join(import.meta.dirname, '../../docs/metrics.md'), 'utf8');

describe('metrics', () => {
  test('are those that docs/metrics.md lists, word for word', () => {
    const rows = manual.matchAll(/^\| `(\w+)` \| (\w+) \| ([^|]*) \| ([^|]*) \|$/gm);
    const listed = [...rows].map(([, name, type, labels = '', help]) => [name, type, labels.trim(), help]);
    const all = [...metricSpecs, ...guestMetricSpecs];
    const coded = all.map(({ name, type, labels, help }) => [name, type, labels.join(', '), help]);
    assert.deepEqual(listed, coded);
    const verdicts = /^\| verdict \| ([\w, ]+);/m.exec(manual)?.[1]?.split(', ');
    assert.deepEqual(verdicts, [...Object.keys(verdictWords), 'other']);
  });

  test('have names that Prometheus’ conventions allow', () => {
    for (const { name, type } of [...metricSpecs, ...guestMetricSpecs]) {
      assert.match(name, /^millrace_[a-z_]+$/);
      assert.equal(name.endsWith('_total'), type === 'counter', name);
      assert.doesNotMatch(name, /_(ms|us|kib|mib)(_|$)/, `${name}: base units only`);
    }
    assert.equal(new Set(metricSpecs.map(({ name }) => name)).size, metricSpecs.length);
  });

  test('say what the status says', async () => {
    const text = await metricsText(status());
    for (const line of [
      'millrace_info{node="a",instance="millrace",version="1.2.3"} 1',
      'millrace_state{state="ready"} 1',
      'millrace_state{state="draining"} 0',
      'millrace_cpu_seconds_total 2.5',
      'millrace_connects_total{verdict="noRule"} 7',
      'millrace_received_bytes_total 2000',
      'millrace_lane_cpu_seconds_total{lane="0"} 1.5',
      'millrace_peers{state="up"} 1',
      'millrace_peers{state="down"} 0',
      'millrace_link_sent_bytes_total{peer="b",lane="0",wire="shm"} 1000',
      'millrace_link_round_trip_seconds{peer="b",lane="0",wire="shm"} 0.000045',
      '# TYPE millrace_link_recoveries_total counter',
    ]) {
      assert.ok(text.split('\n').includes(line), `${line}\nis not in\n${text}`);
    }
  });

  test('add up links of one lane and wire, and leave out what was never measured', async () => {
    const links = [link({ roundTripUs: -1 }), link({ index: 1, roundTripUs: -1 })];
    const text = await metricsText(status({ peers: [peer({ links })] }));
    assert.match(text, /^millrace_link_received_bytes_total\{peer="b",lane="0",wire="shm"\} 4000$/m);
    assert.doesNotMatch(text, /^millrace_link_round_trip_seconds\{/m);
  });

  test('keep label sets bounded and quotes harmless', async () => {
    const odd = peer({ name: 'b"} 1\nx', links: [link({ wire: 'carrier pigeon' })] });
    const text = await metricsText(status({ peers: [odd], verdicts: { surprise: 1, another: 2 } }));
    assert.match(text, /^millrace_connects_total\{verdict="other"\} 3$/m);
    assert.match(text, /^millrace_link_up\{peer="b\\"\} 1\\nx",lane="0",wire="other"\} 1$/m);
  });

  test('of a daemon without peers are still there', async () => {
    const text = await metricsText(status({ peers: [], lanes: [], verdicts: {} }));
    for (const { name } of metricSpecs) assert.match(text, new RegExp(`^# HELP ${name} `, 'm'));
  });
});
