// Rules: which connections are carried, and how. The first one that matches decides; without one a
// connection is left alone.

import { statSync } from 'node:fs';
import { join, relative, resolve } from 'node:path';
import { UnsupportedError, UsageError } from '../errors.ts';
import { findCgroup2Mount } from '../system/index.ts';
import { didYouMean } from '../text/index.ts';
import { actions, RULE_SET_BYTES, type Rule, type RuleSet, ruleFlags, writeRuleSet } from './layouts.ts';
import { everywhere, formatNetwork, type Network, parseNetwork } from './network.ts';

type Action = keyof typeof actions;

export interface PortRange {
  readonly first: number;
  readonly last: number;
}

/** What a person writes; whatever is left out matches everything. */
export interface SteerRule {
  readonly action: Action;
  /** The destination. */
  readonly to?: Network;
  readonly ports?: readonly PortRange[];
  /** The source: what the socket is bound to, or else the host's own address. */
  readonly from?: Network;
  readonly sourcePorts?: readonly PortRange[];
  /** A cgroup and all below it: a path from the root of cgroup v2, or the whole path. */
  readonly cgroup?: string;
  /** As in /proc/PID/comm: at most 15 bytes. */
  readonly command?: string;
  readonly redirect?: boolean;
}

/** As in bpf/steer.bpf.h. */
export const MAX_RULES = 64;
const MAX_COMMAND_BYTES = 15;
const ALL_PORTS: PortRange = { first: 0, last: 65_535 };
const words = ['to', 'from', 'cgroup', 'command', 'redirect'] as const;

/** `ACTION [to NET[:PORTS]] [from NET[:PORTS]] [cgroup PATH] [command NAME] [redirect]` */
export function parseRule(line: string): SteerRule {
  const [action = '', ...rest] = line.trim().split(/\s+/);
  if (!Object.hasOwn(actions, action)) {
    throw wrong(
      line,
      `'${action}' is none of ${Object.keys(actions).join(', ')}${didYouMean(action, Object.keys(actions))}`,
    );
  }
  let rule: SteerRule = { action: action as Action };
  const seen = new Set<string>();
  for (let at = 0; at < rest.length; at++) {
    const word = rest[at] ?? '';
    if (!words.includes(word as (typeof words)[number])) {
      throw wrong(line, `'${word}' is none of ${words.join(', ')}${didYouMean(word, words)}`);
    }
    if (seen.has(word)) throw wrong(line, `'${word}' comes twice`);
    seen.add(word);
    if (word === 'redirect') {
      rule = { ...rule, redirect: true };
      continue;
    }
    const value = rest[++at];
    if (value === undefined) throw wrong(line, `nothing follows '${word}'`);
    rule = { ...rule, ...parsePart(line, word, value) };
  }
  if (rule.redirect === true && rule.action !== 'connect') throw wrong(line, `'redirect' belongs to connect`);
  return rule;
}

function parsePart(line: string, word: string, value: string): Partial<SteerRule> {
  if (word === 'cgroup') return { cgroup: value };
  if (word === 'command') {
    if (Buffer.byteLength(value) > MAX_COMMAND_BYTES) {
      throw wrong(line, `a command has at most ${MAX_COMMAND_BYTES} bytes, as in /proc/PID/comm`);
    }
    return { command: value };
  }
  const match = /^(?:\[([^\]]+)\]|([^:[\]]+|[^[\]]*:[^[\]]*:[^[\]]*))(?::([\d,-]+))?$/.exec(value);
  if (match === null) throw wrong(line, `'${value}' is no network with ports, as 10.0.0.0/8:80,443 or [fd00::/8]:80`);
  const network = parseNetwork(match[1] ?? match[2] ?? '');
  const ports = match[3] === undefined ? undefined : parsePorts(line, match[3]);
  return word === 'to'
    ? { to: network, ...(ports && { ports }) }
    : { from: network, ...(ports && { sourcePorts: ports }) };
}

