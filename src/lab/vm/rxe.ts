// The kernel's software RDMA device in a guest: rxe, on a network device of the guest's first namespace.

import { UsageError } from '../../errors.ts';
import { addressPattern } from './spec.ts';

export interface RxeOptions {
  /** Of the RDMA device; `rxe0` unless said otherwise. */
  readonly name?: string;
  /** The network device. It is made, as a dummy, where it is named `dum…` and not there. `dum0` unless said otherwise. */
  readonly device?: string;
  /** With prefix lengths, as 10.99.0.1/24; added to the network device. */
  readonly address?: readonly string[];
  /** Of the network device. 4300 is the least that gives an RDMA MTU of 4096; 1500 gives 1024. */
  readonly mtu?: number;
}

export interface RxeDevice {
  readonly name: string;
  readonly device: string;
}

/** Runs words in the guest, with an input, and throws when they fail. */
type RunWords = (words: readonly string[], input: string) => Promise<unknown>;

const namePattern = /^[a-z][a-z0-9_-]{0,14}$/;
const defaultAddress = ['10.99.0.1/24', 'fd99::1/64'] as const;

/**
 * The device first, then its addresses, then rxe on it: its GIDs follow from the addresses. Index 0 is the link-local address,
 * index 1 the first IPv4 one.
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
