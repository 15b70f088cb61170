// Every row there is, and how a user names some of them.

import { UsageError } from '../errors.ts';
import { didYouMean } from '../suggest.ts';
import { nativeRows } from './native.ts';
import { roceRows } from './roce.ts';
import type { Row } from './row.ts';
import { verbsRows } from './verbs.ts';
import { verbsRxeRows } from './verbs-rxe.ts';

export const rows: readonly Row[] = [...nativeRows, ...verbsRows, ...verbsRxeRows, ...roceRows];

/** Ids, or patterns with `*` (`native.*`, `proxy.redis.*`); none means all. In the table's order, each once. */
export function selectRows(patterns: readonly string[], all: readonly Row[] = rows): readonly Row[] {
  if (patterns.length === 0) return all;
  const matchers = patterns.map((pattern) => {
    const matcher = new RegExp(
      `^${pattern
        .split('*')
        .map((part) => RegExp.escape(part))
        .join('.*')}$`,
    );
    if (all.some(({ id }) => matcher.test(id))) return matcher;
    const hint = didYouMean(
      pattern,
      all.map(({ id }) => id),
    );
    throw new UsageError(`no benchmark '${pattern}'${hint}; 'millrace bench --list' lists them`);
  });
  return all.filter(({ id }) => matchers.some((matcher) => matcher.test(id)));
}
