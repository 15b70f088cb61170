// Libraries that are opened at run time: libbpf and libibverbs.

import { realpath } from 'node:fs/promises';
import { basename } from 'node:path';
import { type LibraryLookUp, lookUpLibrary } from '../native/index.ts';
import { answer, type Finding, type Question } from './finding.ts';

export type LookUp = (name: string, symbol: string) => LibraryLookUp;

export interface LibraryQuestion extends Question {
  readonly library: string;
  /** A symbol that only a library of the right version has. */
  readonly symbol: string;
}

export async function probeLibrary(
  question: LibraryQuestion,
  signal?: AbortSignal,
  lookUp: LookUp = lookUpLibrary,
): Promise<Finding> {
  const { library, symbol } = question;
  return answer(
    question,
    async () => {
      const found = lookUp(library, symbol);
      if (found.state === 'absent') return { answer: 'no', detail: found.reason };
      if (found.state === 'symbol-missing') return { answer: 'no', detail: `no ${symbol} in it: ${found.reason}` };
      // The file behind the name carries the full version: libibverbs.so.1.14.44.0
      const file = await realpath(found.path).catch(() => found.path);
      return { answer: 'yes', detail: `${basename(file)}, ${symbol} found` };
    },
    signal,
  );
}
