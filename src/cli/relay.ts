// `millrace relay`: carries the connections of this host's programs to their destination over plain TCP, by way of the daemon.

import { readFileSync } from 'node:fs';
import { isIP } from 'node:net';
import { hostname } from 'node:os';
import { InvalidArgumentError, Option } from 'commander';
import { UsageError } from '../errors.ts';
import { type Address, formatAddress, ip } from '../native/index.ts';
import { type Daemon, DEFAULT_CONTROL_PORT, DEFAULT_RELAY_PORT, type PeerSpec, startDaemon } from '../relay/index.ts';
import { type IpEndpoint, parseIpEndpoint, parseRule, parseRules, type SteerRule } from '../steering/index.ts';
import type { AddCommand } from './command.ts';
import { type ExitCode, exitCode } from './exit-code.ts';
import { stopped } from './stopped.ts';
import type { World } from './world.ts';

interface Options {
  readonly listen?: readonly Address[];
  readonly controlPort: number;
  readonly name: string;
  readonly instance: string;
  readonly cgroup: string;
  readonly rules?: string;
  readonly rule?: readonly SteerRule[];
  readonly announce?: readonly IpEndpoint[];
  readonly peer?: readonly PeerSpec[];
  readonly json?: true;
}

const examples = `
Examples:
  Carry every connection to 10.0.0.2 that a peer announced, and tell the peer what listens here:
    millrace relay --name a --rule 'connect to 10.0.0.2' --peer b=10.0.0.2:${DEFAULT_CONTROL_PORT}
  One host, no peer: carry what one cgroup's programs say to a local redis:
    millrace relay --cgroup /demo --rule 'connect to any:6379' --announce 10.0.0.1:6379
  Rules from a file, one a line:
    millrace relay --rules /etc/millrace/rules`;

export const addRelay: AddCommand = (program, { world, finish }) => {
  program
    .command('relay')
    .description('Carry the connections of programs to where they go, over plain TCP, until it is stopped.')
    .option(
      '--listen <addr[:port]>',
      `address of this host that connections are steered to; once for IPv4, once for IPv6 (default: the host's first of each, port ${DEFAULT_RELAY_PORT})`,
      collect(listenAddress),
    )
    .option('--control-port <port>', 'where peers call', portNumber, DEFAULT_CONTROL_PORT)
    .option('--name <name>', 'what peers call this relay', hostname())
    .option('--instance <name>', 'name of the steering in the kernel', 'relay')
    .option('--cgroup <path>', 'programs in this cgroup and below are steered', '/')
    .addOption(new Option('--rules <file>', 'what is carried: one rule a line').conflicts('rule'))
    .option(
      '--rule <line>',
      "what is carried, as 'connect to 10.0.0.0/8:80'; the first that matches decides",
      collect(parseRule),
    )
    .option('--announce <addr:port>', 'a destination that listens, though no peer says so', collect(parseIpEndpoint))
    .option('--peer <name=addr:port>', 'another relay; it must name this one, too', collect(peerOf))
    .option('--json', 'events for programs, one a line')
    .addHelpText('after', examples)
    .action((options: Options) => finish(() => relay(options, world)));
};

async function relay(options: Options, world: World): Promise<ExitCode> {
  const rules = rulesOf(options);
  checkListen(options.listen);
  const tell = teller(options.json === true, world);
  await using daemon = await startDaemon({
    name: options.name,
    instance: options.instance,
    cgroup: options.cgroup,
    controlPort: options.controlPort,
    rules,
    ...(options.listen && { listen: options.listen }),
    ...(options.announce && { announce: options.announce }),
    ...(options.peer && { peers: options.peer }),
    onError: ({ message }) => tell('error', message, { message }),
    onPeer: ({ name }, isUp, reason) => {
      tell(isUp ? 'peer-up' : 'peer-down', `peer ${name} is ${isUp ? 'up' : `down: ${reason}`}`, {
        peer: name,
        reason,
      });
    },
  });
  tellReady(daemon, rules, tell);
  await stopped(world.signal);
  const { accepted, bytesToServer, bytesToClient } = daemon.relay.counters;
  await daemon.close();
  tell('stopped', `carried ${accepted} connections, ${bytesToServer} bytes there, ${bytesToClient} back`, {
    ...daemon.relay.counters,
  });
  return exitCode.interrupted;
}

type Tell = (event: string, text: string, detail: object) => void;

function teller(isJson: boolean, world: World): Tell {
  return (event, text, detail) => {
    if (isJson) world.stdout.write(`${JSON.stringify({ event, ...detail })}\n`);
    else world.stderr.write(`${text}\n`);
  };
}

function tellReady(
  { relay: { addresses }, announcements, steering }: Daemon,
  rules: readonly object[],
  tell: Tell,
): void {
  const at = addresses.map(formatAddress);
  const text = `steering ${steering.cgroup} by ${rules.length} rules to ${at.join(' and ')}; peers call port ${announcements.port}`;
  tell('ready', text, { addresses: at, controlPort: announcements.port, pid: process.pid });
}

function rulesOf({ rules: file, rule }: Options): readonly SteerRule[] {
  if (rule !== undefined) return rule;
  if (file === undefined) throw new UsageError("relay: nothing to carry; give --rule 'connect to any' or --rules FILE");
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (error) {
    throw new UsageError(`read rules from ${file}: ${(error as NodeJS.ErrnoException).code}`, { cause: error });
  }
  return parseRules(text);
}

function checkListen(listen: readonly Address[] = []): void {
  const families = new Set(listen.map(({ family }) => family));
  if (families.size < listen.length) throw new UsageError('relay: --listen takes one IPv4 and one IPv6 address');
}

/** For options that may come several times. */
function collect<T>(parse: (text: string) => T): (text: string, before?: readonly T[]) => readonly T[] {
  return (text, before = []) => [...before, parse(text)];
}

function listenAddress(text: string): Address {
  const match = /^(?:\[([0-9a-fA-F:.]+)\](?::(\d{1,5}))?|([0-9.]+)(?::(\d{1,5}))?|([0-9a-fA-F:.]+))$/.exec(text);
  const host = match?.[1] ?? match?.[3] ?? match?.[5] ?? '';
  const port = Number(match?.[2] ?? match?.[4] ?? DEFAULT_RELAY_PORT);
  if (isIP(host) === 0 || port > 65_535) {
    throw new InvalidArgumentError(
      'expected an address and perhaps a port, as 10.0.0.1, 10.0.0.1:4789 or [fd00::1]:4789',
    );
  }
  if (host === '0.0.0.0' || host === '::') {
    throw new InvalidArgumentError('expected one address of this host: programs are steered to it');
  }
  return ip(host, port);
}

function peerOf(text: string): PeerSpec {
  const match = /^([A-Za-z0-9][A-Za-z0-9._-]*)=(?:\[([0-9a-fA-F:.]+)\]|([0-9.]+))(?::(\d{1,5}))?$/.exec(text);
  const host = match?.[2] ?? match?.[3] ?? '';
  const port = Number(match?.[4] ?? DEFAULT_CONTROL_PORT);
  if (match === null || isIP(host) === 0 || port < 1 || port > 65_535) {
    throw new InvalidArgumentError('expected a name, an address and a port, as b=10.0.0.2:4790');
  }
  return { name: match[1] ?? '', host, port };
}

function portNumber(text: string): number {
  const value = Number(text);
  if (Number.isInteger(value) && value >= 0 && value <= 65_535) return value;
  throw new InvalidArgumentError('expected 0 to 65535');
}
