// Runs all probes and summarizes their findings.

import { probeBpf } from './bpf.ts';
import { probeCapabilities } from './capabilities.ts';
import { probeCgroup } from './cgroup.ts';
import type { Finding } from './finding.ts';
import { probeKernel } from './kernel.ts';
import { type Machine, thisMachine } from './machine.ts';
import { probeMemory } from './memory.ts';
import { probeNetwork } from './network.ts';
import { probeRdma } from './rdma.ts';
import { probeMethods } from './steering.ts';
import { type FeatureSummary, type Readiness, readiness, summarize } from './summary.ts';
import { probeTools } from './tools.ts';
import { probeUserfault } from './userfault.ts';
import { probeVirtualization } from './virtualization.ts';

interface DiagnoseOptions {
  readonly signal?: AbortSignal;
  /** Where files and commands are looked for. Kernel calls always go to the kernel we run on. */
  readonly machine?: Machine;
}

/** Stable: fields are added, never changed, as long as `v` is 1. */
export interface Report {
  readonly v: 1;
  /** Whether the embedded default works: the lab with connect steering. */
  readonly readiness: Readiness;
  readonly findings: readonly Finding[];
  readonly features: readonly FeatureSummary[];
}

export async function diagnose(options: DiagnoseOptions = {}): Promise<Report> {
  const { signal } = options;
  const machine = options.machine ?? thisMachine(signal === undefined ? {} : { signal });
  // Commands run in processes of their own while the kernel probes, which are short, run in this
  // thread.
  const probed = await Promise.allSettled([
    probeKernel(machine, signal),
    probeSteering(machine, signal),
    probeUserfault(signal),
    probeMemory(machine, signal),
    probeRdma(machine, signal),
    probeVirtualization(machine, signal),
    probeNetwork(machine, signal),
    probeTools(machine, signal),
  ]);
  // An abort is passed on only now, when no trial is running any more.
  const findings = probed.flatMap((result) => {
    if (result.status === 'rejected') throw result.reason;
    return result.value;
  });
  return { v: 1, readiness: readiness(findings), findings, features: summarize(findings) };
}

async function probeSteering(machine: Machine, signal?: AbortSignal): Promise<readonly Finding[]> {
  const capabilities = await probeCapabilities(machine, signal);
  const { finding, trial } = await probeCgroup(machine, signal);
  using _removed = trial;
  const bpf = await probeBpf({ cgroupPath: trial?.path ?? null, ...(signal && { signal }) });
  return [capabilities, finding, ...bpf, ...(await probeMethods(signal))];
}
