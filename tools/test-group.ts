// Runs files of tests in one process: each argument is a file, and becomes a suite of its name.

import { createRequire } from 'node:module';
import { resolve } from 'node:path';
import { describe } from 'node:test';

// It imports without awaiting, so that what a file registers becomes part of its suite.
const importNow = createRequire(import.meta.url);

for (const file of process.argv.slice(2)) describe(file, () => void importNow(resolve(file)));
