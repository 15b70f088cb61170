// QEMU's arguments for a guest, from its description as plain data.

import type { Accelerator } from './accelerator.ts';
import { agentPort, rootTag, shareTag } from './init.ts';

export interface MachineSpec {
  readonly name: string;
  readonly accelerator: Accelerator;
  readonly memoryMb: number;
  readonly cpus: number;
  readonly kernel: string;
  readonly initrd: string;
  /** Words for the guest's init. */
  readonly kernelArguments: readonly string[];
  readonly share?: string | undefined;
  readonly nic?: Nic | undefined;
  readonly sharing?: Sharing | undefined;
  /** Passed on as they are. */
  readonly extra: readonly string[];
}

export interface Nic {
  readonly backend: NicBackend;
  readonly mac: string;
  /** A file for the packets of the card. */
  readonly captureFile?: string | undefined;
}

/**
 * `user`: QEMU's own router. `tap`: a device in QEMU's namespace. `cable`: a descriptor whose other
 * end is another QEMU's.
 */
export type NicBackend =
  | { readonly kind: 'user' }
  | { readonly kind: 'tap'; readonly device: string }
  | { readonly kind: 'cable'; readonly fd: number };

/** With the numbers that the descriptors have in QEMU. */
export interface Sharing {
  readonly memory: { readonly fd: number; readonly sizeBytes: number };
  readonly ports: readonly { readonly name: string; readonly fd: number }[];
  readonly monitorFd?: number | undefined;
}

type Option = readonly [string, string];

/** The descriptor of the agent's stream in QEMU. */
export const agentFd = 3;

/**
 * `quiet` and the `no…` words shorten the boot. `panic=-1` reboots at once after a panic, which
 * -no-reboot turns into QEMU's end. `cryptomgr.notests` skips the self-tests of algorithms.
 */
const kernelWords = [
  'console=ttyS0',
  'quiet',
  'panic=-1',
  'mitigations=off',
  'nokaslr',
  'cryptomgr.notests',
  'audit=0',
  'apparmor=0',
  'selinux=0',
  'nowatchdog',
  'random.trust_cpu=on',
  'tsc=reliable',
  'no_timer_check',
  '8250.nr_uarts=1',
] as const;

export function qemuArguments(spec: MachineSpec): readonly string[] {
  const options: readonly Option[] = [
    ['-name', escapeCommas(spec.name)],
    ['-machine', 'q35,usb=off,vmport=off,smbus=off'],
    ...acceleratorOptions(spec.accelerator),
    ['-smp', String(spec.cpus)],
    ['-m', `${spec.memoryMb}M`],
    ['-display', 'none'],
    ['-serial', 'stdio'],
    ['-kernel', spec.kernel],
    ['-initrd', spec.initrd],
    ['-append', [...kernelWords, ...spec.kernelArguments].join(' ')],
    ['-fsdev', 'local,id=root,path=/,readonly=on,security_model=none,multidevs=remap'],
    ['-device', `virtio-9p-pci,fsdev=root,mount_tag=${rootTag}`],
    ...(spec.share === undefined ? [] : shareOptions(spec.share)),
    ['-device', 'virtio-serial-pci'],
    ['-chardev', `socket,id=agent,fd=${agentFd}`],
    ['-device', `virtserialport,chardev=agent,name=${agentPort}`],
    ...(spec.nic === undefined ? [] : nicOptions(spec.nic)),
    ...(spec.sharing === undefined ? [] : sharingOptions(spec.sharing)),
  ];
  return ['-nodefaults', '-no-user-config', '-no-reboot', ...options.flat(), ...spec.extra];
}

/**
 * TCG emulates `rep movsb` and `rep stosb` byte by byte. Without ERMS and FSRM the guest's kernel
 * and C library clear and copy memory by other instructions.
 */
function acceleratorOptions(accelerator: Accelerator): readonly Option[] {
  const isKvm = accelerator === 'kvm';
  return [
    ['-accel', isKvm ? 'kvm' : 'tcg,thread=multi'],
    ['-cpu', isKvm ? 'host' : 'max,-erms,-fsrm'],
  ];
}

function shareOptions(share: string): readonly Option[] {
  return [
    ['-fsdev', `local,id=share,path=${escapeCommas(share)},security_model=none,multidevs=remap`],
    ['-device', `virtio-9p-pci,fsdev=share,mount_tag=${shareTag}`],
  ];
}

/** Without an option ROM, since the guest does not boot from the network. */
function nicOptions({ backend, mac, captureFile }: Nic): readonly Option[] {
  const card: readonly Option[] = [
    ['-netdev', backendWord(backend)],
    ['-device', `virtio-net-pci,netdev=net0,mac=${mac},romfile=`],
  ];
  if (captureFile === undefined) return card;
  return [...card, ['-object', `filter-dump,id=dump0,netdev=net0,file=${escapeCommas(captureFile)}`]];
}

/** After the agent's port, on the same virtio-serial device. */
function sharingOptions({ memory, ports, monitorFd }: Sharing): readonly Option[] {
  return [
    ['-object', `memory-backend-file,id=shared,mem-path=/dev/fd/${memory.fd},size=${memory.sizeBytes},share=on`],
    ['-device', 'ivshmem-plain,memdev=shared'],
    ...ports.flatMap(({ name, fd }, index): readonly Option[] => [
      ['-chardev', `socket,id=port${index},fd=${fd}`],
      ['-device', `virtserialport,chardev=port${index},id=port${index},name=${name}`],
    ]),
    ...(monitorFd === undefined
      ? []
      : ([
          ['-chardev', `socket,id=monitor,fd=${monitorFd}`],
          ['-mon', 'chardev=monitor,mode=control'],
        ] as const)),
  ];
}

function backendWord(backend: NicBackend): string {
  switch (backend.kind) {
    case 'user':
      return 'user,id=net0';
    case 'tap':
      return `tap,id=net0,ifname=${backend.device},script=no,downscript=no`;
    case 'cable':
      return `stream,id=net0,addr.type=fd,addr.str=${backend.fd}`;
  }
}

/** QEMU splits its arguments at commas; a comma is written twice. */
function escapeCommas(text: string): string {
  return text.replaceAll(',', ',,');
}
