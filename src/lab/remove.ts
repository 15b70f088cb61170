// Removes a lab: its programs first, then cgroups and namespaces, and the record last.

import { currentOwner } from '../system/index.ts';
import { cgroupOfLab, removeCgroupParent, removeCgroups } from './cgroup-tree.ts';
import { removeNamespaces } from './network.ts';
import { explainPermission } from './permission.ts';
import { type LabRecord, removeRecord, replaceRecord } from './record.ts';
import { namespacesOf } from './spec.ts';

/**
 * It may be repeated, interrupted and run twice at once: the record stays until the rest is
 * removed. The order matters: the tools that create namespaces run in the lab's cgroup, so once
 * that is removed no namespace can appear any more.
 */
export async function removeKernelObjects(runDir: string, record: LabRecord): Promise<void> {
  await removeCgroups(cgroupOfLab(record.id));
  await removeNamespaces(namespacesOf(record.id, record));
  removeRecord(runDir, record.id);
  removeCgroupParent();
}

/**
 * Removes a persistent lab. It gets this process as its owner first: if the process dies half-way,
 * a sweep goes on.
 */
export async function removeLab(runDir: string, record: LabRecord): Promise<void> {
  try {
    replaceRecord(runDir, { ...record, owner: currentOwner() });
    await removeKernelObjects(runDir, record);
  } catch (error) {
    throw explainPermission(`remove lab ${record.id}`, error);
  }
}