function parsePorts(line: string, text: string): readonly PortRange[] {
  return text.split(',').map((part) => {
    const match = /^(\d{1,5})(?:-(\d{1,5}))?$/.exec(part);
    const first = Number(match?.[1]);
    const last = Number(match?.[2] ?? match?.[1]);
    if (match === null || first > last || last > 65_535) {
      throw wrong(line, `'${part}' is no port or range of ports, as 80 or 8000-8999`);
    }
    return { first, last };
  });
}

/** One rule a line; `#` begins a comment. */
export function parseRules(text: string): readonly SteerRule[] {
  return text
    .split('\n')
    .map((line) => line.replace(/#.*/, '').trim())
    .filter((line) => line !== '')
    .map(parseRule);
}

export function formatRule(rule: SteerRule): string {
  const parts: string[] = [rule.action];
  if (rule.to !== undefined || rule.ports !== undefined) parts.push('to', place(rule.to, rule.ports));
  if (rule.from !== undefined || rule.sourcePorts !== undefined) parts.push('from', place(rule.from, rule.sourcePorts));
  if (rule.cgroup !== undefined) parts.push('cgroup', rule.cgroup);
  if (rule.command !== undefined) parts.push('command', rule.command);
  if (rule.redirect === true) parts.push('redirect');
  return parts.join(' ');
}

function place(network: Network = everywhere, ports: readonly PortRange[] | undefined): string {
  const text = formatNetwork(network);
  if (ports === undefined) return text;
  const ranges = ports.map(({ first, last }) => (first === last ? `${first}` : `${first}-${last}`)).join(',');
  return text.includes(':') ? `[${text}]:${ranges}` : `${text}:${ranges}`;
}

/** As the kernel has them: a rule with several ranges of ports becomes several. */
export function compileRules(rules: readonly SteerRule[], generation: number): RuleSet {
  const compiled: Rule[] = [];
  for (const rule of rules) {
    for (const to of rule.ports ?? [ALL_PORTS]) {
      for (const from of rule.sourcePorts ?? [ALL_PORTS]) {
        compiled.push(compileRule(rule, to, from));
      }
    }
  }
  if (compiled.length > MAX_RULES) {
    throw new UsageError(`${compiled.length} rules and port ranges: at most ${MAX_RULES} are possible`);
  }
  return { count: compiled.length, generation, rules: compiled };
}

function compileRule(rule: SteerRule, to: PortRange, from: PortRange): Rule {
  const { to: target = everywhere, from: source = everywhere, command = '' } = rule;
  const cgroup = rule.cgroup === undefined ? { id: 0, level: 0 } : findCgroup(rule.cgroup);
  return {
    action: actions[rule.action],
    flags: rule.redirect === true ? ruleFlags.redirect : 0,
    toAddress: target.address,
    toMask: target.mask,
    fromAddress: source.address,
    fromMask: source.mask,
    firstPort: to.first,
    lastPort: to.last,
    firstSourcePort: from.first,
    lastSourcePort: from.last,
    cgroupId: cgroup.id,
    cgroupLevel: cgroup.level,
    hasCommand: command === '' ? 0 : 1,
    command,
  };
}

export function encodeRules(set: RuleSet): Uint8Array {
  const bytes = new Uint8Array(RULE_SET_BYTES);
  writeRuleSet(new DataView(bytes.buffer), 0, set);
  return bytes;
}

/** The whole path of a cgroup that is there. */
export function cgroupPath(path: string): string {
  const mount = findCgroup2Mount();
  if (mount === null) throw new UnsupportedError('cgroup v2 is not mounted here');
  const whole = path === mount || path.startsWith(`${mount}/`) ? resolve(path) : resolve(join(mount, path));
  try {
    if (statSync(whole).isDirectory() && `${whole}/`.startsWith(`${mount}/`)) return whole;
  } catch {
    // Said below.
  }
  throw new UsageError(`there is no cgroup ${path} below ${mount}`);
}

/** Its number, and how deep it is: programs compare the ancestor at that depth. */
function findCgroup(path: string): { readonly id: number; readonly level: number } {
  const whole = cgroupPath(path);
  const below = relative(findCgroup2Mount() ?? '', whole);
  return { id: statSync(whole).ino, level: below === '' ? 0 : below.split('/').length };
}

function wrong(line: string, reason: string): UsageError {
  return new UsageError(`rule '${line.trim()}': ${reason}`);
}
