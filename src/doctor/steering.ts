// The steering programs: each method is loaded, tried if it can be, and removed again.

import { MillraceError } from '../errors.ts';
import { type MethodName, tryMethods } from '../steering/index.ts';
import { answer, type Finding, type Outcome, type Question } from './finding.ts';

const fix = 'a newer kernel; see docs/steering.md';

const questions: readonly (Question & { readonly method: MethodName })[] = [
  {
    id: 'steer-connect',
    method: 'connect',
    group: 'steering',
    title: 'steering by connect',
    neededBy: ['connect'],
    consequence: 'connections of programs cannot be carried',
    fix,
  },
  {
    id: 'steer-shortcut',
    method: 'shortcut',
    group: 'steering',
    title: 'steering by shortcut',
    neededBy: ['shortcut'],
    consequence: 'rules with shortcut or redirect are refused',
    fix,
  },
];

/** Nothing is attached. */
export async function probeMethods(signal?: AbortSignal): Promise<readonly Finding[]> {
  const outcomes = outcomesOf();
  return Promise.all(questions.map((question) => answer(question, async () => outcomes(question.method), signal)));
}

function outcomesOf(): (method: MethodName) => Outcome {
  try {
    const missing = tryMethods();
    return (method) => {
      const reason = missing.get(method);
      return reason === undefined ? { answer: 'yes', detail: 'loads' } : { answer: 'no', detail: reason };
    };
  } catch (error) {
    const detail = error instanceof Error ? error.message : String(error);
    const isForbidden = error instanceof MillraceError && error.code === 'MILLRACE_ERR_PERMISSION';
    return () => ({ answer: isForbidden ? 'unknown' : 'no', detail, isForbidden });
  }
}
