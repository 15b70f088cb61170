// Takes a lab down: programs first, then cgroups, namespaces, and the record last.

import { currentOwner } from '../system/index.ts';
import { cgroupOfLab, removeCgroupParent, removeCgroups } from './cgroup-tree.ts';
import { removeNamespaces } from './network.ts';
import { explainPermission } from './permission.ts';
import { type LabRecord, removeRecord, replaceRecord } from './record.ts';
import { namespacesOf } from './spec.ts';

/**
 * Harmless to repeat, to interrupt and to run twice at once; the record stays until the rest is gone.
 * The order matters: the tools that make namespaces run in the lab's cgroup, so once that is gone none can appear any more.
 */
export async function removeKernelObjects(runDir: string, record: LabRecord): Promise<void> {
  await removeCgroups(cgroupOfLab(record.id));
  await removeNamespaces(namespacesOf(record.id, record));
  removeRecord(runDir, record.id);
  removeCgroupParent();
}

/** Takes down a lab that outlives its maker. It is adopted first: if this process dies half-way, the next sweep goes on. */
export async function removeLab(runDir: string, record: LabRecord): Promise<void> {
  try {
    replaceRecord(runDir, { ...record, owner: currentOwner() });
    await removeKernelObjects(runDir, record);
  } catch (error) {
    throw explainPermission(`remove lab ${record.id}`, error);
  }
}
