// The millrace command of a checkout: the shipped commands and those of the workbench.

import { commands, main } from '../../src/cli/index.ts';
import { workbenchCommands } from './commands.ts';

process.exitCode = await main(process.argv.slice(2), [...commands, ...workbenchCommands]);
// A thread that has not ended must not keep the process alive after the command is over.
setTimeout(() => process.exit(), 3000).unref();
