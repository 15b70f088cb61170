import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { keptCapabilities, startCapabilities } from './privileges.ts';

const docs = join(import.meta.dirname, '../../docs');
const page = readFileSync(join(docs, 'privileges.md'), 'utf8');

describe('the capabilities of a daemon', () => {
  test('are those of the page, each with its reason', () => {
    const rows = Array.from(page.matchAll(/^\| `(CAP_\w+)` \| ([^|]+) \| (start|always) \|$/gm), (row) => row.slice(1));
    const expected = [
      ...keptCapabilities.map(({ name, reason }) => [name, reason, 'always']),
      ...startCapabilities.map(({ name, reason }) => [name, reason, 'start']),
    ];
    assert.deepEqual(rows, expected);
  });

  test('are those of the systemd unit, on both pages that have it', () => {
    const names = [...keptCapabilities, ...startCapabilities].map(({ name }) => name);
    for (const text of [page, readFileSync(join(docs, 'proxy-start.md'), 'utf8')]) {
      assert.deepEqual(/^CapabilityBoundingSet=(.*)$/m.exec(text)?.[1]?.split(' '), names);
    }
  });
});
