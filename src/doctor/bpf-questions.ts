// The questions about BPF: which program of bpf/probe*.bpf.c answers each, and how it is tried.

import type { Question } from './finding.ts';
import type { LibraryQuestion } from './library.ts';

export interface BpfQuestion extends Question {
  readonly object: 'probe.bpf.o' | 'probe-btf.bpf.o';
  readonly programs: readonly string[];
  readonly maps: readonly string[];
  /** What is done with the program after loading it; `create` only creates a map. */
  readonly how: 'create' | 'cgroup' | 'map' | 'run' | 'load';
}

const base = { group: 'steering', object: 'probe.bpf.o', maps: [] } as const;
const withBtf = { ...base, object: 'probe-btf.bpf.o' } as const;
const newerKernel = (config: string, version: string): string => `use a kernel ${version} or newer with ${config}`;

export const libbpfQuestion: LibraryQuestion = {
  group: 'steering',
  id: 'libbpf',
  title: 'libbpf',
  neededBy: ['connect', 'shortcut'],
  consequence: 'no BPF program can be loaded, so nothing is steered',
  fix: 'apt-get install libbpf1',
  library: 'libbpf.so.1',
  symbol: 'bpf_map__set_autocreate',
};

export const bpfQuestions: readonly BpfQuestion[] = [
  {
    ...base,
    id: 'connect4',
    title: 'IPv4 connect hook',
    neededBy: ['connect'],
    consequence: 'connections cannot be steered when they are made',
    fix: newerKernel('CONFIG_CGROUP_BPF=y', '4.17'),
    programs: ['probe_connect4'],
    how: 'cgroup',
  },
  {
    ...base,
    id: 'connect6',
    title: 'IPv6 connect hook',
    neededBy: [],
    improves: ['connect'],
    consequence: 'IPv6 connections are not steered',
    fix: newerKernel('CONFIG_CGROUP_BPF=y and CONFIG_IPV6=y', '4.17'),
    programs: ['probe_connect6'],
    how: 'cgroup',
  },
  {
    ...base,
    id: 'getpeername4',
    title: 'IPv4 getpeername hook',
    neededBy: [],
    improves: ['connect'],
    consequence: 'steered programs see the address of the daemon instead of their peer',
    fix: newerKernel('CONFIG_CGROUP_BPF=y', '5.8'),
    programs: ['probe_getpeername4'],
    how: 'cgroup',
  },
  {
    ...base,
    id: 'getpeername6',
    title: 'IPv6 getpeername hook',
    neededBy: [],
    improves: ['connect'],
    consequence: 'steered programs see the IPv6 address of the daemon instead of their peer',
    fix: newerKernel('CONFIG_CGROUP_BPF=y and CONFIG_IPV6=y', '5.8'),
    programs: ['probe_getpeername6'],
    how: 'cgroup',
  },
  {
    ...base,
    id: 'sk-storage',
    title: 'socket storage',
    neededBy: ['connect'],
    consequence: 'the daemon cannot learn where a steered connection wanted to go',
    fix: newerKernel('CONFIG_BPF_SYSCALL=y', '5.8'),
    programs: ['probe_sk_storage'],
    maps: ['probe_destination'],
    how: 'load',
  },
  {
    ...base,
    id: 'ringbuf',
    title: 'ring buffer',
    neededBy: [],
    improves: ['connect'],
    consequence: 'the daemon is not told what the hooks do',
    fix: newerKernel('CONFIG_BPF_SYSCALL=y', '5.8'),
    programs: ['probe_ringbuf'],
    maps: ['probe_events'],
    how: 'load',
  },
  {
    ...base,
    id: 'sockmap',
    title: 'sockmap',
    neededBy: ['shortcut'],
    consequence: 'there is no way to send from one socket into another',
    fix: newerKernel('CONFIG_BPF_STREAM_PARSER=y', '4.18'),
    programs: [],
    how: 'create',
  },
  {
    ...base,
    id: 'sockops',
    title: 'socket events (sockops)',
    neededBy: ['shortcut'],
    consequence: 'established connections cannot be put into a sockmap',
    fix: newerKernel('CONFIG_CGROUP_BPF=y and CONFIG_BPF_STREAM_PARSER=y', '4.18'),
    programs: ['probe_sockops'],
    maps: ['probe_sockets'],
    how: 'cgroup',
  },
  {
    ...base,
    id: 'sk-msg',
    title: 'message redirect (sk_msg)',
    neededBy: ['shortcut'],
    consequence: 'what a program sends cannot be redirected into another socket',
    fix: newerKernel('CONFIG_BPF_STREAM_PARSER=y', '4.18'),
    programs: ['probe_sk_msg'],
    maps: ['probe_sockets'],
    how: 'map',
  },
  {
    ...withBtf,
    id: 'btf',
    title: 'kernel types (BTF)',
    neededBy: ['shortcut'],
    consequence: 'programs that read kernel structures cannot be adapted to this kernel',
    fix: newerKernel('CONFIG_DEBUG_INFO_BTF=y', '5.14'),
    programs: ['probe_core_read'],
    how: 'run',
  },
  {
    ...withBtf,
    id: 'rdonly-cast',
    title: 'reading a peer socket (bpf_rdonly_cast)',
    neededBy: ['shortcut'],
    consequence: 'the shortcut cannot see how much its peer has read, which it needs for order and backpressure',
    fix: newerKernel('CONFIG_DEBUG_INFO_BTF=y', '6.2'),
    programs: ['probe_rdonly_cast'],
    how: 'load',
  },
];
