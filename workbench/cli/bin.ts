// The millrace command of a checkout: the shipped commands and those of the workbench.

import '../../src/cli/start/index.ts';

const { commands, main } = await import('../../src/cli/index.ts');
const { workbenchCommands } = await import('./commands.ts');

process.exitCode = await main(process.argv.slice(2), [...commands, ...workbenchCommands]);
// A thread that has not ended must not keep the process alive after the command is over.
setTimeout(() => process.exit(), 3000).unref();
