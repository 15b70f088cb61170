// What steering needs of BPF: for each feature a small program is loaded and attached, and removed
// again.

import { constants } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { BpfError, BpfMap, BpfObject, Fd } from '../native/index.ts';
import { type BpfQuestion, bpfQuestions, libbpfQuestion } from './bpf-questions.ts';
import { answer, type Finding, type Outcome, outcomeOfError } from './finding.ts';
import { probeLibrary } from './library.ts';
import { isSystemError } from './system-error.ts';

/** Reads a BPF object that the set-up has built. */
type ReadObject = (name: string) => Promise<Uint8Array>;

interface BpfProbeOptions {
  /** An empty cgroup to attach to; null when there is none. */
  readonly cgroupPath: string | null;
  readonly signal?: AbortSignal;
  readonly readObject?: ReadObject;
}

const PRIVILEGE_FIX =
  'run as root, or with CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON; in a container, allow the bpf system call';

export async function probeBpf(options: BpfProbeOptions): Promise<readonly Finding[]> {
  const { cgroupPath, signal, readObject = readBuiltObject } = options;
  const findings: Finding[] = [await probeLibrary(libbpfQuestion, signal)];
  for (const question of bpfQuestions) {
    findings.push(await answer(question, () => tryBpf(question, cgroupPath, readObject), signal));
  }
  return findings;
}

function readBuiltObject(name: string): Promise<Uint8Array> {
  return readFile(new URL(`../../build/bpf/${name}`, import.meta.url));
}

async function tryBpf(question: BpfQuestion, cgroupPath: string | null, readObject: ReadObject): Promise<Outcome> {
  if (question.how === 'create') return outcomeOfTrial(createMap);
  let bytes: Uint8Array;
  try {
    bytes = await readObject(question.object);
  } catch (error) {
    if (!isSystemError(error, 'ENOENT')) throw error;
    return { answer: 'unknown', detail: `build/bpf/${question.object} is not there`, fix: 'npm run setup' };
  }
  return outcomeOfTrial(() => {
    const { programs, maps, object: name } = question;
    using object = BpfObject.load(bytes, { name, programs, maps });
    return tryLoaded(object, question, cgroupPath);
  });
}

function createMap(): Outcome {
  using _map = BpfMap.create({ type: 'sockhash', name: 'probe_sockhash', keyBytes: 8, valueBytes: 8, maxEntries: 1 });
  return { answer: 'yes', detail: 'a sockhash was created' };
}

function tryLoaded(object: BpfObject, question: BpfQuestion, cgroupPath: string | null): Outcome {
  const [program] = question.programs;
  const [map] = question.maps;
  switch (question.how) {
    case 'cgroup': {
      if (cgroupPath === null) return { answer: 'unknown', detail: 'loaded, but there is no cgroup to attach it to' };
      using cgroup = Fd.open(cgroupPath, constants.O_RDONLY | constants.O_DIRECTORY);
      object.attach(program, cgroup.fd).close();
      return { answer: 'yes', detail: 'loaded, attached to a cgroup, detached' };
    }
    case 'map':
      object.attachToMap(program, map).close();
      return { answer: 'yes', detail: 'loaded, attached to a sockhash, detached' };
    case 'run': {
      const seen = object.run(program);
      if (seen === process.pid) return { answer: 'yes', detail: 'a program read our process id out of the kernel' };
      // In a process id namespace of its own, a process goes by another number than the kernel's.
      return { answer: 'yes', detail: `a program read our process id out of the kernel, where it is ${seen}` };
    }
    default:
      return { answer: 'yes', detail: 'loaded' };
  }
}

/**
 * The outcome of a trial. A missing privilege tells nothing about the kernel; every other refusal
 * of the kernel is a no, also EACCES, with which the verifier rejects a program.
 */
export function outcomeOfTrial(trial: () => Outcome): Outcome {
  try {
    return trial();
  } catch (error) {
    if (isSystemError(error, 'EPERM')) {
      return { answer: 'unknown', detail: 'not permitted (EPERM)', isForbidden: true, fix: PRIVILEGE_FIX };
    }
    if (isSystemError(error, 'ENOMEM', 'EAGAIN', 'EINTR', 'EMFILE', 'ENFILE')) return outcomeOfError(error);
    if (error instanceof BpfError || isSystemError(error, 'EINVAL', 'ENOTSUP', 'ENOSYS', 'ENOENT', 'EACCES')) {
      return { answer: 'no', detail: error.message };
    }
    throw error;
  }
}
