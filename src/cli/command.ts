// What a command is: it builds its commander command for a world, and its action resolves to an exit code (exit-code.ts, or that of a program it ran).

import type { Command } from 'commander';
import type { World } from './world.ts';

/** Wraps an action so that its exit code reaches the caller of `run`. */
type Finish = (action: () => Promise<number>) => Promise<void>;

export interface CommandContext {
  readonly world: World;
  readonly finish: Finish;
}

export type AddCommand = (program: Command, context: CommandContext) => void;
