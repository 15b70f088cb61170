// The options by which commands that talk to a daemon say which one.

import { type Command, Option } from 'commander';
import { ApiClient, findSocket, type SocketChoice } from '../server/index.ts';
import type { World } from './world.ts';

export type DaemonOptions = SocketChoice;

export function addDaemonOptions(command: Command): Command {
  return command
    .option('--instance <name>', 'the daemon’s name (default: the one that runs here)')
    .addOption(new Option('--socket <path>', 'the daemon’s control socket').conflicts('instance'));
}

export async function clientOf(options: DaemonOptions, world: World): Promise<ApiClient> {
  return new ApiClient({ socketPath: await findSocket(options, world.env) });
}
