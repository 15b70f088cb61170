// The kernel's software RDMA device (rxe) in a guest, on a network device of its first namespace.

import { UsageError } from '../../errors.ts';
import { addressPattern } from './spec.ts';

export interface RxeOptions {
  /** The name of the RDMA device. Default `rxe0`. */
  readonly name?: string;
  /**
   * The network device; one named `dum…` is created as a dummy if there is none. Default `dum0`.
   */
  readonly device?: string;
  /** Addresses for the network device, with prefix lengths: 10.99.0.1/24. */
  readonly address?: readonly string[];
  /** The MTU of the network device. At least 4300 gives an RDMA MTU of 4096; 1500 gives 1024. */
  readonly mtu?: number;
}

export interface RxeDevice {
  readonly name: string;
  readonly device: string;
}

/** Runs a command in the guest, with an input, and throws when it fails. */
type RunWords = (words: readonly string[], input: string) => Promise<unknown>;

const namePattern = /^[a-z][a-z0-9_-]{0,14}$/;
const defaultAddress = ['10.99.0.1/24', 'fd99::1/64'] as const;

/**
 * Creates the device, then its addresses, then rxe on it, because its GIDs follow from the
 * addresses. Index 0 is the link-local address, index 1 the first IPv4 one.
 */
export async function addRxe(run: RunWords, options: RxeOptions): Promise<RxeDevice> {
  const { name = 'rxe0', device = 'dum0', mtu } = options;
  const isDummy = device.startsWith('dum');
  const address = options.address ?? (isDummy ? defaultAddress : []);
  const wrongName = [name, device].find((text) => !namePattern.test(text));
  if (wrongName !== undefined) throw new UsageError(`rxe: ${JSON.stringify(wrongName)} cannot be the name of a device`);
  const wrong = address.find((text) => !addressPattern.test(text));
  if (wrong !== undefined)
    throw new UsageError(`rxe: ${JSON.stringify(wrong)} is no address with a prefix length, as 10.99.0.1/24`);
  const size = mtu ?? (isDummy ? 4300 : undefined);
  const lines = [
    ...(size === undefined ? [] : [`link set ${device} mtu ${size}`]),
    ...address.map((each) => `addr add ${each} dev ${device}`),
    `link set ${device} up`,
  ];
  const make = isDummy ? `ip link show ${device} > /dev/null 2>&1 || ip link add ${device} type dummy; ` : '';
  const script = `set -e; ${make}ip -batch -; rdma link add ${name} type rxe netdev ${device}`;
  await run(['sh', '-c', script], `${lines.join('\n')}\n`);
  return { name, device };
}
