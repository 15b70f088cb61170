// The lines that `millrace top` shows.

import type { DaemonStatus, LinkState } from '../status/index.ts';
import { printable } from '../text/index.ts';
import { processOf } from './conn.ts';
import { ageText, bytesText, countText, microsecondsText, percentText, rateText } from './figures.ts';
import { type Paint, table } from './paint.ts';
import type { TopFigures } from './top-figures.ts';

const MAX_CONNECTIONS = 20;

export function viewOf(figures: TopFigures, status: DaemonStatus, paint: Paint): readonly string[] {
  return [
    ...summary(figures, status, paint),
    '',
    ...block('peers', links(figures, status), paint),
    '',
    ...block('lanes', lanes(figures), paint),
    '',
    ...block(`busiest of ${figures.connections.length} carried and mirrored connections`, connections(figures), paint),
  ];
}

function summary({ cpu, total }: TopFigures, status: DaemonStatus, paint: Paint): readonly string[] {
  const { node, instance, version, memory, peers, startedMs, direct } = status;
  const state = status.state === 'ready' ? status.state : paint('yellow', status.state);
  const up = peers.filter((peer) => peer.state === 'up').length;
  const held = `${bytesText(memory.heldBytes)} of ${bytesText(memory.budgetBytes)}`;
  return [
    `${paint('bold', instance)} ${version} on ${node}  ${state}  up ${ageText(Date.now() - startedMs)}`,
    `cpu ${percentText(cpu)}  memory ${bytesText(memory.rssBytes)}  held ${held}  peers ${up} of ${peers.length} up`,
    `in ${rateText(total.inPerSecond)}  out ${rateText(total.outPerSecond)}`,
    ...(direct.programs + direct.connections === 0
      ? []
      : [
          `direct ${direct.connections}, ${direct.mirrored} of them with peers  waiting ${direct.waiting}  programs ${direct.programs}`,
        ]),
    ...status.notReady.map((reason) => paint('yellow', `not ready: ${printable(reason)}`)),
  ];
}

interface Block {
  readonly header: readonly string[];
  readonly rows: readonly (readonly string[])[];
  /** How many columns at the left hold text. */
  readonly words: number;
}

function block(title: string, { header, rows, words }: Block, paint: Paint): readonly string[] {
  if (rows.length === 0) return [paint('dim', `${title}: none`)];
  const align = header.map((_, column) => (column < words ? 'left' : 'right'));
  const [head = '', ...lines] = table(header, rows, align);
  return [paint('dim', title), paint('bold', head), ...lines];
}

function links({ peers, links }: TopFigures, status: DaemonStatus): Block {
  const header = ['Peer', 'State', 'Wire', 'Lane', 'Streams', 'In', 'Out', 'Records/s', 'Ring', 'Held', 'Round trip'];
  const rows = peers.flatMap(({ name, state, inPerSecond, outPerSecond }, index) => {
    const own = links.filter(({ peer }) => peer === name);
    const reason = status.peers[index]?.reason ?? '';
    const words = reason === '' ? state : `${state}: ${printable(reason)}`;
    const shown = printable(name);
    // A peer with one link takes one row.
    const total = [shown, words, '', '', '', rateText(inPerSecond), rateText(outPerSecond), '', '', '', ''];
    const detail = own.map(({ link, recordsPerSecond, ...flow }) => [
      own.length === 1 ? shown : '',
      own.length === 1 && isUsable(link.state) ? words : link.state,
      link.wire || '-',
      String(link.lane),
      String(link.streams),
      rateText(flow.inPerSecond),
      rateText(flow.outPerSecond),
      countText(recordsPerSecond),
      link.slots === 0 ? '-' : percentText(link.slotsUsed / link.slots),
      bytesText(link.heldBytes),
      microsecondsText(link.roundTripUs),
    ]);
    return own.length === 1 ? detail : [total, ...detail];
  });
  return { header, rows, words: 3 };
}

/** A link that is idle is made when it is used. */
function isUsable(state: LinkState): boolean {
  return state === 'up' || state === 'idle';
}

function lanes({ lanes }: TopFigures): Block {
  const rows = lanes.map(({ index, connections, cpu, sleepsPerSecond, heldBytes }) => [
    String(index),
    percentText(cpu),
    String(connections),
    countText(sleepsPerSecond),
    bytesText(heldBytes),
  ]);
  return { header: ['Lane', 'Cpu', 'Connections', 'Sleeps/s', 'Held'], rows, words: 0 };
}

function connections({ connections }: TopFigures): Block {
  const rows = connections
    .slice(0, MAX_CONNECTIONS)
    .map(({ connection, inPerSecond, outPerSecond }) => [
      connection.mode,
      connection.local,
      connection.remote,
      printable(connection.peer),
      connection.wire,
      processOf(connection),
      rateText(inPerSecond),
      rateText(outPerSecond),
      connection.heldBytes === null ? '-' : bytesText(connection.heldBytes),
    ]);
  return { header: ['Mode', 'Local', 'Remote', 'Peer', 'Wire', 'Process', 'In', 'Out', 'Held'], rows, words: 6 };
}
