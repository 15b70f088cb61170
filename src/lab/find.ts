// Finds a lab by its name, by its id, or because there is only one.

import { MillraceError, UsageError } from '../errors.ts';
import { didYouMean } from '../text/index.ts';
import type { LabRecord } from './record.ts';
import type { KnownLab } from './sweep.ts';

/** The name of a lab for people: its id if it has none. */
export function labelOf(record: LabRecord): string {
  return record.name ?? record.id;
}

/** Without a label, the only persistent lab: labs of running programs are left to those. */
export function findLab(labs: readonly KnownLab[], label?: string): KnownLab {
  if (label === undefined) return onlyPersistent(labs);
  const found = labs.find(({ record }) => record.id === label) ?? labs.find(({ record }) => record.name === label);
  if (found !== undefined) return found;
  const known = labs.flatMap(({ record }) => (record.name === null ? [record.id] : [record.name, record.id]));
  throw new MillraceError(
    'MILLRACE_ERR_NOT_RUNNING',
    `there is no lab ${JSON.stringify(label)}${didYouMean(label, known)}`,
  );
}

function onlyPersistent(labs: readonly KnownLab[]): KnownLab {
  const persistent = labs.filter(({ state }) => state === 'persistent');
  const [only] = persistent;
  if (only === undefined) throw new MillraceError('MILLRACE_ERR_NOT_RUNNING', 'no lab is up; try: millrace lab up');
  if (persistent.length === 1) return only;
  throw new UsageError(
    `several labs are up; name one of: ${persistent.map(({ record }) => labelOf(record)).join(', ')}`,
  );
}
