// Non-blocking sockets on raw descriptors whose data lives in mapped memory. For lanes; Node's net
// is for the rest.

import { constants } from 'node:os';
import { addon } from './addon.ts';
import {
  ADDRESS_BYTES,
  type Address,
  decodeAddress,
  encodeOnce,
  type Family,
  familyNumbers,
  formatAddress,
} from './address.ts';
import { Fd } from './fd.ts';
import type { SharedMemory } from './memory.ts';
import type { RangeList } from './ranges.ts';
import { AGAIN, check, checkAgain, checkValue } from './result.ts';

const SOCK_STREAM = 1;
const SOCK_DGRAM = 2;
const SOCK_SEQPACKET = 5;
const SHUT_WR = 1;
const SHUT_RDWR = 2;
const MSG_PEEK = 2;
const FIONREAD = 0x541b;
const SIOCOUTQ = 0x5411;
const { EALREADY, ECONNABORTED, ECONNRESET, EINPROGRESS } = constants.errno;

/**
 * <asm-generic/socket.h>, <netinet/tcp.h>, <linux/in.h>, <linux/udp.h>: [level, option] of those
 * that are a number.
 */
const socketOptions = {
  reuseAddress: [1, 2],
  error: [1, 4],
  sendBuffer: [1, 7],
  receiveBuffer: [1, 8],
  keepAlive: [1, 9],
  reusePort: [1, 15],
  receiveLowWater: [1, 18],
  incomingCpu: [1, 49],
  noDelay: [6, 1],
  quickAck: [6, 12],
  userTimeoutMs: [6, 18],
  repair: [6, 19],
  repairQueue: [6, 20],
  queueSequence: [6, 21],
  ipv6Only: [41, 26],
  receiveBufferForce: [1, 33],
  sendBufferForce: [1, 32],
  mtuDiscover: [0, 10],
  ipv6MtuDiscover: [41, 23],
  udpNoChecksum6Receive: [17, 102],
  udpGro: [17, 104],
} as const satisfies Record<string, readonly [level: number, option: number]>;

/** SOL_SOCKET, SO_NETNS_COOKIE */
const NETNS_COOKIE = [1, 71] as const;

export type SocketOption = keyof typeof socketOptions;

const ERROR = socketOptions.error;
const TCP_CONGESTION = [6, 13] as const;
const congestionControls = { reno: new TextEncoder().encode('reno') } as const;
/** struct linger { int l_onoff, l_linger = 0 } */
const lingers = { reset: Uint8Array.of(1, 0, 0, 0, 0, 0, 0, 0), end: new Uint8Array(8) } as const;

// What calls fill and nobody keeps: to make a buffer for each takes longer than the calls.
const number = new Int32Array(1);
const numberBytes = new Uint8Array(number.buffer);
const address = new Uint8Array(ADDRESS_BYTES);

/**
 * All calls return at once. `receive`, `send` and their kin return a count of bytes, or `AGAIN`
 * when they would block; a receive of 0 from a stream is its end. They allocate nothing. Failures
 * throw a SystemError.
 */
export class Socket extends Fd {
  static stream(family: Family): Socket {
    return Socket.#create(family, SOCK_STREAM);
  }

  static datagram(family: Family): Socket {
    return Socket.#create(family, SOCK_DGRAM);
  }

  /** Unix only: a stream of messages, each with the descriptors it was sent with. */
  static messages(): Socket {
    return Socket.#create('unix', SOCK_SEQPACKET);
  }

  static pair(kind: 'stream' | 'messages' = 'stream'): [Socket, Socket] {
    const fds = addon.socketpair(familyNumbers.unix, kind === 'stream' ? SOCK_STREAM : SOCK_SEQPACKET);
    const [first, second] = checkValue(fds, 'socketpair');
    return [new Socket(first), new Socket(second)];
  }

