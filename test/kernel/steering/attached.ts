// What is attached to a cgroup, as bpftool sees it.

import { spawnSync } from 'node:child_process';

export function attachedTo(cgroup: string): readonly string[] {
  const { stdout, stderr, status } = spawnSync('bpftool', ['--json', 'cgroup', 'show', cgroup], {
    encoding: 'utf8',
    timeout: 10_000,
  });
  if (status !== 0) throw new Error(`bpftool cgroup show ${cgroup}: ${stdout}${stderr}`);
  const list = stdout.trim() === '' ? [] : (JSON.parse(stdout) as readonly { readonly name?: string }[]);
  return list.map(({ name }) => name ?? 'a program without a name').sort();
}
