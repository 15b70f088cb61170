// `millrace peer`: lists the peers of a daemon and the links to each.

import { UsageError } from '../errors.ts';
import type { LinkStatus, PeerStatus } from '../status/index.ts';
import { didYouMean, printable } from '../text/index.ts';
import type { AddCommand } from './command.ts';
import { addDaemonOptions, clientOf, type DaemonOptions } from './daemon-options.ts';
import { type ExitCode, exitCode } from './exit-code.ts';
import { ageText, bytesText, countText, microsecondsText } from './figures.ts';
import { type Paint, painter, table } from './paint.ts';
import { addPeerCert } from './peer-cert.ts';
import type { World } from './world.ts';

interface Options extends DaemonOptions {
  readonly json?: true;
}

export const addPeer: AddCommand = (program, context) => {
  const { world, finish } = context;
  const peer = program
    .command('peer')
    .description('Show the peers of the daemon and the links to them, or make certificates for nodes.');
  const show = peer
    .command('show', { isDefault: true })
    .description('List all peers, or show one with its links.')
    .argument('[name]', 'a node name')
    .option('--json', 'print JSON, for programs');
  addDaemonOptions(show).action((name: string | undefined, options: Options) =>
    finish(() => showPeers(name, options, world)),
  );
  addPeerCert(peer, context);
};

async function showPeers(name: string | undefined, options: Options, world: World): Promise<ExitCode> {
  const client = await clientOf(options, world);
  const { peers } = await client.status({ signal: world.signal });
  const shown = name === undefined ? peers : peers.filter((peer) => peer.name === name);
  if (name !== undefined && shown.length === 0) {
    const names = peers.map((peer) => peer.name);
    throw new UsageError(`there is no peer ${name}${didYouMean(name, names)}`);
  }
  const paint = painter(world.stdout, world.env);
  if (options.json) world.stdout.write(`${JSON.stringify({ v: 1, peers: shown })}\n`);
  else if (name !== undefined) for (const peer of shown) world.stdout.write(`${detailOf(peer, paint)}\n`);
  else if (shown.length === 0) world.stderr.write('no peers are configured\n');
  else world.stdout.write(`${listOf(shown, paint)}\n`);
  return exitCode.ok;
}

const listHeader = [
  'Peer',
  'Address',
  'State',
  'Since',
  'Wire',
  'Links',
  'Streams',
  'In',
  'Out',
  'Held',
  'Reason',
] as const;
const listAlign = ['left', 'left', 'left', 'right', 'left', 'right', 'right', 'right', 'right', 'right'] as const;

function listOf(peers: readonly PeerStatus[], paint: Paint): string {
  const rows = peers.map(({ name, address, state, sinceMs, links, reason }) => {
    const wires = [...new Set(links.flatMap(({ wire }) => wire || []))].join(',');
    const up = links.filter((link) => link.state === 'up').length;
    const figures = [sum(links, 'bytesIn'), sum(links, 'bytesOut'), sum(links, 'heldBytes')].map(bytesText);
    const streams = String(sum(links, 'streams'));
    const since = ageText(Date.now() - sinceMs);
    return [
      printable(name),
      address,
      state,
      since,
      wires || '-',
      `${up}/${links.length}`,
      streams,
      ...figures,
      printable(reason),
    ];
  });
  const [title = '', ...lines] = table(listHeader, rows, listAlign);
  return [paint('bold', title), ...lines.map((line, index) => coloured(line, peers[index]?.state, paint))].join('\n');
}

const linkHeader = [
  'Link',
  'Lane',
  'State',
  'Wire',
  'Streams',
  'In',
  'Out',
  'Records in/out',
  'Ring',
  'Held',
  'Round trip',
  'Recoveries',
] as const;
const linkAlign = [
  'right',
  'right',
  'left',
  'left',
  'right',
  'right',
  'right',
  'right',
  'right',
  'right',
  'right',
  'right',
] as const;

function detailOf({ links, ...peer }: PeerStatus, paint: Paint): string {
  const { state, reason } = peer;
  const lines = [
    paint('bold', printable(peer.name)),
    field('address', peer.address),
    field('state', coloured(reason === '' ? state : `${state}: ${printable(reason)}`, state, paint)),
    field('since', `${new Date(peer.sinceMs).toISOString()} (${ageText(Date.now() - peer.sinceMs)})`),
    field('known from', peer.source),
    field('identity', peer.isSecure ? 'proven by certificate' : paint('yellow', 'not proven: insecure')),
    field('listeners', `${peer.listeners} announced`),
  ];
  if (links.length === 0)
    return [...lines, field('links', 'none yet: the control connection was not up so far')].join('\n');
  const [title = '', ...rows] = table(linkHeader, links.map(linkRow), linkAlign).map((line) => `  ${line}`);
  return [...lines, '', paint('bold', title), ...rows].join('\n');
}

function linkRow(link: LinkStatus): readonly string[] {
  return [
    String(link.index),
    String(link.lane),
    link.state,
    link.inPlace ? `${link.wire}, in place` : link.wire || '-',
    String(link.streams),
    bytesText(link.bytesIn),
    bytesText(link.bytesOut),
    `${countText(link.recordsIn)}/${countText(link.recordsOut)}`,
    `${link.slotsUsed}/${link.slots}`,
    bytesText(link.heldBytes),
    microsecondsText(link.roundTripUs),
    String(link.recoveries),
  ];
}

function sum(links: readonly LinkStatus[], key: 'bytesIn' | 'bytesOut' | 'heldBytes' | 'streams'): number {
  return links.reduce((total, link) => total + link[key], 0);
}

function coloured(text: string, state: PeerStatus['state'] | undefined, paint: Paint): string {
  if (state === 'up') return text;
  return paint(state === 'down' ? 'red' : 'yellow', text);
}

function field(name: string, value: string): string {
  return `  ${name.padEnd(12)}${value}`;
}
