// Numbers that network devices of this thread's namespace are set to, by rtnetlink.

import { SystemError } from '../errors.ts';
import { addon } from './addon.ts';
import { check } from './result.ts';

// <linux/netlink.h>, <linux/rtnetlink.h>
const NETLINK_ROUTE = 0;
const NLMSG_ERROR = 2;
const RTM_GETLINK = 18;
const RTM_SETLINK = 19;
const NLM_F_REQUEST = 1;
const NLM_F_ACK = 4;
/** struct nlmsghdr: u32 length, u16 type, u16 flags, u32 sequence, u32 port. */
const HEADER_BYTES = 16;
/** struct ifinfomsg: the device's index is its second word. */
const LINK_BYTES = 16;
/** struct nlattr: u16 length, u16 type; then the value. */
const ATTRIBUTE_BYTES = 4;
const NUMBER_BYTES = ATTRIBUTE_BYTES + 4;
const ANSWER_BYTES = 32_768;

/** <linux/if_link.h> */
const linkNumbers = {
  /**
   * The largest packet that TCP hands to the device, of IPv6; and of IPv4, where the kernel tells
   * the two apart (6.3).
   */
  gsoMaxSize: 41,
  gsoIpv4MaxSize: 63,
} as const;
export type LinkNumber = keyof typeof linkNumbers;

function request(
  type: number,
  flags: number,
  index: number,
  numbers: readonly (readonly [LinkNumber, number])[],
): DataView {
  const sizeBytes = HEADER_BYTES + LINK_BYTES + numbers.length * NUMBER_BYTES;
  const message = new DataView(new ArrayBuffer(sizeBytes));
  message.setUint32(0, sizeBytes, true);
  message.setUint16(4, type, true);
  message.setUint16(6, NLM_F_REQUEST | flags, true);
  message.setInt32(HEADER_BYTES + 4, index, true);
  for (const [at, [name, value]] of numbers.entries()) {
    const offset = HEADER_BYTES + LINK_BYTES + at * NUMBER_BYTES;
    message.setUint16(offset, NUMBER_BYTES, true);
    message.setUint16(offset + 2, linkNumbers[name], true);
    message.setUint32(offset + ATTRIBUTE_BYTES, value, true);
  }
  return message;
}

function ask(message: DataView, what: string): DataView {
  const answer = new Uint8Array(ANSWER_BYTES);
  const length = check(addon.netlinkAsk(NETLINK_ROUTE, new Uint8Array(message.buffer), answer), 'rtnetlink', what);
  const view = new DataView(answer.buffer, 0, length);
  const error =
    length >= HEADER_BYTES + 4 && view.getUint16(4, true) === NLMSG_ERROR ? view.getInt32(HEADER_BYTES, true) : 0;
  if (error < 0) throw new SystemError(error, 'rtnetlink', what);
  return view;
}

/** What this kernel does not know is not in it. */
export function readLink(index: number): ReadonlyMap<LinkNumber, number> {
  const answer = ask(request(RTM_GETLINK, 0, index, []), `read device ${index}`);
  const values = new Map<LinkNumber, number>();
  for (let offset = HEADER_BYTES + LINK_BYTES; offset + ATTRIBUTE_BYTES <= answer.byteLength; ) {
    const length = answer.getUint16(offset, true);
    if (length < ATTRIBUTE_BYTES || offset + length > answer.byteLength) break;
    const type = answer.getUint16(offset + 2, true);
    for (const [name, number] of Object.entries(linkNumbers)) {
      if (type === number && length === NUMBER_BYTES) {
        values.set(name as LinkNumber, answer.getUint32(offset + ATTRIBUTE_BYTES, true));
      }
    }
    offset += (length + 3) & ~3;
  }
  return values;
}

export function writeLink(index: number, values: ReadonlyMap<LinkNumber, number>): void {
  ask(request(RTM_SETLINK, NLM_F_ACK, index, [...values]), `set device ${index}`);
}
