// Compiles C programs that the tests run in hosts, with every warning an error.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';

const flags = ['-std=gnu17', '-D_GNU_SOURCE', '-O1', '-Wall', '-Wextra', '-Werror', '-pthread'];

export function compile(sources: readonly string[], output: string, linking: 'dynamic' | 'static' = 'dynamic'): void {
  const args = [...flags, ...(linking === 'static' ? ['-static'] : []), ...sources, '-o', output];
  const { status, stderr, error } = spawnSync('gcc', args, { encoding: 'utf8', timeout: 60_000 });
  if (error !== undefined) throw error;
  assert.equal(status, 0, stderr);
}
