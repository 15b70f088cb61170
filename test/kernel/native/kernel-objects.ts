// What the kernel holds, as bpftool and the cgroup tree tell it, for tests that must leave nothing
// behind.

import { spawnSync } from 'node:child_process';

interface BpfThing {
  readonly id: number;
  readonly name?: string;
}

function bpftool(...args: readonly string[]): unknown {
  const { status, stdout, stderr } = spawnSync('bpftool', ['--json', ...args], { encoding: 'utf8' });
  if (status !== 0) throw new Error(`bpftool ${args.join(' ')}: ${stderr}${stdout}`);
  return JSON.parse(stdout);
}

/** Programs and maps whose names start so. The kernel keeps 15 characters of a name. */
export function bpfNames(prefix: string): readonly string[] {
  const things = [...(bpftool('prog', 'show') as BpfThing[]), ...(bpftool('map', 'show') as BpfThing[])];
  return things.map((thing) => thing.name ?? '').filter((name) => name.startsWith(prefix));
}

/** Names of the programs attached to a cgroup, in order. */
export function attachedTo(cgroup: string): readonly string[] {
  const { status, stdout, stderr } = spawnSync('bpftool', ['--json', 'cgroup', 'show', cgroup], {
    encoding: 'utf8',
    timeout: 10_000,
  });
  if (status !== 0) throw new Error(`bpftool cgroup show ${cgroup}: ${stdout}${stderr}`);
  // bpftool prints nothing at all for a cgroup without programs.
  const things = stdout.trim() === '' ? [] : (JSON.parse(stdout) as BpfThing[]);
  return things.map((thing) => thing.name ?? 'a program without a name').sort();
}
