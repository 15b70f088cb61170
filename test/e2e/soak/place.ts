// A place for one soak of a test, which tells what the soak has left.

import { execFileSync, spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const root = join(import.meta.dirname, '../../..');
const pins = '/sys/fs/bpf/millrace';

/**
 * A place for labs and folders of one soak, so that what it leaves can be told from what others
 * have.
 */
export class Place implements Disposable {
  readonly #folder = mkdtempSync(join(tmpdir(), 'soak-test-'));
  readonly #pinned = pinned();

  get env(): NodeJS.ProcessEnv {
    return { ...process.env, MILLRACE_RUN_DIR: join(this.#folder, 'run'), TMPDIR: this.#folder };
  }

  start(args: readonly string[]) {
    return spawn(join(root, 'millrace'), ['soak', ...args], {
      stdio: ['ignore', 'pipe', 'pipe'],
      detached: true,
      env: this.env,
    });
  }

  /** Labs, folders, and what is pinned for hosts of no lab that there is. */
  left(): readonly string[] {
    const shown = execFileSync(join(root, 'millrace'), ['lab', 'show', '--json'], { encoding: 'utf8', env: this.env });
    return [
      ...JSON.parse(shown).labs.map(({ id }: { id: string }) => `lab ${id}`),
      ...readdirSync(this.#folder).filter((name) => name.startsWith('millrace-')),
      ...pinned().filter((name) => !this.#pinned.includes(name)),
    ];
  }

  [Symbol.dispose](): void {
    rmSync(this.#folder, { recursive: true, force: true });
  }
}

function pinned(): readonly string[] {
  const names = existsSync(pins) ? readdirSync(pins) : [];
  // Of hosts whose lab is gone: those of the other soaks go with them.
  const namespaces = existsSync('/run/netns') ? readdirSync('/run/netns') : [];
  const hasLab = (name: string): boolean => namespaces.some((each) => each.includes(name.slice(0, 8)));
  return names.filter((name) => /^[0-9a-f]{8}-[ab]$/.test(name) && !hasLab(name));
}
