// What the lab is built of: network namespaces, veth pairs, delays, and a program to demonstrate
// with.
//
// All is tried inside a namespace of its own, which vanishes with the command that made it.

import { answer, type Finding, type Outcome, type Question } from './finding.ts';
import type { Machine } from './machine.ts';
import { toolQuestion } from './tools.ts';

const VETH = 'ip link add mr0 type veth peer name mr1';
const NETEM = 'tc qdisc add dev mr0 root netem delay 1ms';

const namespaces: Question = {
  id: 'network-namespaces',
  group: 'lab',
  title: 'network namespaces and veth',
  neededBy: ['lab'],
  consequence: 'the lab cannot make hosts on this machine',
  fix: 'use a kernel with CONFIG_NET_NS=y and CONFIG_VETH=y',
};

const netem: Question = {
  id: 'netem',
  group: 'lab',
  title: 'netem',
  neededBy: [],
  improves: ['lab'],
  consequence: "the lab's links have no delay or loss of their own",
  fix: 'use a kernel with CONFIG_NET_SCH_NETEM (Debian: the package linux-image-amd64 has it)',
};

const redis = toolQuestion({
  id: 'redis',
  group: 'lab',
  title: 'redis-server',
  neededBy: [],
  improves: ['lab'],
  consequence: 'the demo has no real program to carry',
  fix: 'apt-get install redis-server redis-tools',
  commands: ['redis-server'],
});

export async function probeNetwork(machine: Machine, signal?: AbortSignal): Promise<readonly Finding[]> {
  return Promise.all([
    answer(namespaces, () => tryInNamespace(machine, VETH, 'a pair was made and removed'), signal),
    answer(netem, () => tryInNamespace(machine, `${VETH} && ${NETEM}`, 'a delay was set and removed'), signal),
    redis(machine, signal),
  ]);
}

async function tryInNamespace(machine: Machine, script: string, success: string): Promise<Outcome> {
  const output = await machine.run('unshare', ['--net', 'sh', '-c', script]);
  if (output === null) {
    return { answer: 'unknown', detail: 'no unshare in PATH to try it with', fix: 'apt-get install util-linux' };
  }
  if (output.isOk) return { answer: 'yes', detail: success };
  const [line = ''] = output.stderr.trim().split('\n');
  if (/not permitted|permission denied/i.test(line)) {
    return { answer: 'unknown', detail: line, isForbidden: true, fix: 'run as root' };
  }
  if (/not found/.test(line)) return { answer: 'unknown', detail: line, fix: 'apt-get install iproute2' };
  return { answer: 'no', detail: line };
}
