// Acceptance: which peers may reach which servers of this host, by the accept lines of the config.
// The first line that matches decides, and what no line is about is not accepted.

import {
  type AcceptLine,
  formatAcceptLine,
  type IpEndpoint,
  isInNetwork,
  parseAcceptLines,
} from '../steering/index.ts';

export interface AcceptedServer {
  readonly endpoint: IpEndpoint;
  /** As in /proc/PID/comm; '' when it is not known. */
  readonly command: string;
}

export interface Decision {
  readonly isAccepted: boolean;
  /** For people. */
  readonly reason: string;
}

interface NumberedLine extends AcceptLine {
  readonly number: number;
  readonly reason: string;
}

/** The lines that are about a peer. */
interface LinesAbout {
  readonly lines: readonly NumberedLine[];
  readonly key: string;
}

const noLines: Decision = { isAccepted: true, reason: 'the config has no accept lines, so all peers are accepted' };
const noMatch: Decision = { isAccepted: false, reason: 'no accept line is about it' };
const MAX_KNOWN = 4096;

export class Acceptance {
  /** Whether a decision depends on the commands of servers. */
  readonly needsCommands: boolean;
  readonly #lines: readonly NumberedLine[] | undefined;
  readonly #known = new Map<string, LinesAbout>();

  /** Undefined: every peer reaches everything. */
  constructor(lines: readonly string[] | undefined) {
    this.#lines = lines?.flatMap(parseAcceptLines).map((line, index) => ({
      ...line,
      number: index + 1,
      reason: `accept line ${index + 1} (${formatAcceptLine(line)})`,
    }));
    this.needsCommands = this.#lines?.some(({ command }) => command !== undefined) ?? false;
  }

  decide(peer: string, server: AcceptedServer): Decision {
    if (this.#lines === undefined) return noLines;
    const line = this.#linesAbout(peer).lines.find((one) => isAbout(one, server));
    return line === undefined ? noMatch : { isAccepted: line.action === 'accept', reason: line.reason };
  }

  /** Peers with the same key are decided alike. */
  keyOf(peer: string): string {
    return this.#linesAbout(peer).key;
  }

  #linesAbout(peer: string): LinesAbout {
    let about = this.#known.get(peer);
    if (about === undefined) {
      const lines = (this.#lines ?? []).filter(({ from }) => from?.some((pattern) => isLike(peer, pattern)) ?? true);
      about = { lines, key: lines.map(({ number }) => number).join() };
      if (this.#known.size >= MAX_KNOWN) this.#known.clear();
      this.#known.set(peer, about);
    }
    return about;
  }
}

function isAbout({ action, to, ports, command }: AcceptLine, server: AcceptedServer): boolean {
  const { address, port } = server.endpoint;
  if (to !== undefined && !isInNetwork(address, to)) return false;
  if (ports !== undefined && !ports.some(({ first, last }) => port >= first && port <= last)) return false;
  // A server that might be the one that is denied is denied.
  if (command !== undefined && server.command === '') return action === 'deny';
  return command === undefined || command === server.command;
}

/** In a pattern `*` stands for any characters, also for none. */
function isLike(name: string, pattern: string): boolean {
  const [start = '', ...rest] = pattern.split('*');
  const end = rest.pop();
  if (end === undefined) return name === pattern;
  if (!name.startsWith(start) || !name.endsWith(end) || name.length < start.length + end.length) return false;
  // Each of the middle parts where it first fits leaves the most for the others.
  let at = start.length;
  for (const part of rest) {
    const found = name.indexOf(part, at);
    if (found < 0) return false;
    at = found + part.length;
  }
  return at <= name.length - end.length;
}
