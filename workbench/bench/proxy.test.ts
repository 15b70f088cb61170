import assert from 'node:assert/strict';
import { test } from 'node:test';
import { proxyRows } from './proxy.ts';
import { haproxyConfig } from './proxy-haproxy.ts';
import { selectRows } from './rows.ts';

function selected(...patterns: readonly string[]): readonly string[] {
  return selectRows(patterns).map(({ id }) => id);
}

function limitsOf(id: string): unknown {
  const row = proxyRows.find((each) => each.id === id);
  return [row?.better, row?.threshold, row?.goal];
}

test('an unknown wire is refused', () => {
  assert.throws(() => selectRows(['proxy@quic']), { code: 'MILLRACE_ERR_USAGE' });
  assert.throws(() => selectRows(['proxy.bulk.1@']), { code: 'MILLRACE_ERR_USAGE' });
});

test('a group is about shm, and about another wire when it says so', () => {
  assert.ok(selected('proxy').every((id) => !id.includes('@')));
  assert.ok(selected('proxy.*').every((id) => !id.includes('@')));
  assert.deepEqual(selected('proxy.bulk'), ['proxy.bulk.1', 'proxy.bulk.4']);
  assert.deepEqual(selected('proxy.bulk@roce'), ['proxy.bulk.1@roce', 'proxy.bulk.4@roce']);
  assert.deepEqual(selected('proxy.rtt.64@*'), ['proxy.rtt.64@roce', 'proxy.rtt.64@tcp']);
});

test('an id means that row alone, also when other ids begin with it', () => {
  assert.deepEqual(selected('proxy.idle', 'proxy.slow', 'proxy.raw@tcp'), [
    'proxy.idle',
    'proxy.slow',
    'proxy.raw@tcp',
  ]);
});

test('every kind of row exists on every wire, with thresholds on shm only', () => {
  const onShm = proxyRows.filter(({ threshold }) => threshold !== undefined).map(({ id }) => id);
  assert.equal(onShm.length, 15);
  for (const wire of ['roce', 'tcp']) {
    assert.deepEqual(
      selected(`proxy@${wire}`),
      onShm.map((id) => `${id}@${wire}`),
    );
  }
});

test('rows have their thresholds and goals', () => {
  const both = (plain: number, haproxy: number) => ({ plain, haproxy });
  for (const id of ['proxy.bulk.1', 'proxy.bulk.4'])
    assert.deepEqual(limitsOf(id), ['higher', both(0.8, 1.5), both(1.2, 3)]);
  for (const clients of [10, 30, 40, 100, 400])
    assert.deepEqual(limitsOf(`proxy.redis.${clients}`), ['higher', both(0.5, 1.2), both(1, 2.5)]);
  for (const id of ['proxy.rtt.64', 'proxy.rtt.2k'])
    assert.deepEqual(limitsOf(id), ['lower', both(2.5, 0.8), both(1, 0.4)]);
  assert.deepEqual(limitsOf('proxy.scale'), ['higher', 0.8, 1]);
  assert.deepEqual(limitsOf('proxy.cpu'), ['lower', { plain: 3 }, { plain: 1.5 }]);
  assert.deepEqual(limitsOf('proxy.idle'), ['lower', 0.01, 0.001]);
  assert.deepEqual(limitsOf('proxy.slow'), ['lower', 32, 8]);
  assert.deepEqual(limitsOf('proxy.connects'), ['higher', { plain: 0.3 }, { plain: 0.8 }]);
  assert.deepEqual(limitsOf('proxy.raw'), ['higher', { raw: 0.1 }, { raw: 0.3 }]);
});

test('a haproxy takes one hop in TCP mode and logs nothing', () => {
  const config = haproxyConfig({ address: '10.77.0.1', port: 1 }, { address: '10.77.0.2', port: 2 });
  assert.match(config, /^ {2}mode tcp$/m);
  assert.match(config, /^ {2}bind 10\.77\.0\.1:1 /m);
  assert.match(config, /^ {2}server next 10\.77\.0\.2:2$/m);
  assert.doesNotMatch(config, /\blog\b/);
});
