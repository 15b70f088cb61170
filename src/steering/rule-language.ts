// The language of rules and of accept lines: an action, then words with what follows them, such as
// networks with ports, and commands.

import { UsageError } from '../errors.ts';
import { didYouMean } from '../text/index.ts';
import { everywhere, formatNetwork, type Network, parseNetwork } from './network.ts';

export interface PortRange {
  readonly first: number;
  readonly last: number;
}

const MAX_COMMAND_BYTES = 15;

/** One kind of lines. */
interface Language<Action extends string, Part extends object> {
  /** What a line is called in messages. */
  readonly kind: string;
  readonly actions: readonly Action[];
  /** What each word means: with the value after it, or alone. */
  readonly words: Readonly<Record<string, ((value: string) => Part) | Part>>;
}

interface ParsedLine<Action extends string, Part extends object> {
  readonly action: Action;
  readonly parts: readonly Part[];
}

/** Whatever is wrong is said with the line. */
export function parseLine<Action extends string, Part extends object>(
  line: string,
  { kind, actions, words }: Language<Action, Part>,
): ParsedLine<Action, Part> {
  try {
    return parseTokens(line.trim().split(/\s+/), actions, words);
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    throw new UsageError(`${kind} '${line.trim()}': ${error.message}`);
  }
}

function parseTokens<Action extends string, Part extends object>(
  [action = '', ...rest]: readonly string[],
  actions: readonly Action[],
  words: Language<Action, Part>['words'],
): ParsedLine<Action, Part> {
  const parts: Part[] = [];
  const seen = new Set<string>();
  const known = actions.find((one) => one === action);
  if (known === undefined) throw unknownWord(action, actions);
  for (let at = 0; at < rest.length; at++) {
    const word = rest[at] ?? '';
    if (!Object.hasOwn(words, word)) throw unknownWord(word, Object.keys(words));
    if (seen.has(word)) throw new UsageError(`'${word}' comes twice`);
    seen.add(word);
    const meaning = words[word];
    if (typeof meaning !== 'function') {
      parts.push(meaning);
      continue;
    }
    const value = rest[++at];
    if (value === undefined) throw new UsageError(`nothing follows '${word}'`);
    parts.push(meaning(value));
  }
  return { action: known, parts };
}

function unknownWord(word: string, known: readonly string[]): UsageError {
  return new UsageError(`'${word}' is none of ${known.join(', ')}${didYouMean(word, known)}`);
}

/** One line each; `#` begins a comment. */
export function splitLines(text: string): readonly string[] {
  return text
    .split('\n')
    .map((line) => line.replace(/#.*/, '').trim())
    .filter((line) => line !== '');
}

/** A network, perhaps with ports. */
export interface Place {
  readonly network: Network;
  readonly ports: readonly PortRange[] | undefined;
}

/** `10.0.0.0/8`, `10.0.0.0/8:80,8000-8999`, `[fd00::/8]:80` or `any:80`. */
export function parsePlace(value: string): Place {
  const match = /^(?:\[([^\]]+)\]|([^:[\]]+|[^[\]]*:[^[\]]*:[^[\]]*))(?::([\d,-]+))?$/.exec(value);
  if (match === null) {
    throw new UsageError(`'${value}' is no network with ports, as 10.0.0.0/8:80,443 or [fd00::/8]:80`);
  }
  const network = parseNetwork(match[1] ?? match[2] ?? '');
  return { network, ports: match[3] === undefined ? undefined : parsePorts(match[3]) };
}

function parsePorts(text: string): readonly PortRange[] {
  return text.split(',').map((part) => {
    const match = /^(\d{1,5})(?:-(\d{1,5}))?$/.exec(part);
    const first = Number(match?.[1]);
    const last = Number(match?.[2] ?? match?.[1]);
    if (match === null || first > last || last > 65_535) {
      throw new UsageError(`'${part}' is no port or range of ports, as 80 or 8000-8999`);
    }
    return { first, last };
  });
}

export function formatPlace(network: Network = everywhere, ports: readonly PortRange[] | undefined): string {
  const text = formatNetwork(network);
  if (ports === undefined) return text;
  const ranges = ports.map(({ first, last }) => (first === last ? `${first}` : `${first}-${last}`)).join(',');
  return text.includes(':') ? `[${text}]:${ranges}` : `${text}:${ranges}`;
}

/** As in /proc/PID/comm. */
export function parseCommand(value: string): string {
  if (Buffer.byteLength(value) <= MAX_COMMAND_BYTES) return value;
  throw new UsageError(`a command has at most ${MAX_COMMAND_BYTES} bytes, as in /proc/PID/comm`);
}
