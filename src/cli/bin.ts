#!/usr/bin/env node
// The executable. It parses on old Nodes too, so that they get a sentence instead of a syntax
// error.

import './start/index.ts';

const major = Number(process.versions.node.split('.')[0]);
if (major < 24) {
  process.stderr.write(`millrace: needs Node 24 or newer, this is ${process.version} (${process.execPath})\n`);
  process.exitCode = 4;
} else {
  const { main } = await import('./main.ts');
  process.exitCode = await main(process.argv.slice(2));
  // A thread that has not ended must not keep a finished command alive.
  setTimeout(() => process.exit(), 3000).unref();
}
