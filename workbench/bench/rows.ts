// All rows, and how a user selects some of them.

import { UsageError } from '../../src/errors.ts';
import { didYouMean } from '../../src/text/index.ts';
import { directRows } from './direct.ts';
import { loadRows } from './load.ts';
import { nativeRows } from './native.ts';
import { proxyRows } from './proxy.ts';
import { remotingRows } from './remoting.ts';
import { roceRows } from './roce.ts';
import type { Row } from './row.ts';
import { steerRows } from './steer.ts';
import { verbsRows } from './verbs.ts';
import { verbsRxeRows } from './verbs-rxe.ts';
import { vortexLocalRows } from './vortex-local.ts';
import { vortexNetRows } from './vortex-net.ts';

const rows: readonly Row[] = [
  ...nativeRows,
  ...verbsRows,
  ...verbsRxeRows,
  ...roceRows,
  ...steerRows,
  ...proxyRows,
  ...directRows,
  ...loadRows,
  ...vortexLocalRows,
  ...vortexNetRows,
  ...remotingRows,
];

/**
 * Ids, groups (`steer` and `steer.connect` mean all ids that continue with a dot), or patterns with
 * `*` (`native.*`, `*.bulk.3`); none means all rows. The result has the order of the list, each row
 * once. A variant of a row, such as `proxy.bulk.1@roce`, is selected only by a word with an `@`:
 * `proxy@roce` is that group on that wire.
 */
export function selectRows(patterns: readonly string[], all: readonly Row[] = rows): readonly Row[] {
  if (patterns.length === 0) return all;
  const matchers = patterns.map((pattern) => {
    // A word that is an id is no group: `native.crossing` does not select `native.crossing.5`.
    const [word = '', ...variant] = pattern.split('@');
    const group = [`${word}.*`, ...variant].join('@');
    const found = [pattern, group].map(matcherOf).find((matcher) => all.some(({ id }) => matcher.test(id)));
    if (found !== undefined) return found;
    const hint = didYouMean(
      pattern,
      all.map(({ id }) => id),
    );
    throw new UsageError(`no benchmark '${pattern}'${hint}; 'millrace bench --list' lists them`);
  });
  return all.filter(({ id }) => matchers.some((matcher) => matcher.test(id)));
}

function matcherOf(pattern: string): RegExp {
  return new RegExp(
    `^${pattern
      .split('*')
      .map((part) => RegExp.escape(part))
      .join('[^@]*')}$`,
  );
}
