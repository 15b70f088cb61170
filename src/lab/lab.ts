// A lab: hosts on this machine with a network of their own, which are created and removed together.

import { existsSync } from 'node:fs';
import { MillraceError, UsageError } from '../errors.ts';
import { currentOwner } from '../system/index.ts';
import { cgroupOfLab, makeCgroups } from './cgroup-tree.ts';
import { Host } from './host.ts';
import { makeNetwork, namespaceFile } from './network.ts';
import { explainPermission } from './permission.ts';
import { requireTool } from './program.ts';
import { claimRecord, defaultRunDir, type LabRecord, newLabId, replaceRecord } from './record.ts';
import { removeKernelObjects, removeLab } from './remove.ts';
import { hostIndexOf, type LabSpec, labSpec, namespacesOf, type SpecOptions } from './spec.ts';
import { listLabs, type SweepReport, sweep } from './sweep.ts';

export interface LabOptions extends SpecOptions {
  /**
   * The lab outlives this process, and `millrace lab down` removes it. Otherwise a sweep does once
   * this process is dead.
   */
  readonly persistent?: boolean;
  /** Where the records are kept. Labs of different run directories do not know of each other. */
  readonly runDir?: string;
  /** Stops the creation; what exists by then is removed. */
  readonly signal?: AbortSignal;
}

export class Lab implements AsyncDisposable {
  readonly hosts: readonly Host[];
  /** What the sweep before the creation removed of dead processes. */
  readonly swept: SweepReport;
  readonly #record: LabRecord;
  readonly #runDir: string;
  #closing: Promise<void> | null = null;

  private constructor(record: LabRecord, runDir: string, swept: SweepReport) {
    this.#record = record;
    this.#runDir = runDir;
    this.swept = swept;
    this.hosts = record.hosts.map((name) => new Host(record, name));
  }

  static async create(options: LabOptions = {}): Promise<Lab> {
    const spec = labSpec(options);
    const runDir = options.runDir ?? defaultRunDir;
    const { signal } = options;
    signal?.throwIfAborted();
    requireTool('ip', 'iproute2');
    requireTool('nsenter', 'util-linux');
    try {
      const swept = await sweep({ runDir, signal });
      const record = claim(runDir, spec);
      try {
        refuseSecondName(runDir, record);
        makeCgroups(cgroupOfLab(record.id), spec.hosts);
        await makeNetwork({ labId: record.id, cgroup: cgroupOfLab(record.id), signal }, spec);
        signal?.throwIfAborted();
        // Only a complete lab may outlive the process that created it.
        const kept: LabRecord = options.persistent === true ? { ...record, owner: null } : record;
        if (kept !== record) replaceRecord(runDir, kept);
        return new Lab(kept, runDir, swept);
      } catch (error) {
        // If this fails as well, the record stays, and a sweep tries again once this process is
        // dead.
        await removeKernelObjects(runDir, record).catch(() => {});
        throw error;
      }
    } catch (error) {
      throw signal?.aborted === true ? signal.reason : explainPermission('create a lab', error);
    }
  }

  get id(): string {
    return this.#record.id;
  }

  get name(): string | null {
    return this.#record.name;
  }

  get record(): LabRecord {
    return this.#record;
  }

  host(name: string): Host {
    const host = this.hosts[hostIndexOf(this.#record, name)];
    if (host === undefined || this.#closing !== null)
      throw new MillraceError('MILLRACE_ERR_CLOSED', `lab ${this.id} is closed`);
    return host;
  }

  /**
   * Kills every program in the lab and removes it. A second call waits for the first, or tries
   * again if that failed.
   */
  close(): Promise<void> {
    const remove = this.#record.owner === null ? removeLab : removeKernelObjects;
    this.#closing ??= remove(this.#runDir, this.#record).catch((error: unknown) => {
      this.#closing = null;
      throw error;
    });
    return this.#closing;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

/**
 * Writes the record under an unused id: removal goes by names, and must not remove the namespaces
 * of another lab.
 */
function claim(runDir: string, spec: LabSpec): LabRecord {
  for (;;) {
    const id = newLabId();
    const isTaken =
      existsSync(cgroupOfLab(id)) || namespacesOf(id, spec).some((name) => existsSync(namespaceFile(name)));
    const record: LabRecord = { ...spec, id, owner: currentOwner(), createdAt: new Date().toISOString() };
    if (!isTaken && claimRecord(runDir, record)) return record;
  }
}

/**
 * Checked after the record was written: of two processes that create a lab at once, at least one
 * sees the other's.
 */
function refuseSecondName(runDir: string, record: LabRecord): void {
  const { labs } = listLabs(runDir);
  const other = labs.find(
    (lab) => lab.state !== 'dead' && lab.record.id !== record.id && lab.record.name === record.name,
  );
  if (record.name === null || other === undefined) return;
  throw new UsageError(
    `lab ${record.name} exists already (id ${other.record.id}); try: millrace lab down ${record.name}`,
  );
}
