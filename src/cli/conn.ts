// `millrace conn`: the connections a daemon carries, and those it does not with the reason, in the manner of ss(8).

import { Option } from 'commander';
import { UsageError } from '../errors.ts';
import { type ApiClient, connectionModes } from '../server/index.ts';
import type { ConnectionMode, ConnectionStatus } from '../status/index.ts';
import { didYouMean, printable } from '../text/index.ts';
import type { AddCommand } from './command.ts';
import { addDaemonOptions, clientOf, type DaemonOptions } from './daemon-options.ts';
import { type ExitCode, exitCode } from './exit-code.ts';
import { bytesText } from './figures.ts';
import { painter, table } from './paint.ts';
import type { World } from './world.ts';

interface Options extends DaemonOptions {
  readonly peer?: string;
  readonly mode?: ConnectionMode;
  readonly json?: true;
}

const header = ['Mode', 'State', 'Local', 'Remote', 'Peer', 'Wire', 'In', 'Out', 'Held', 'Process', 'Reason'] as const;
const align = ['left', 'left', 'left', 'left', 'left', 'left', 'right', 'right', 'right'] as const;

const examples = `
Examples:
  millrace conn                    all of them
  millrace conn :6379              those with such an address, process or peer
  millrace conn --mode plain       those that are not carried, and why
  millrace conn --peer b --json    for programs`;

export const addConn: AddCommand = (program, { world, finish }) => {
  const conn = program
    .command('conn')
    .description('Connections: how each travels, how much, for whom, and why one is not carried.')
    .argument('[filter]', 'a part of an address, a process name, a process id or a peer')
    .option('--peer <name>', 'only those carried to or from this peer')
    .addOption(new Option('--mode <mode>', 'only those that travel so').choices(connectionModes))
    .option('--json', 'for programs')
    .addHelpText('after', examples);
  addDaemonOptions(conn).action((filter: string | undefined, options: Options) =>
    finish(() => showConnections(filter ?? '', options, world)),
  );
};

async function showConnections(filter: string, options: Options, world: World): Promise<ExitCode> {
  const { peer, mode } = options;
  const client = await clientOf(options, world);
  const { signal } = world;
  const found = await client.connections({ ...(peer !== undefined && { peer }), ...(mode && { mode }) }, { signal });
  if (found.length === 0 && peer !== undefined) await checkPeer(client, peer, signal);
  const shown = found.filter((connection) => isMeant(connection, filter));
  if (options.json) {
    world.stdout.write(`${JSON.stringify({ v: 1, connections: shown })}\n`);
    return exitCode.ok;
  }
  if (shown.length === 0) {
    world.stderr.write(
      found.length === 0 ? 'no connections\n' : `none of ${found.length} connections is about ${filter}\n`,
    );
    return exitCode.ok;
  }
  const paint = painter(world.stdout, world.env);
  const [title = '', ...lines] = table(header, shown.map(rowOf), align);
  const painted = lines.map((line, index) => (shown[index]?.mode === 'plain' ? paint('dim', line) : line));
  world.stdout.write(`${[paint('bold', title), ...painted].join('\n')}\n`);
  return exitCode.ok;
}

/** No connections is an answer; no such peer is a mistake. */
async function checkPeer(client: ApiClient, peer: string, signal: AbortSignal): Promise<void> {
  const names = (await client.status({ signal })).peers.map(({ name }) => name);
  if (!names.includes(peer)) throw new UsageError(`there is no peer ${peer}${didYouMean(peer, names)}`);
}

function isMeant({ local, remote, command, pid, peer }: ConnectionStatus, filter: string): boolean {
  if (local.includes(filter) || remote.includes(filter)) return true;
  return command.includes(filter) || String(pid) === filter || peer === filter;
}

function rowOf(connection: ConnectionStatus): readonly string[] {
  const { mode, state, local, remote, peer, wire, reason, bytesIn, bytesOut, heldBytes } = connection;
  const figures = mode === 'carried' ? [bytesIn, bytesOut, heldBytes].map(bytesText) : ['-', '-', '-'];
  const names = [peer, wire].map((name) => (name === '' ? '-' : printable(name)));
  return [mode, state, local, remote, ...names, ...figures, processOf(connection), printable(reason)];
}

/** `-` where the program is unknown: it runs on the peer's host, or has ended. */
export function processOf({ command, pid }: ConnectionStatus): string {
  if (pid === 0) return command === '' ? '-' : printable(command);
  return `${printable(command)}(${pid})`;
}
