// `millrace backend`: lends this host's RDMA devices to guests, in the foreground, until it is
// stopped.

import { dirname } from 'node:path';
import { InvalidArgumentError, Option } from 'commander';
import { UsageError } from '../errors.ts';
import { listDevices } from '../providers/index.ts';
import { Backend, defaultLimits, subscribeGuests } from '../remoting/backend/index.ts';
import { startBackendServer } from '../server/index.ts';
import type { WaitMode } from '../spin/index.ts';
import { waitModes } from '../spin/index.ts';
import { makeRunFolder } from '../system/index.ts';
import { didYouMean, parseSize, printable } from '../text/index.ts';
import { backendPaths } from './backend-paths.ts';
import type { AddCommand } from './command.ts';
import { type ExitCode, exitCode } from './exit-code.ts';
import { stopped } from './stopped.ts';
import type { World } from './world.ts';

interface Options {
  readonly socket?: string;
  readonly api?: string;
  readonly http?: { readonly host: string; readonly port: number };
  readonly device?: readonly string[];
  readonly uid?: readonly number[];
  readonly gid?: readonly number[];
  readonly memory: number;
  readonly operations: number;
  readonly maxGuests: number;
  readonly wait: WaitMode;
  readonly record?: string;
  readonly json?: true;
}

const examples = `
Guests find the devices by MILLRACE_BACKEND=SOCKET in their environment. A container needs only that socket, mounted.

Examples:
  millrace backend --device soft-shm &
  MILLRACE_BACKEND=/run/millrace/backend/guests millrace perf list
  millrace guest
  millrace backend --uid 1000 --memory 256MiB --max-guests 8`;

export const addBackend: AddCommand = (program, { world, finish }) => {
  program
    .command('backend')
    .description('Lend the RDMA devices of this host to virtual machines and containers, until it is stopped.')
    .option('--socket <path>', 'where guests connect (default: /run/millrace/backend/guests)')
    .option('--api <path>', 'control socket, for millrace guest (default: /run/millrace/backend/api)')
    .option('--http <addr:port>', 'also serve the API over TCP, with /metrics for Prometheus', hostAndPort)
    .option('--device <name>', 'a device that guests may use; may be repeated (default: all)', collect(String))
    .option('--uid <number>', 'a user who may connect; may be repeated (default: the own user)', collect(wholeNumber))
    .option('--gid <number>', 'a group that may connect; may be repeated', collect(wholeNumber))
    .option(
      '--memory <size>',
      'memory for the regions and queues of each guest, as 256MiB',
      size,
      defaultLimits.memoryBytes,
    )
    .option(
      '--operations <count>',
      'work requests that each guest may have queued, all queues together',
      wholeNumber,
      defaultLimits.operations,
    )
    .option('--max-guests <count>', 'how many guests may be connected at a time', wholeNumber, 64)
    .addOption(
      new Option('--wait <mode>', 'how threads wait for guests')
        .choices([...waitModes])
        .default('mixed' satisfies WaitMode),
    )
    .option(
      '--record <file>',
      'record the verbs calls of the first guest for millrace replay; those of guest n go to FILE.n',
    )
    .option('--json', 'print events as JSON, one per line')
    .addHelpText('after', examples)
    .action((options: Options) => finish(() => backend(options, world)));
};

async function backend(options: Options, world: World): Promise<ExitCode> {
  checkDevices(options.device ?? []);
  const paths = backendPaths(world.env);
  const { socket = paths.guests, api = paths.api, http, device, uid, gid } = options;
  const { memory: memoryBytes, operations, maxGuests, wait } = options;
  makeRunFolder(dirname(socket));
  const tell = (event: string, words: string, fields: object): void => {
    world.stdout.write(options.json ? `${JSON.stringify({ event, ...fields })}\n` : `${words}\n`);
  };
  using _ = subscribeGuests(({ what, guest, peer, reason }) => {
    const why = reason === '' ? '' : `: ${printable(reason)}`;
    tell(what, `guest ${guest} (${printable(peer)}) ${what}${why}`, { guest, peer, reason });
  });
  await using running = Backend.start({
    socketPath: socket,
    limits: { memoryBytes, operations },
    maxGuests,
    wait,
    ...(options.record !== undefined && { record: options.record }),
    ...(device !== undefined && { devices: device.map((name) => ({ name })) }),
    ...(uid !== undefined && { uids: uid }),
    ...(gid !== undefined && { gids: gid }),
  });
  const address = { socketPath: api, ...(http !== undefined && { http }) };
  await using server = await startBackendServer({ ...address, status: () => running.status() });
  const { devices } = await running.status();
  const { url } = server;
  tell('ready', `lending ${devices.join(', ')} at ${socket}${url === null ? '' : `; metrics at ${url}/metrics`}`, {
    pid: process.pid,
    socket,
    api,
    url,
    devices,
  });
  await stopped(world.signal);
  return exitCode.ok;
}

function checkDevices(names: readonly string[]): void {
  const known = listDevices().map(({ name }) => name);
  for (const name of names) {
    if (known.includes(name)) continue;
    const nearest = didYouMean(name, known);
    throw new UsageError(
      `lend ${name}: there is no such device${nearest === '' ? ` (there is ${known.join(', ')})` : nearest}`,
    );
  }
}

function collect<T>(parse: (text: string) => T): (text: string, before: readonly T[] | undefined) => readonly T[] {
  return (text, before = []) => [...before, parse(text)];
}

function wholeNumber(text: string): number {
  const value = Number(text);
  if (!/^\d+$/.test(text) || !Number.isSafeInteger(value)) throw new InvalidArgumentError('Give a whole number.');
  return value;
}

function size(text: string): number {
  const bytes = parseSize(text);
  if (Number.isNaN(bytes) || bytes === 0) throw new InvalidArgumentError('Give a size, as 64MiB or 1GiB.');
  return bytes;
}

function hostAndPort(text: string): { readonly host: string; readonly port: number } {
  const match = /^(?:\[([0-9a-fA-F:.]+)\]|([^:[\]]+)):(\d{1,5})$/.exec(text);
  const port = Number(match?.[3]);
  if (match === null || port > 65_535) throw new InvalidArgumentError('Give an address and port, as 127.0.0.1:9100.');
  return { host: match[1] ?? match[2] ?? '', port };
}
