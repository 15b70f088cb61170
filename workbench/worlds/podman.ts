// podman in a host of a lab: containers on a routed bridge network. What it mounts and notes down
// is in a mount namespace of its own, and what it starts is in the host's cgroup: all of it goes
// with the host, whatever happened.

import { mkdirSync, readdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Host, ProgramResult } from '../../src/lab/index.ts';
import { findCgroup2Mount } from '../../src/system/index.ts';
import { eventually, TIMEOUT_MS } from './eventually.ts';
import { RunningProgram } from './running-program.ts';
import { succeed } from './succeed.ts';

/** All networks of containers, in all hosts. */
const everyNetwork = '10.92.0.0/16';

/**
 * crun wants the cgroups of version 2 where a machine that has them alone has them. And what podman
 * and crun keep in /run is not the machine's.
 */
const separate = `mount --make-rprivate / && mount --bind "$1" /sys/fs/cgroup && mount -t tmpfs none /run &&
  mkdir /run/netns && echo separate && exec sleep infinity`;

/**
 * Files for locks and no events: nothing in the machine's shared memory, nothing in its journal.
 */
const settings = `
[containers]
log_driver = "none"
default_ulimits = ["nofile=20000:20000", "nproc=10000:10000"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "none"
lock_type = "file"
[network]
network_backend = "netavark"
`;

/** The machine's own file system with a layer above it, so no image is needed. */
const likeAll = ['--rm', '--no-hosts'];
/** crun cannot make one without CAP_SYS_RESOURCE; each container gets one here. */
const withoutCgroup = ['--cgroups=disabled'];
const enterCgroup = 'mkdir -p "$1" && echo 0 > "$1/cgroup.procs" || exit 126; shift; exec "$@"';

interface ContainerOptions {
  readonly name: string;
  /** As podman has it; `pods`, the routed one, unless this says otherwise. */
  readonly network?: string;
  /** Of that network; podman chooses one unless this says. */
  readonly address?: string;
  /** As `8080:80`: reached from outside by that port of the host. */
  readonly publish?: string;
  /** More of podman's own, in place of the one that leaves the container in this cgroup. */
  readonly options?: readonly string[];
}

export class Podman implements AsyncDisposable {
  readonly host: Host;
  readonly #folder: string;
  readonly #keeper: RunningProgram;

