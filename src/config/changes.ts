// The keys that differ between two configs, and whether a running daemon can take them over.

import { isDeepStrictEqual } from 'node:util';
import type { Config } from './config.ts';

/** Everything else is fixed when the daemon starts. */
const reloadableKeys = ['rules', 'peers', 'accept', 'etcd', 'tls', 'insecure', 'log', 'drainSeconds'] as const;

interface ChangedKeys {
  readonly reloadable: readonly (keyof Config)[];
  readonly needRestart: readonly (keyof Config)[];
}

/** Keys of the top level, sorted. */
export function changedKeys(before: Config, after: Config): ChangedKeys {
  const keys = [...new Set([...Object.keys(before), ...Object.keys(after)])].sort() as (keyof Config)[];
  const changed = keys.filter((key) => !isDeepStrictEqual(before[key], after[key]));
  const isReloadable = (key: keyof Config): boolean => reloadableKeys.some((one) => one === key);
  return {
    reloadable: changed.filter(isReloadable),
    needRestart: changed.filter((key) => !isReloadable(key)),
  };
}
