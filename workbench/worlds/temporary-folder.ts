// A folder that is gone when the test is over; others may read it, because some servers give up
// root.

import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

export function temporaryFolder(name: string): { readonly path: string } & Disposable {
  const path = mkdtempSync(join(tmpdir(), `millrace-${name}-`));
  chmodSync(path, 0o755);
  return { path, [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true }) };
}
