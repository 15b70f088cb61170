// Finds where cgroup v2 is mounted: /sys/fs/cgroup on unified systems, elsewhere on hybrid ones.

import { readFileSync } from 'node:fs';

/** The mount point, or null when cgroup v2 is not mounted. */
export function findCgroup2Mount(mountinfo: string = readFileSync('/proc/self/mountinfo', 'utf8')): string | null {
  let partial: string | null = null;
  for (const line of mountinfo.split('\n')) {
    // id parent major:minor root mountpoint options [optional fields…] - fstype source
    // superoptions; see proc(5).
    const [mount, filesystem] = line.split(' - ', 2);
    const [, , , root, mountPoint] = mount?.split(' ') ?? [];
    if (filesystem?.split(' ', 1)[0] !== 'cgroup2' || root === undefined || mountPoint === undefined) continue;
    const path = unescapeOctal(mountPoint);
    if (root === '/') return path;
    // A bind mount of a subtree is used only if the whole tree is not mounted.
    partial ??= path;
  }
  return partial;
}

/** The kernel writes space, tab, newline and backslash in paths as \040, \011, \012 and \134. */
function unescapeOctal(text: string): string {
  return text.replace(/\\([0-7]{3})/g, (_, digits: string) => String.fromCharCode(Number.parseInt(digits, 8)));
}