  /** `index`: of the host, from 1. Its containers' addresses are 10.92.INDEX.x. */
  static async create(host: Host, index: number, folder: string): Promise<Podman> {
    mkdirSync(folder, { recursive: true });
    await using undo = new AsyncDisposableStack();
    const words = ['--mount', 'sh', '-c', separate, 'sh', findCgroup2Mount() ?? '/sys/fs/cgroup'];
    const keeper = undo.use(RunningProgram.start(host, 'unshare', words, { endWith: 'SIGKILL' }));
    await keeper.line(/^separate$/);
    const podman = new Podman(host, folder, keeper);
    writeFileSync(podman.#file('containers.conf'), settings);
    // Between containers the addresses stay as they are; this comes before what podman adds.
    const routed = ['-s', everyNetwork, '-d', everyNetwork, '-j', 'ACCEPT'];
    await succeed(host, 'iptables', ['-t', 'nat', '-A', 'POSTROUTING', ...routed]);
    await succeed(host, 'sh', ['-c', 'echo 1 > /proc/sys/net/ipv4/ip_forward']);
    await podman.addNetwork('pods', `10.92.${index}`);
    undo.move();
    return podman;
  }

  private constructor(host: Host, folder: string, keeper: RunningProgram) {
    this.host = host;
    this.#folder = folder;
    this.#keeper = keeper;
  }

  /**
   * A bridge network with the addresses PREFIX.x. Podman would make the bridge itself, whose MAC
   * address then changes with the containers that come and go, and those that know the old one
   * reach nobody for some seconds. It leaves this one alone, for it always has a port.
   */
  async addNetwork(name: string, prefix: string): Promise<void> {
    const options = ['--disable-dns', '--subnet', `${prefix}.0/24`, '--gateway', `${prefix}.1`];
    await this.command('network', 'create', ...options, name);
    const found = await this.command('network', 'inspect', '--format', '{{.NetworkInterface}}', name);
    const bridge = found.trim();
    const mac = `02:${prefix
      .split('.')
      .map((part) => Number(part).toString(16).padStart(2, '0'))
      .join(':')}:00:01`;
    const make = `ip link add ${bridge} address ${mac} type bridge && ip addr add ${prefix}.1/24 dev ${bridge} &&
      ip link add ${bridge}-port type veth peer name ${bridge}-end && ip link set ${bridge}-port master ${bridge} up &&
      ip link set ${bridge}-end up && ip link set ${bridge} up`;
    await succeed(this.host, 'sh', ['-c', make]);
  }

  /** Starts a container that stays; it may not have done anything yet. */
  start(options: ContainerOptions, words: readonly string[]): Container {
    const [first, ...rest] = this.runWords(options, words);
    return new Container(this, options.name, RunningProgram.start(this.host, first, rest));
  }

  /** Runs a program in a container to its end. */
  async run(options: ContainerOptions, words: readonly string[]): Promise<ProgramResult> {
    const [first, ...rest] = this.runWords(options, words);
    const result = await this.host.run(first, rest, { signal: AbortSignal.timeout(TIMEOUT_MS) });
    await this.left(options.name);
    return result;
  }

  /** Runs one of podman's own commands, and returns what it printed. */
  command(...words: readonly string[]): Promise<string> {
    return succeed(this.host, 'nsenter', this.#enter(words));
  }

  /** The command by which a program runs in a container. */
  execWords(name: string, words: readonly string[]): [string, ...string[]] {
    return this.#inCgroup(name, this.#enter(['exec', name, ...words]));
  }

  /** The first process of a container that runs. */
  pidOf(name: string): number {
    return Number(readFileSync(this.#file(`${name}.pid`), 'utf8'));
  }

  cgroupOf(name: string): string {
    return join(this.host.cgroup, name);
  }

  /** Waits until all processes of a container have ended, those that look after it as well. */
  async left(name: string): Promise<void> {
    await eventually(`the container ${name} of ${this.host.name} is gone`, () => {
      try {
        rmdirSync(this.cgroupOf(name));
        return true;
      } catch (error) {
        return (error as NodeJS.ErrnoException).code === 'ENOENT';
      }
    });
  }

  /** What there is of containers in the host: each thing is gone when its container is. */
  async remains(): Promise<readonly string[]> {
    const { pid } = this.#keeper;
    const links = await succeed(this.host, 'ip', ['-o', 'link', 'show', 'type', 'veth']);
    const mounts = readFileSync(`/proc/${pid}/mountinfo`, 'utf8');
    const cgroups = readdirSync(this.host.cgroup, { withFileTypes: true });
    return [
      ...lines(await this.command('ps', '--all', '--format', 'container {{.Names}}')),
      ...readdirSync(`/proc/${pid}/root/run/netns`),
      ...lines(links).flatMap((line) => /^\d+: (veth\S+)@/.exec(line)?.[1] ?? []),
      ...lines(mounts).flatMap((line) => /\S+\/overlay-containers\/\S+/.exec(line)?.[0] ?? []),
      ...cgroups.filter((entry) => entry.isDirectory()).map(({ name }) => `cgroup ${name}`),
    ];
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#keeper.close();
  }

  #file(name: string): string {
    return join(this.#folder, name);
  }

  /** The command by which a program runs in a container of its own. */
  runWords(options: ContainerOptions, words: readonly string[]): [string, ...string[]] {
    const { name, network = 'pods', address, publish, options: more = withoutCgroup } = options;
    const where = [`--network=${network}`, ...(address === undefined ? [] : ['--ip', address])];
    const ports = publish === undefined ? [] : ['--publish', publish];
    const own = ['--name', name, '--pidfile', this.#file(`${name}.pid`), ...where, ...ports, ...more];
    return this.#inCgroup(name, this.#enter(['run', ...likeAll, ...own, '--rootfs', '/:O', ...words]));
  }

  #inCgroup(name: string, words: readonly string[]): [string, ...string[]] {
    return ['sh', '-c', enterCgroup, 'sh', this.cgroupOf(name), 'nsenter', ...words];
  }

  #enter(words: readonly string[]): string[] {
    const folders = ['root', 'runroot', 'tmpdir', 'network-config-dir'];
    const places = folders.flatMap((name) => [`--${name}`, this.#file(name)]);
    const env = ['env', `CONTAINERS_CONF=${this.#file('containers.conf')}`];
    return [`--mount=/proc/${this.#keeper.pid}/ns/mnt`, ...env, 'podman', ...places, ...words];
  }
}

function lines(text: string): readonly string[] {
  return text.split('\n').filter((line) => line !== '');
}

/** A container that runs. */
export class Container implements AsyncDisposable {
  readonly name: string;
  /** What it says. */
  readonly program: RunningProgram;
  readonly #podman: Podman;

  constructor(podman: Podman, name: string, program: RunningProgram) {
    this.name = name;
    this.program = program;
    this.#podman = podman;
  }

  /** Runs a program in it to its end, and returns what it printed. */
  exec(...words: readonly string[]): Promise<string> {
    const [first, ...rest] = this.#podman.execWords(this.name, words);
    return succeed(this.#podman.host, first, rest);
  }

  /** Starts a program in it; it ends by itself, or with the container. */
  spawn(...words: readonly string[]): RunningProgram {
    const [first, ...rest] = this.#podman.execWords(this.name, words);
    return RunningProgram.start(this.#podman.host, first, rest);
  }

  /** As if the machine had killed it. */
  async kill(): Promise<void> {
    process.kill(this.#podman.pidOf(this.name), 'SIGKILL');
    await this.program.exit();
    await this.#podman.left(this.name);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (!this.program.hasExited) await this.kill();
  }
}
