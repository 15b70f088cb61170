import assert from 'node:assert/strict';
import { test } from 'node:test';
import { selectRows } from './rows.ts';
import { steerRows } from './steer.ts';

function selected(...patterns: readonly string[]): readonly string[] {
  return selectRows(patterns).map(({ id }) => id);
}

test('half a word is no group', () => {
  assert.throws(() => selectRows(['stee']), { code: 'MILLRACE_ERR_USAGE' });
  assert.throws(() => selectRows(['steer.']), { code: 'MILLRACE_ERR_USAGE' });
});

test('a group means all rows below it', () => {
  assert.deepEqual(
    selected('steer'),
    steerRows.map(({ id }) => id),
  );
  assert.deepEqual(selected('steer.connect.bulk'), ['steer.connect.bulk.1', 'steer.connect.bulk.3']);
});

test('an id means that row alone, also when other ids begin with it', () => {
  assert.deepEqual(selected('steer.shortcut.bulk'), ['steer.shortcut.bulk']);
  assert.deepEqual(selected('native.crossing'), ['native.crossing']);
});

test('rows have their thresholds and goals', () => {
  const thresholds = ['redis', 'rtt', 'bulk'].map((name) => {
    const row = steerRows.find(({ id }) => id === `steer.shortcut.${name}`);
    return [row?.better, row?.threshold, row?.goal];
  });
  assert.deepEqual(thresholds, [
    ['higher', { plain: 1.2 }, { plain: 1.6 }],
    ['lower', { plain: 0.75 }, { plain: 0.5 }],
    ['higher', { plain: 1 }, { plain: 1.5 }],
  ]);
});
