// The options that name the daemon which a command talks to.

import { type Command, Option } from 'commander';
import { ApiClient, findSocket, type SocketChoice } from '../server/index.ts';
import type { World } from './world.ts';

export type DaemonOptions = SocketChoice;

export function addDaemonOptions(command: Command): Command {
  return command
    .option('--instance <name>', 'instance name of the daemon (default: the only one that runs here)')
    .addOption(new Option('--socket <path>', 'control socket of the daemon').conflicts('instance'));
}

export async function clientOf(options: DaemonOptions, world: World): Promise<ApiClient> {
  return new ApiClient({ socketPath: await findSocket(options, world.env) });
}
