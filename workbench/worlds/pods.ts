// Pods: network namespaces behind the hosts of a lab, as containers have them, with routed
// addresses. Programs in a pod are in a cgroup below that of its host.

import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { Host, type Lab } from '../../src/lab/index.ts';
import { RunningProgram } from './running-program.ts';
import { succeed } from './succeed.ts';

export interface Pods {
  readonly a: Host;
  readonly b: Host;
}

const stay = 'echo 0 > "$1/cgroup.procs" && exec unshare --net sh -c "echo up; exec sleep infinity"';

/** A namespace behind a host; owns nothing, as a host does. */
class Pod extends Host {
  override readonly ipv4: string;
  override readonly ipv6: string;
  override readonly namespaceFile: string;
  override readonly cgroup: string;
  readonly #host: Host;
  readonly #pid: number;

  /** Nothing leads to it yet. */
  static async make(lab: Lab, name: 'a' | 'b'): Promise<Pod> {
    const host = lab.host(name);
    const cgroup = join(host.cgroup, 'pod');
    mkdirSync(cgroup);
    // It ends with the lab.
    const keeper = RunningProgram.start(host, 'sh', ['-c', stay, 'sh', cgroup]);
    await keeper.line(/^up$/);
    return new Pod(lab, host, cgroup, keeper.pid);
  }

  private constructor(lab: Lab, host: Host, cgroup: string, pid: number) {
    super(lab.record, host.name);
    this.#host = host;
    this.#pid = pid;
    const index = lab.hosts.findIndex(({ name }) => name === host.name) + 1;
    this.ipv4 = `10.92.${index}.2`;
    this.ipv6 = `fd92:${index}::2`;
    this.namespaceFile = `/proc/${pid}/ns/net`;
    this.cgroup = cgroup;
  }

  /**
   * Connects it to its host, and the host to the pod of another host. All addresses are unique:
   * detecting duplicates would take two seconds, in which IPv6 is not forwarded.
   */
  async plugIn(other: Pod): Promise<void> {
    const [gateway4, gateway6] = [this.ipv4.replace(/2$/, '1'), this.ipv6.replace(/2$/, '1')];
    const linkLocal = this.ipv6.replace('fd92', 'fe80');
    const inHost = `
      ip link add pod type veth peer name eth0 netns ${this.#pid}
      echo 0 > /proc/sys/net/ipv6/conf/pod/accept_dad
      echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding
      ip addr add ${gateway4}/24 dev pod; ip addr add ${gateway6}/64 dev pod; ip link set pod up
      ip addr add ${linkLocal}/64 dev eth0 nodad
      ip route add ${other.ipv4} via ${other.#host.ipv4}; ip route add ${other.ipv6} via ${other.#host.ipv6}`;
    const inPod = `
      echo 0 > /proc/sys/net/ipv6/conf/eth0/accept_dad
      ip link set lo up; ip link set eth0 up
      ip addr add ${this.ipv4}/24 dev eth0; ip addr add ${this.ipv6}/64 dev eth0
      ip route add default via ${gateway4}; ip route add default via ${gateway6}`;
    await succeed(this.#host, 'sh', ['-ec', inHost]);
    await succeed(this, 'sh', ['-ec', inPod]);
  }
}

/** One behind each of the hosts a and b; both reach each other. */
export async function makePods(lab: Lab): Promise<Pods> {
  const [a, b] = await Promise.all([Pod.make(lab, 'a'), Pod.make(lab, 'b')]);
  await Promise.all([a.plugIn(b), b.plugIn(a)]);
  return { a, b };
}
