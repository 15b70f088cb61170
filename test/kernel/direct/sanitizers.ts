// The builds of the library that find errors while programs run, and what they have found.

import { execFileSync } from 'node:child_process';
import { chmodSync, globSync, readFileSync, realpathSync } from 'node:fs';
import { join } from 'node:path';
import { temporaryFolder } from '../../../workbench/worlds/temporary-folder.ts';

type Sanitizer = 'asan' | 'tsan';

export class Sanitized implements Disposable {
  readonly #folder = temporaryFolder('sanitized');
  readonly env: NodeJS.ProcessEnv;

  constructor(sanitizer: Sanitizer) {
    // Some servers give up root before something is found.
    chmodSync(this.#folder.path, 0o1777);
    const runtime = execFileSync('gcc', [`-print-file-name=lib${sanitizer}.so`], { encoding: 'utf8' }).trim();
    const library = join(import.meta.dirname, `../../../build/direct-${sanitizer}/libmillrace-direct.so`);
    const report = `log_path=${join(this.#folder.path, 'report')}`;
    this.env = {
      LD_PRELOAD: `${realpathSync(runtime)}:${library}`,
      // What a program that is not ours does not free is its own affair.
      ASAN_OPTIONS: `detect_leaks=0:${report}`,
      UBSAN_OPTIONS: `print_stacktrace=1:${report}`,
      TSAN_OPTIONS: report,
    };
  }

  /** Empty if nothing was found. */
  reports(): string {
    return globSync(join(this.#folder.path, 'report*'))
      .map((file) => readFileSync(file, 'utf8'))
      .join('\n');
  }

  [Symbol.dispose](): void {
    this.#folder[Symbol.dispose]();
  }
}
