// What is published: JavaScript and declarations in dist/, beside the addon and the BPF objects
// that set-up built.

import { spawnSync } from 'node:child_process';
import { chmodSync, rmSync } from 'node:fs';
import { join } from 'node:path';

const root = join(import.meta.dirname, '..');
const dist = join(root, 'dist');

rmSync(dist, { recursive: true, force: true });
const result = spawnSync(join(root, 'node_modules/.bin/tsc'), ['--project', 'tsconfig.build.json'], {
  cwd: root,
  stdio: 'inherit',
});
if (result.status === 0) chmodSync(join(dist, 'cli/bin.js'), 0o755);
process.exitCode = result.status ?? 1;
