// Why a connection is or is not carried: the checks in the order in which the kernel made them, and
// the one that decided.

import { formatIpEndpoint } from './ip-endpoint.ts';
import { actions, type Connection, type Rule, type RuleSet, ruleFlags, verdicts } from './layouts.ts';
import type { PortRange } from './rule-language.ts';
import { formatRule, type SteerRule } from './rules.ts';
import type { Verdict } from './steering.ts';

export interface Check {
  readonly question: string;
  readonly answer: string;
  /** It settled the matter. */
  readonly isDecisive: boolean;
}

export interface Explanation {
  readonly connection: Connection;
  readonly verdict: Verdict;
  readonly checks: readonly Check[];
}

/** What each verdict means to a person. */
export const verdictWords: Readonly<Record<Verdict, string>> = {
  carried: 'carried',
  own: 'plain TCP: it is the daemon’s own',
  noRule: 'plain TCP: no rule is about it',
  denied: 'plain TCP: a rule says so',
  source: 'plain TCP: its source is a loopback or link-local address, or bound to a device',
  daemonDown: 'plain TCP: no lane of a daemon was alive',
  notAnnounced: 'plain TCP: no peer announced that the destination listens',
  notServed: 'plain TCP: the daemon has no listener for it in its network namespace',
  notAdmitted: 'plain TCP: its packets have not been seen to get to the destination lately',
  noMemory: 'plain TCP: the kernel had no memory to remember it',
  shortcut: 'by shortcut to a program of this host, where both ends take part',
  direct: 'plain TCP: both programs have the library, so that it can become direct',
  overloaded: 'plain TCP: the daemon has few descriptors left, and takes no more connections',
};

export function verdictName(verdict: number): Verdict {
  const found = Object.entries(verdicts).find(([, value]) => value === verdict)?.[0];
  return (found ?? 'noRule') as Verdict;
}

/** `rules` as they are now; they may have changed since. */
export function explainConnection(connection: Connection, rules: RuleSet): Explanation {
  const verdict = verdictName(connection.verdict);
  const checks: Check[] = [];
  const add = (question: string, answer: string, isDecisive: boolean): boolean => {
    checks.push({ question, answer, isDecisive });
    return isDecisive;
  };
  const explained = { connection, verdict, checks };
  if (add('is it a socket of the daemon?', verdict === 'own' ? 'yes' : 'no', verdict === 'own')) return explained;
  if (add('which rule is the first that matches?', ruleAnswer(connection, rules), verdict === 'noRule'))
    return explained;
  const isPass = verdict === 'denied';
  if (add('does the rule want it carried?', isPass ? 'no: pass' : actionName(connection.action), isPass))
    return explained;
  if (verdict === 'shortcut') {
    add('is it for the shortcut?', 'yes: it stays as it is, and messages go past TCP while both ends are local', true);
    return explained;
  }
  const isOdd = verdict === 'source';
  const sources = isOdd ? 'no: loopback, link-local, or bound to a device' : 'yes';
  if (add('is its source one that other hosts can answer?', sources, isOdd)) return explained;
  const isDown = verdict === 'daemonDown';
  if (add('was a lane of a daemon alive?', isDown ? 'no' : 'yes', isDown)) return explained;
  const isFull = verdict === 'overloaded';
  if (add('had the daemon room for it?', isFull ? 'no' : 'yes', isFull)) return explained;
  const isUnknown = verdict === 'notAnnounced';
  const destination = formatIpEndpoint(connection.original);
  if (add(`has a peer announced ${destination}?`, isUnknown ? 'no' : 'yes', isUnknown)) return explained;
  const isElsewhere = verdict === 'notServed';
  const listens = 'does the lane listen in its network namespace, for its address family?';
  if (add(listens, isElsewhere ? 'no' : 'yes', isElsewhere)) return explained;
  const isBarred = verdict === 'notAdmitted';
  if (add('do packets from there get to the destination?', isBarred ? 'not seen lately' : 'yes', isBarred))
    return explained;
  if (verdict === 'direct')
    add('do both programs have the library?', 'yes: it is left alone, and becomes direct when it is used', true);
  else if (verdict === 'noMemory') add('could the kernel remember it?', 'no: out of memory', true);
  else add('by which method?', 'connect: it was sent to the daemon', true);
  return explained;
}

function ruleAnswer(connection: Connection, rules: RuleSet): string {
  if (connection.rule === 0xffff_ffff) return `none of ${rules.count}`;
  const number = `number ${connection.rule + 1}`;
  if (connection.ruleGeneration !== rules.generation) return `${number} of rules that were changed since`;
  const rule = rules.rules[connection.rule];
  return rule === undefined ? number : `${number}: ${formatRule(ruleOf(rule))}`;
}

function actionName(action: number): string {
  return `yes: ${Object.entries(actions).find(([, value]) => value === action)?.[0] ?? action}`;
}

/** A rule of the kernel as a person would write it. */
export function ruleOf(rule: Rule): SteerRule {
  const action = (Object.entries(actions).find(([, value]) => value === rule.action)?.[0] ??
    'pass') as SteerRule['action'];
  const ports = rangeOf(rule.firstPort, rule.lastPort);
  const sourcePorts = rangeOf(rule.firstSourcePort, rule.lastSourcePort);
  const isAny = (mask: readonly number[]): boolean => mask.every((word) => word === 0);
  return {
    action,
    ...(!isAny(rule.toMask) && { to: { address: rule.toAddress, mask: rule.toMask } }),
    ...(ports && { ports }),
    ...(!isAny(rule.fromMask) && { from: { address: rule.fromAddress, mask: rule.fromMask } }),
    ...(sourcePorts && { sourcePorts }),
    ...(rule.cgroupId !== 0 && { cgroup: `#${rule.cgroupId}` }),
    ...(rule.hasCommand !== 0 && { command: rule.command }),
    ...((rule.flags & ruleFlags.redirect) !== 0 && { redirect: true }),
  };
}

function rangeOf(first: number, last: number): readonly PortRange[] | undefined {
  return first === 0 && last === 65_535 ? undefined : [{ first, last }];
}

/** A connection named by its process, or by its two ends. */
export type Which = { readonly pid: number } | { readonly source: string; readonly destination: string };

export function isMeant(connection: Connection, which: Which): boolean {
  if ('pid' in which) return connection.pid === which.pid;
  return (
    formatIpEndpoint(connection.source) === which.source && formatIpEndpoint(connection.original) === which.destination
  );
}
