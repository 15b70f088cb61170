// The spec of a guest as plain data: checked, with the defaults filled in.

import { readFileSync, statSync } from 'node:fs';
import { isAbsolute, resolve } from 'node:path';
import { UnsupportedError, UsageError } from '../../errors.ts';
import { didYouMean } from '../../text/index.ts';
import type { Host } from '../index.ts';
import { extraModules } from './modules.ts';

export interface GuestOptions {
  /** The guest's host name, also for error messages. Default `vm`. */
  readonly name?: string;
  readonly memoryMb?: number;
  readonly cpus?: number;
  /**
   * A folder of the host that the guest may write to, at the same path. All else of the host is
   * read-only.
   */
  readonly share?: string;
  /** Gives the guest a network card, eth0. */
  readonly network?: NetworkOptions;
  /** Kernel modules beyond those every guest has; see `extraModules`. */
  readonly modules?: readonly string[];
  /** The longest time that the guest may run, boot included. Default ten minutes. */
  readonly limitMs?: number;
  /** The folder for capture and console when something fails. Default `build/vm/failures`. */
  readonly failureDir?: string;
  /** More arguments for QEMU, such as for another device. */
  readonly qemuArguments?: readonly string[];
  /** Memory that the guest shares with other processes, and streams into the guest. */
  readonly sharing?: SharingOptions;
  /** Where kernel and initrd are kept; for tests. */
  readonly cacheDir?: string;
  /** Ends the guest, also after it has booted. */
  readonly signal?: AbortSignal;
  /** Called before something that takes long, such as a download. */
  readonly onProgress?: (message: string) => void;
}

/** QEMU gets copies of the descriptors; close these once the guest has booted. */
export interface SharingOptions {
  /**
   * The guest has it as an ivshmem device (PCI 1af4:1110), in its third resource. Its size must be
   * a power of two.
   */
  readonly memory: { readonly fd: number; readonly sizeBytes: number };
  /**
   * Virtio-serial ports, each a stream socket: /dev/vport… in the guest, found by
   * /sys/class/virtio-ports/…/name.
   */
  readonly ports: readonly { readonly name: string; readonly fd: number }[];
  /**
   * A stream socket for QEMU's own protocol (QMP), which tells when a port is opened and closed in
   * the guest.
   */
  readonly monitorFd?: number;
}

export interface NetworkOptions {
  /** Addresses of eth0 with their prefix lengths, as 10.88.0.2/24. */
  readonly address?: readonly string[];
  readonly mtu?: number;
  /** A lab host that eth0 is connected to. Default: QEMU's router, which lets connections out. */
  readonly host?: Host;
  /**
   * One end of a pair of stream sockets, as a cable to the guest that has the other end. Close it
   * once the guest has booted.
   */
  readonly cableFd?: number;
  /** Addresses of the lab host's end. */
  readonly hostAddress?: readonly string[];
  /** False: do not capture the packets of the card. */
  readonly isCaptured?: boolean;
}

export interface GuestSpec {
  readonly name: string;
  readonly memoryMb: number;
  readonly cpus: number;
  readonly share: string | undefined;
  readonly modules: readonly string[];
  readonly limitMs: number;
  readonly failureDir: string;
  readonly qemuArguments: readonly string[];
  readonly sharing: SharingOptions | undefined;
}

const limits = { memoryMb: [256, 65_536], cpus: [1, 64], mtu: [576, 65_535], limitMs: [1, 86_400_000] } as const;
const namePattern = /^[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?$/;
const portPattern = /^[a-z][a-z0-9.-]{0,62}$/;
/** Addresses become lines of an `ip -batch`, so nothing else may be in them. */
export const addressPattern = /^[0-9a-fA-F:.]{2,45}\/\d{1,3}$/;
/** The memory of QEMU itself, beside the guest's. */
const overheadMb = 128;

export function guestSpec(options: GuestOptions): GuestSpec {
  const { name = 'vm', share, modules = [], network } = options;
  if (!namePattern.test(name))
    throw new UsageError(`vm: the name ${JSON.stringify(name)} is not 1 to 32 of a-z, 0-9 and inner hyphens`);
  const unknown = modules.find((module) => !(extraModules as readonly string[]).includes(module));
  if (unknown !== undefined) {
    throw new UsageError(
      `vm: there is no extra module ${unknown}${didYouMean(unknown, extraModules)}; there are ${extraModules.join(', ')}`,
    );
  }
  if (network !== undefined) checkNetwork(network);
  if (options.sharing !== undefined) checkSharing(options.sharing);
  return {
    name,
    memoryMb: whole('memoryMb', options.memoryMb ?? 1024),
    cpus: whole('cpus', options.cpus ?? 2),
    share: share === undefined ? undefined : sharedFolder(share),
    modules,
    limitMs: whole('limitMs', options.limitMs ?? 600_000),
    failureDir: resolve(options.failureDir ?? 'build/vm/failures'),
    qemuArguments: options.qemuArguments ?? [],
    sharing: options.sharing,
  };
}

function whole(name: keyof typeof limits, value: number): number {
  const [min, max] = limits[name];
  if (Number.isInteger(value) && value >= min && value <= max) return value;
  throw new UsageError(`vm: ${name} ${value} is not a whole number from ${min} to ${max}`);
}

function sharedFolder(path: string): string {
  const folder = resolve(path);
  if (!isAbsolute(path)) throw new UsageError(`vm: the shared folder ${path} is not an absolute path; try ${folder}`);
  if (folder === '/') throw new UsageError('vm: / cannot be shared: the guest has its own root');
  if (statSync(folder, { throwIfNoEntry: false })?.isDirectory() !== true) {
    throw new UsageError(`vm: the shared folder ${folder} does not exist`);
  }
  return folder;
}

function checkNetwork({ address = [], hostAddress = [], host, mtu }: NetworkOptions): void {
  const wrong = [...address, ...hostAddress].find((text) => !addressPattern.test(text));
  if (wrong !== undefined)
    throw new UsageError(`vm: ${JSON.stringify(wrong)} is no address with a prefix length, as 10.88.0.2/24`);
  if (host === undefined && hostAddress.length > 0) throw new UsageError('vm: hostAddress without a host');
  if (mtu !== undefined) whole('mtu', mtu);
}

function checkSharing({ memory, ports }: SharingOptions): void {
  const { sizeBytes } = memory;
  const isPower = Number.isSafeInteger(sizeBytes) && sizeBytes >= 4096 && Number.isInteger(Math.log2(sizeBytes));
  if (!isPower) throw new UsageError(`vm: ${sizeBytes} bytes of shared memory: PCI devices have a power of two`);
  const wrong = ports.find(({ name }) => !portPattern.test(name));
  if (wrong !== undefined) throw new UsageError(`vm: ${JSON.stringify(wrong.name)} cannot be the name of a port`);
}

/**
 * Checked before QEMU takes the memory page by page and the kernel kills another process for it.
 */
export function checkMemory({ memoryMb }: GuestSpec, meminfo: string = readFileSync('/proc/meminfo', 'utf8')): void {
  const availableMb = Math.floor(Number(/^MemAvailable:\s+(\d+) kB/m.exec(meminfo)?.[1] ?? Number.NaN) / 1024);
  if (Number.isNaN(availableMb) || availableMb >= memoryMb + overheadMb) return;
  throw new UnsupportedError(
    `vm: a guest of ${memoryMb} MB needs ${memoryMb + overheadMb} MB of memory, and ${availableMb} MB are available; ask for less`,
  );
}
