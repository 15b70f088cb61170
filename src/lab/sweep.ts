// Removes the labs of dead processes, and nothing else.

import { type Liveness, livenessOf, ownerToken, thisMachine } from '../system/index.ts';
import { removeCgroupParent } from './cgroup-tree.ts';
import {
  defaultRunDir,
  type LabRecord,
  listRecords,
  type RecordProblem,
  readRecord,
  removeDeadTemporaries,
} from './record.ts';
import { removeKernelObjects } from './remove.ts';

export type LabState = 'persistent' | Liveness;

export interface KnownLab {
  readonly record: LabRecord;
  /**
   * `dead`: the next sweep removes it. `unknown`: its owner lives, or lived, in another pid
   * namespace.
   */
  readonly state: LabState;
}

interface LabList {
  readonly labs: readonly KnownLab[];
  readonly problems: readonly RecordProblem[];
}

export interface SweepReport {
  /** Ids of the labs that were removed. */
  readonly removed: readonly string[];
  /**
   * Files that are no records, and labs that could not be removed; the sweep goes on after each.
   */
  readonly problems: readonly RecordProblem[];
}

interface SweepOptions {
  readonly runDir?: string;
  readonly signal?: AbortSignal | undefined;
}

/** All labs of the machine, the oldest first. Only reads. */
export function listLabs(runDir: string = defaultRunDir): LabList {
  const view = thisMachine();
  const { records, problems } = listRecords(runDir);
  const stateOf = ({ owner }: LabRecord): LabState => (owner === null ? 'persistent' : livenessOf(owner, view));
  return { labs: records.map((record) => ({ record, state: stateOf(record) })), problems };
}

/**
 * Between the read of its record and its death the owner may have made the lab persistent, as `lab
 * up` does in the end.
 */
function isUnchanged(runDir: string, record: LabRecord): boolean {
  const now = readRecord(runDir, record.id);
  return now?.owner != null && record.owner !== null && ownerToken(now.owner) === ownerToken(record.owner);
}

export async function sweep({ runDir = defaultRunDir, signal }: SweepOptions = {}): Promise<SweepReport> {
  const { labs, problems } = listLabs(runDir);
  const removed: string[] = [];
  const failures: RecordProblem[] = [];
  for (const { record, state } of labs) {
    signal?.throwIfAborted();
    if (state !== 'dead' || !isUnchanged(runDir, record)) continue;
    try {
      await removeKernelObjects(runDir, record);
      removed.push(record.id);
    } catch (error) {
      failures.push({ file: `${record.id}.json`, reason: error instanceof Error ? error.message : String(error) });
    }
  }
  removeDeadTemporaries(runDir, thisMachine());
  // A process that was killed between the last two steps of a removal leaves the empty parent.
  removeCgroupParent();
  return { removed, problems: [...problems, ...failures] };
}
