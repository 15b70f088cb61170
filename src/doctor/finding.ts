// The doctor's questions and findings, as plain data.

import { isSystemError } from './system-error.ts';

/** The features of millrace, by their names in findings. */
export const features = {
  connect: 'proxy, connect steering',
  shortcut: 'shortcut between programs on one host',
  vortex: 'streams as memory',
  ibverbs: 'RDMA devices through libibverbs',
  lab: 'lab and demo',
  vm: 'verbs for virtual machines',
} as const;

export type Feature = keyof typeof features;

/** `unknown`: the probe could not tell, and `detail` says why. */
export type Answer = 'yes' | 'no' | 'unknown';

type Group = 'kernel' | 'steering' | 'memory' | 'RDMA' | 'virtual machines' | 'lab' | 'tools';

export interface Question {
  /** Stable, for programs. */
  readonly id: string;
  readonly group: Group;
  /** A noun, for people. */
  readonly title: string;
  /** Features that do not work without it. */
  readonly neededBy: readonly Feature[];
  /** Features that work without it, but with less. */
  readonly improves?: readonly Feature[];
  /** What does not work when the answer is not yes. */
  readonly consequence: string;
  /** What to do about it. */
  readonly fix: string;
}

/** The result of a probe. Its consequence and fix, if any, replace those of the question. */
export interface Outcome {
  readonly answer: Answer;
  readonly detail: string;
  /** The user lacks a permission; the machine may have the feature. */
  readonly isForbidden?: boolean;
  readonly consequence?: string;
  readonly fix?: string;
}

export interface Finding {
  readonly id: string;
  readonly group: Group;
  readonly title: string;
  readonly answer: Answer;
  readonly detail: string;
  readonly neededBy: readonly Feature[];
  readonly improves: readonly Feature[];
  readonly isForbidden: boolean;
  /** Absent when the answer is yes. */
  readonly consequence?: string;
  readonly fix?: string;
}

/**
 * Runs a probe. An error becomes `unknown` with the reason; only an abort of `signal` is thrown.
 */
export async function answer(
  question: Question,
  probe: () => Outcome | Promise<Outcome>,
  signal?: AbortSignal,
): Promise<Finding> {
  signal?.throwIfAborted();
  let outcome: Outcome;
  try {
    outcome = await probe();
  } catch (error) {
    signal?.throwIfAborted();
    outcome = outcomeOfError(error);
  }
  const { id, group, title, neededBy, improves = [] } = question;
  const { answer, detail, isForbidden = false } = outcome;
  const finding = { id, group, title, answer, detail, neededBy, improves, isForbidden };
  if (answer === 'yes') return finding;
  return {
    ...finding,
    consequence: outcome.consequence ?? question.consequence,
    fix: outcome.fix ?? question.fix,
  };
}

/** For an unexpected error: the answer is unknown, and only a permission error is marked as one. */
export function outcomeOfError(error: unknown): Outcome {
  const detail = error instanceof Error ? error.message : String(error);
  return { answer: 'unknown', detail, isForbidden: isSystemError(error, 'EPERM', 'EACCES') };
}
