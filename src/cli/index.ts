// What the workbench's command line takes from this one: commands, exit codes, the world, tables.

export type { AddCommand } from './command.ts';
export { type CommandSource, commands } from './commands.ts';
export { featureLines } from './doctor.ts';
export { type ExitCode, exitCode } from './exit-code.ts';
export { bytesText, rateText } from './figures.ts';
export { runDirOf } from './lab-exec.ts';
export { main } from './main.ts';
export { painter, table } from './paint.ts';
export { stopped } from './stopped.ts';
export type { World } from './world.ts';
