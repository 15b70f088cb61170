// The rules of a config, as far as the daemon can follow them.

import type { Config } from '../config/index.ts';
import { UsageError } from '../errors.ts';
import { parseRules, type SteerRule } from '../steering/index.ts';

export function daemonRules({ rules }: Config): readonly SteerRule[] {
  const parsed = parseRules(rules.join('\n'));
  const index = parsed.findIndex(({ action }) => action === 'skmsg');
  if (index < 0) return parsed;
  throw new UsageError(`rules[${index}]: the daemon does not carry by skmsg, which has no backpressure; use connect`);
}
