// `millrace conn`: lists the connections that a daemon carries, those that are direct, and those
// that are neither with the reason, as ss(8) does.

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

const header = [
  'Mode',
  'State',
  'Local',
  'Remote',
  'Peer',
  'Wire',
  'In',
  'Out',
  'Held',
  'Process',
  'Container',
  'Reason',
] as const;
const align = ['left', 'left', 'left', 'left', 'left', 'left', 'right', 'right', 'right'] as const;

const examples = `
Examples:
  millrace conn                    all connections
  millrace conn :6379              connections whose address, process or peer matches
  millrace conn --mode plain       connections that are not carried, with the reason
  millrace conn --mode direct      connections whose bytes go from program to program
  millrace conn --peer b --json    connections with peer b, as JSON`;

export const addConn: AddCommand = (program, { world, finish }) => {
  const conn = program
    .command('conn')
    .description(
      'List connections: whether each is carried or direct, how much it moved, for which process, and why it is plain TCP.',
    )
    .argument('[filter]', 'a part of an address, a process name, a process id or a peer')
    .option('--peer <name>', 'show only connections with this peer')
    .addOption(new Option('--mode <mode>', 'show only connections of this mode').choices(connectionModes))
    .option('--json', 'print JSON, for programs')
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
      found.length === 0 ? 'no connections\n' : `none of ${found.length} connections matches ${filter}\n`,
    );
    return exitCode.ok;
  }
  const paint = painter(world.stdout, world.env);
  const [title = '', ...lines] = table(header, shown.map(rowOf), align);
  const painted = lines.map((line, index) => (shown[index]?.mode === 'plain' ? paint('dim', line) : line));
  world.stdout.write(`${[paint('bold', title), ...painted].join('\n')}\n`);
  return exitCode.ok;
}

/** An unknown peer is an error, unlike an empty list. */
async function checkPeer(client: ApiClient, peer: string, signal: AbortSignal): Promise<void> {
  const names = (await client.status({ signal })).peers.map(({ name }) => name);
  if (!names.includes(peer)) throw new UsageError(`there is no peer ${peer}${didYouMean(peer, names)}`);
}

function isMeant({ local, remote, command, pid, peer, container }: ConnectionStatus, filter: string): boolean {
  if (local.includes(filter) || remote.includes(filter)) return true;
  return (
    command.includes(filter) ||
    String(pid) === filter ||
    peer === filter ||
    (filter !== '' && container.includes(filter))
  );
}

function rowOf(connection: ConnectionStatus): readonly string[] {
  const { mode, state, local, remote, peer, wire, container, reason, bytesIn, bytesOut, heldBytes } = connection;
  const isCounted = mode === 'carried' || mode === 'direct';
  const figures = [bytesIn, bytesOut, heldBytes].map((bytes) => (isCounted && bytes !== null ? bytesText(bytes) : '-'));
  const orNone = (name: string): string => (name === '' ? '-' : printable(name));
  const [first, last] = [
    [orNone(peer), orNone(wire)],
    [processOf(connection), orNone(container), printable(reason)],
  ];
  return [mode, state, local, remote, ...first, ...figures, ...last];
}

/** `-` when the program is not known: it runs on the peer's host, or has ended. */
export function processOf({ command, pid }: ConnectionStatus): string {
  if (pid === 0) return command === '' ? '-' : printable(command);
  return `${printable(command)}(${pid})`;
}
