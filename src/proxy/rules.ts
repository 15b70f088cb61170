// The steering rules of a config, checked for what the daemon supports.

import type { Config } from '../config/index.ts';
import { UsageError } from '../errors.ts';
import { parseRules, type SteerRule } from '../steering/index.ts';

export function daemonRules({ rules }: Config): readonly SteerRule[] {
  const parsed = parseRules(rules.join('\n'));
  const index = parsed.findIndex(({ action }) => action === 'skmsg');
  if (index < 0) return parsed;
  throw new UsageError(`rules[${index}]: the daemon does not support skmsg, which has no backpressure; use connect`);
}
