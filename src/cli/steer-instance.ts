// Which instance of the steering a command means when the user names none.

import { MillraceError, UsageError } from '../errors.ts';
import type { PinnedInstance } from '../steering/index.ts';

/** For commands that look: the only instance there is, or the only one that a daemon serves. */
export function instanceToShow(pinned: readonly PinnedInstance[]): string {
  const [first, ...others] = pinned;
  if (first === undefined) {
    throw new MillraceError(
      'MILLRACE_ERR_NOT_RUNNING',
      "nothing is steered on this host; start the daemon with 'millrace up', or attach rules with 'millrace steer up'",
    );
  }
  const served = pinned.filter(({ daemon }) => daemon === 'alive');
  if (others.length > 0 && served.length !== 1) {
    throw new UsageError(`several instances are pinned here: ${namesOf(pinned)}; choose one with --instance`);
  }
  return (others.length === 0 ? first : (served[0] ?? first)).name;
}

/**
 * For `steer down`: the only instance that no daemon serves. A daemon takes its own away when it
 * stops.
 */
export function instanceToRemove(pinned: readonly PinnedInstance[]): string {
  const idle = pinned.filter(({ daemon }) => daemon !== 'alive');
  const [first, ...others] = idle;
  if (others.length > 0) throw new UsageError(`several instances are pinned here: ${namesOf(idle)}; name one of them`);
  if (first !== undefined) return first.name;
  const why =
    pinned.length === 0
      ? 'nothing is steered on this host'
      : `a daemon serves ${namesOf(pinned)}; stop the daemon, or name the instance to detach it all the same`;
  throw new MillraceError('MILLRACE_ERR_NOT_RUNNING', why);
}

/** For `steer up`, which would take the programs of a running daemon away. */
export function refuseServed(instance: string, pinned: readonly PinnedInstance[]): void {
  const found = pinned.find(({ name, daemon }) => name === instance && daemon === 'alive');
  if (found === undefined) return;
  throw new UsageError(
    `steer up: a daemon (pid ${found.owner?.pid}) serves the instance ${instance}; change the rules in its config, or give another --instance`,
  );
}

function namesOf(instances: readonly PinnedInstance[]): string {
  return instances.map(({ name }) => name).join(', ');
}