  static #create(family: Family, type: number): Socket {
    return new Socket(check(addon.socket(familyNumbers[family], type), 'socket'));
  }

  bind(address: Address): void {
    const result = addon.bind(this.fd, encodeOnce(address));
    if (result < 0) check(result, 'bind', formatAddress(address));
  }

  listen(backlog = 511): void {
    check(addon.listen(this.fd, backlog), 'listen');
  }

  /** A connection that waits, or undefined. One whose client is gone already is passed over. */
  accept(): Socket | undefined {
    let result = addon.accept(this.fd);
    while (result === -ECONNABORTED) result = addon.accept(this.fd);
    const fd = checkAgain(result, 'accept4');
    return fd === AGAIN ? undefined : new Socket(fd);
  }

  /**
   * True when connected already; false when under way: wait for `out`, then `finishConnect`, or ask
   * again. The first call says that it is under way even where the server has answered meanwhile,
   * as one on the same host has.
   */
  connect(address: Address): boolean {
    const result = addon.connect(this.fd, encodeOnce(address));
    if (result === -EINPROGRESS || result === -EALREADY) return false;
    if (result < 0) check(result, 'connect', formatAddress(address));
    return true;
  }

  /**
   * Throws what became of a connect that was under way. False when the server took the call and has
   * reset it since: what it sent before can still be received, and its reset looks like an end from
   * now on.
   */
  finishConnect(): boolean {
    const errno = this.getNumber(ERROR[0], ERROR[1]);
    if (errno === ECONNRESET) return false;
    check(-errno, 'connect');
    return true;
  }

  receive(memory: SharedMemory, offset: number, length: number): number {
    return checkAgain(addon.recv(this.fd, memory.id, offset, length, 0), 'recv');
  }

  /** As receive, and leaves the bytes where they are. */
  peek(memory: SharedMemory, offset: number, length: number): number {
    return checkAgain(addon.recv(this.fd, memory.id, offset, length, MSG_PEEK), 'recv');
  }

  send(memory: SharedMemory, offset: number, length: number): number {
    return checkAgain(addon.send(this.fd, memory.id, offset, length, 0), 'send');
  }

  /** Sends the first `count` rows of the list in one call. */
  sendRanges(list: RangeList, count: number): number {
    return checkAgain(addon.sendRanges(this.fd, list.id, count), 'sendmsg');
  }

  /** One datagram. The size is the datagram's, which is more than `length` when it was cut. */
  receiveFrom(memory: SharedMemory, offset: number, length: number, from: Uint8Array): number {
    return checkAgain(addon.recvFrom(this.fd, memory.id, offset, length, from), 'recvfrom');
  }

  /** `to` is an encoded address: encode once, send often. */
  sendTo(memory: SharedMemory, offset: number, length: number, to: Uint8Array): number {
    return checkAgain(addon.sendTo(this.fd, memory.id, offset, length, to), 'sendto');
  }

  /** Unix only. At least one byte travels with the descriptors; the receiver gets duplicates. */
  sendFds(bytes: Uint8Array, fds: readonly number[]): number {
    return checkAgain(addon.sendFds(this.fd, bytes, fds), 'sendmsg');
  }

  /** Unix only. The descriptors belong to who calls this; undefined when nothing waits. */
  receiveFds(bytes: Uint8Array): { readonly bytes: number; readonly fds: readonly Fd[] } | undefined {
    const result = addon.recvFds(this.fd, bytes);
    if (typeof result === 'number') {
      checkAgain(result, 'recvmsg');
      return undefined;
    }
    const [count = 0, ...fds] = result;
    return { bytes: count, fds: fds.map((fd) => new Fd(fd)) };
  }

  /** No more will be sent; the peer reads the end of the stream. */
  shutdownSend(): void {
    check(addon.shutdown(this.fd, SHUT_WR), 'shutdown');
  }

  shutdown(): void {
    check(addon.shutdown(this.fd, SHUT_RDWR), 'shutdown');
  }

  get localAddress(): Address {
    return decodeAddress(address, check(addon.getsockname(this.fd, address), 'getsockname'));
  }

  get peerAddress(): Address {
    return decodeAddress(address, check(addon.getpeername(this.fd, address), 'getpeername'));
  }

  /** As peerAddress, of a socket that somebody handed over; undefined when it has none. */
  static peerAddressOf({ fd }: Fd): Address | undefined {
    const size = addon.getpeername(fd, address);
    return size < 0 ? undefined : decodeAddress(address, size);
  }

  /** As localAddress, of a socket that somebody handed over; undefined when it is none. */
  static localAddressOf({ fd }: Fd): Address | undefined {
    const size = addon.getsockname(fd, address);
    return size < 0 ? undefined : decodeAddress(address, size);
  }

  setOption(option: SocketOption, value: number): void {
    const [level, name] = socketOptions[option];
    number[0] = value;
    check(addon.setsockopt(this.fd, level, name, numberBytes), 'setsockopt', option);
  }

  /** Stream sockets only; accepted ones inherit it. */
  setCongestionControl(name: keyof typeof congestionControls): void {
    const [level, option] = TCP_CONGESTION;
    check(addon.setsockopt(this.fd, level, option, congestionControls[name]), 'setsockopt', name);
  }

  getOption(option: SocketOption): number {
    const [level, name] = socketOptions[option];
    return this.getNumber(level, name);
  }

  /** Unix only: who was at the other end when it connected, as the kernel knows it. */
  get peerCredentials(): { readonly pid: number; readonly uid: number; readonly gid: number } {
    // SOL_SOCKET, SO_PEERCRED: struct ucred
    const bytes = new Uint8Array(12);
    check(addon.getsockopt(this.fd, 1, 17, bytes), 'getsockopt', 'peer credentials');
    const view = new DataView(bytes.buffer);
    return { pid: view.getInt32(0, true), uid: view.getUint32(4, true), gid: view.getUint32(8, true) };
  }

  /** The cookie of the socket's network namespace, which no other namespace ever has. */
  get netnsCookie(): number {
    const bytes = new Uint8Array(8);
    check(addon.getsockopt(this.fd, ...NETNS_COOKIE, bytes), 'getsockopt', 'network namespace');
    return Number(new DataView(bytes.buffer).getBigUint64(0, true));
  }

  /** As netnsCookie, of a socket that somebody handed over; 0 when it is none. */
  static netnsCookieOf({ fd }: Fd): number {
    const bytes = new Uint8Array(8);
    const isRead = addon.getsockopt(fd, ...NETNS_COOKIE, bytes) >= 0;
    return isRead ? Number(new DataView(bytes.buffer).getBigUint64(0, true)) : 0;
  }

  /**
   * A fresh socket, bound to its local address, takes the place of one whose handshake has come so
   * far, and the other side is reset.
   */
  resetHalfOpen(remote: Address, sent: number, received: number): void {
    // <linux/tcp.h>: TCP_RECV_QUEUE, TCP_SEND_QUEUE, TCP_REPAIR_OFF_NO_WP
    const [receiveQueue, sendQueue, offQuietly] = [1, 2, -1];
    this.setOption('repair', 1);
    this.setOption('repairQueue', sendQueue);
    this.setOption('queueSequence', (sent + 1) | 0);
    this.setOption('repairQueue', receiveQueue);
    this.setOption('queueSequence', (received + 1) | 0);
    this.connect(remote);
    this.setOption('repair', offQuietly);
    this.resetOnClose();
    this.close();
  }

  /** Every packet that comes for the socket is the program's to keep or to drop. */
  attachFilter(program: number): void {
    // SOL_SOCKET, SO_ATTACH_BPF
    number[0] = program;
    check(addon.setsockopt(this.fd, 1, 50, numberBytes), 'setsockopt', 'filter');
  }

  /** A number that no other socket ever has, as bytes. */
  get cookie(): Uint8Array {
    // SOL_SOCKET, SO_COOKIE
    const bytes = new Uint8Array(8);
    check(addon.getsockopt(this.fd, 1, 57, bytes), 'getsockopt', 'cookie');
    return bytes;
  }

  /** On close: drop what is unsent and reset the connection. */
  resetOnClose(isReset = true): void {
    check(addon.setsockopt(this.fd, 1, 13, isReset ? lingers.reset : lingers.end), 'setsockopt', 'linger');
  }

  /** Bytes that wait to be received. */
  get receivableBytes(): number {
    return check(addon.queued(this.fd, FIONREAD), 'ioctl');
  }

  /** Bytes sent that the peer has not acknowledged. */
  get unacknowledgedBytes(): number {
    return check(addon.queued(this.fd, SIOCOUTQ), 'ioctl');
  }

  /** TCP: the round trip as the kernel has measured it, in us. */
  get roundTripUs(): number {
    // SOL_TCP, TCP_INFO: struct tcp_info, tcpi_rtt
    const bytes = new Uint8Array(72);
    check(addon.getsockopt(this.fd, 6, 11, bytes), 'getsockopt', 'TCP information');
    return new DataView(bytes.buffer).getUint32(68, true);
  }

  private getNumber(level: number, name: number): number {
    check(addon.getsockopt(this.fd, level, name, numberBytes), 'getsockopt');
    return number[0];
  }
}
