// Rules: which connections are carried, and how. The first one that matches decides; without one a
// connection is left alone.

import { statSync } from 'node:fs';
import { join, relative, resolve } from 'node:path';
import { UnsupportedError, UsageError } from '../errors.ts';
import { findCgroup2Mount } from '../system/index.ts';
import { actions, RULE_SET_BYTES, type Rule, type RuleSet, ruleFlags, writeRuleSet } from './layouts.ts';
import { everywhere, type Network } from './network.ts';
import { formatPlace, type PortRange, parseCommand, parseLine, parsePlace, splitLines } from './rule-language.ts';

type Action = keyof typeof actions;

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
const ALL_PORTS: PortRange = { first: 0, last: 65_535 };

const actionNames = Object.keys(actions) as Action[];

/** `ACTION [to NET[:PORTS]] [from NET[:PORTS]] [cgroup PATH] [command NAME] [redirect]` */
export function parseRule(line: string): SteerRule {
  const { action, parts } = parseLine<Action, Partial<SteerRule>>(line, {
    kind: 'rule',
    actions: actionNames,
    words: {
      to: (value) => {
        const { network, ports } = parsePlace(value);
        return { to: network, ...(ports && { ports }) };
      },
      from: (value) => {
        const { network, ports } = parsePlace(value);
        return { from: network, ...(ports && { sourcePorts: ports }) };
      },
      cgroup: (value) => ({ cgroup: value }),
      command: (value) => ({ command: parseCommand(value) }),
      redirect: { redirect: true },
    },
  });
  const rule: SteerRule = Object.assign({ action }, ...parts);
  if (rule.redirect === true && action !== 'connect') {
    throw new UsageError(`rule '${line.trim()}': 'redirect' belongs to connect`);
  }
  return rule;
}

/** One rule a line; `#` begins a comment. */
export function parseRules(text: string): readonly SteerRule[] {
  return splitLines(text).map(parseRule);
}

export function formatRule(rule: SteerRule): string {
  const parts: string[] = [rule.action];
  if (rule.to !== undefined || rule.ports !== undefined) parts.push('to', formatPlace(rule.to, rule.ports));
  if (rule.from !== undefined || rule.sourcePorts !== undefined)
    parts.push('from', formatPlace(rule.from, rule.sourcePorts));
  if (rule.cgroup !== undefined) parts.push('cgroup', rule.cgroup);
  if (rule.command !== undefined) parts.push('command', rule.command);
  if (rule.redirect === true) parts.push('redirect');
  return parts.join(' ');
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
