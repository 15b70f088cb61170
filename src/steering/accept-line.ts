// Accept lines: which peers may reach which listeners of this host, as people write them.

import { UsageError } from '../errors.ts';
import { isNodeName } from '../text/index.ts';
import type { Network } from './network.ts';
import { formatPlace, type PortRange, parseCommand, parseLine, parsePlace, splitLines } from './rule-language.ts';

const actions = ['accept', 'deny'] as const;

/** Whatever is left out matches everything. */
export interface AcceptLine {
  readonly action: (typeof actions)[number];
  /** Names of peers, or patterns in which `*` stands for any characters. */
  readonly from?: readonly string[];
  /** Where the server listens. */
  readonly to?: Network;
  readonly ports?: readonly PortRange[];
  /** The server's, as in /proc/PID/comm. */
  readonly command?: string;
}

/** `accept|deny [from PEER[,PEER…]] [to NET[:PORTS]] [command NAME]` */
function parseAcceptLine(line: string): AcceptLine {
  const { action, parts } = parseLine<AcceptLine['action'], Partial<AcceptLine>>(line, {
    kind: 'accept line',
    actions,
    words: {
      from: (value) => ({ from: value.split(',').map(parsePeer) }),
      to: (value) => {
        const { network, ports } = parsePlace(value);
        return { to: network, ...(ports && { ports }) };
      },
      command: (value) => ({ command: parseCommand(value) }),
    },
  });
  return Object.assign({ action }, ...parts);
}

/** One a line; `#` begins a comment. */
export function parseAcceptLines(text: string): readonly AcceptLine[] {
  return splitLines(text).map(parseAcceptLine);
}

export function formatAcceptLine({ action, from, to, ports, command }: AcceptLine): string {
  const parts: string[] = [action];
  if (from !== undefined) parts.push('from', from.join(','));
  if (to !== undefined || ports !== undefined) parts.push('to', formatPlace(to, ports));
  if (command !== undefined) parts.push('command', command);
  return parts.join(' ');
}

function parsePeer(text: string): string {
  // A star may stand for a letter, which is what a name begins with.
  if (isNodeName(text.replaceAll('*', 'x'))) return text;
  throw new UsageError(`'${text}' is no name of a peer, nor a pattern, as b or web-*`);
}
