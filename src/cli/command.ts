// The type of a command: it adds itself to commander, and its action resolves to an exit code (or
// that of a program it ran).

import type { Command } from 'commander';
import type { World } from './world.ts';

/** Runs an action, and makes its exit code the result of `run`. */
type Finish = (action: () => Promise<number>) => Promise<void>;

export interface CommandContext {
  readonly world: World;
  readonly finish: Finish;
}

export type AddCommand = (program: Command, context: CommandContext) => void;
