// The global route header: 40 bytes before a datagram's payload that hold an IPv6 header, or 20
// unused bytes and an IPv4 header. A UDP socket does not show them, so they are rebuilt from what
// it does show.

import type { SharedMemory } from '../../../native/index.ts';
import { type Gid, GRH_BYTES, gidBytes } from '../../../verbs/index.ts';
import { BTH_BYTES, ICRC_BYTES, type Packet } from './packet.ts';
import type { PiecesCursor } from './pieces-cursor.ts';

const UDP_BYTES = 8;
const UDP_PROTOCOL = 17;
const DETH_BYTES = 8;
const HOPS = 64;
const AF_INET = 2;

/** `source` is where in the slab the sender's sockaddr is. The message has room for it. */
export function writeRoute(
  message: PiecesCursor,
  to: Gid,
  packet: Packet,
  identification: number,
  slab: SharedMemory,
  source: number,
): void {
  const header = new Uint8Array(GRH_BYTES);
  const view = new DataView(header.buffer);
  const sockaddr = new Uint8Array(slab.buffer, source, 28);
  const udpBytes = UDP_BYTES + BTH_BYTES + DETH_BYTES + packet.payloadBytes + packet.padBytes + ICRC_BYTES;
  if (sockaddr[0] === AF_INET) {
    view.setUint16(20, 0x4500);
    view.setUint16(22, 20 + udpBytes);
    view.setUint16(24, identification);
    view.setUint16(26, 0x4000);
    view.setUint16(28, (HOPS << 8) | UDP_PROTOCOL);
    header.set(sockaddr.subarray(4, 8), 32);
    header.set(gidBytes(to).subarray(12), 36);
    view.setUint16(30, checksum(view, 20, 20));
  } else {
    view.setUint32(0, 0x6000_0000);
    view.setUint16(4, udpBytes);
    view.setUint16(6, (UDP_PROTOCOL << 8) | HOPS);
    header.set(sockaddr.subarray(8, 24), 8);
    header.set(gidBytes(to), 24);
  }
  message.write(0, header);
}

/** Of an IPv4 header whose checksum field is still 0. */
function checksum(view: DataView, offset: number, bytes: number): number {
  let sum = 0;
  for (let at = 0; at < bytes; at += 2) sum += view.getUint16(offset + at);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16);
  return ~sum & 0xffff;
}
