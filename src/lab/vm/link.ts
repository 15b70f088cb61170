// Where a guest's network card leads: QEMU's router, a tap device in a lab host, or a cable to
// another guest.

import { randomBytes } from 'node:crypto';
import { MillraceError } from '../../errors.ts';
import type { Host } from '../index.ts';
import type { NicBackend } from './qemu.ts';
import type { NetworkOptions } from './spec.ts';

export interface Link extends AsyncDisposable {
  readonly backend: (fd: number) => NicBackend;
  /** A descriptor for QEMU, or null. */
  readonly fd: number | null;
  /** The lab host that QEMU runs in. */
  readonly host: Host | null;
  /** The addresses of the guest's end, unless others are named. */
  readonly ipLines: readonly string[];
}

/** The addresses that QEMU's router has, and that it expects of a guest. */
const routedLines = ['addr add 10.0.2.15/24 dev eth0', 'link set eth0 up', 'route add default via 10.0.2.2'] as const;

export async function makeLink({ host, hostAddress = [], cableFd, mtu }: NetworkOptions): Promise<Link> {
  if (cableFd !== undefined) return cableEnd(cableFd);
  if (host === undefined) {
    return {
      backend: () => ({ kind: 'user' }),
      fd: null,
      host: null,
      ipLines: routedLines,
      async [Symbol.asyncDispose]() {},
    };
  }
  const device = `tap${randomBytes(4).toString('hex')}`;
  // When the lab is removed, the device goes with its namespace.
  const remove = (): Promise<void> => ip(host, [`link del ${device}`], true);
  const lines = [
    `tuntap add dev ${device} mode tap`,
    ...(mtu === undefined ? [] : [`link set ${device} mtu ${mtu}`]),
    ...hostAddress.map((address) => `addr add ${address} dev ${device}${address.includes(':') ? ' nodad' : ''}`),
    `link set ${device} up`,
  ];
  try {
    await ip(host, lines);
  } catch (error) {
    await remove();
    throw error;
  }
  return { backend: () => ({ kind: 'tap', device }), fd: null, host, ipLines: [], [Symbol.asyncDispose]: remove };
}

function cableEnd(fd: number): Link {
  return {
    backend: (inQemu) => ({ kind: 'cable', fd: inQemu }),
    fd,
    host: null,
    ipLines: [],
    async [Symbol.asyncDispose]() {},
  };
}

async function ip(host: Host, lines: readonly string[], mayFail = false): Promise<void> {
  const result = await host.run('ip', ['-batch', '-'], { input: `${lines.join('\n')}\n` }).catch((error: unknown) => {
    // The lab was removed already.
    if (mayFail) return null;
    throw error;
  });
  if (result === null || result.code === 0 || mayFail) return;
  const reason = result.stderr.trim().split('\n', 1)[0] ?? '';
  throw new MillraceError('MILLRACE_ERR_FAILED', `vm: make a tap device in host ${host.name}: ${reason}`);
}
