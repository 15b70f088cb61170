// The `roce` wire: RoCEv2 over an ordinary UDP socket, one for all QPs of a device. It talks to
// other soft devices, to the kernel's rxe and to network cards.

import { networkInterfaces } from 'node:os';
import { MillraceError, SystemError, UsageError } from '../../../errors.ts';
import {
  CopyList,
  encodeAddress,
  interfaceMtu,
  ip,
  monotonicNs,
  NOT_WHOLE,
  PacketCheck,
  pollEvents,
  ReceiveList,
  SharedMemory,
  Socket,
} from '../../../native/index.ts';
import type { Gid, Mtu, PathTo, ProviderAh, QpSpec } from '../../../verbs/index.ts';
import { FaultSource } from '../fault-plan.ts';
import type { QpOwner } from '../qp.ts';
import { gidOf } from '../tcp-wire.ts';
import type { Wire, WireHost } from '../wire.ts';
import { marks, WorkList } from '../work-list.ts';
import { ADDRESS_ROOM, AddressBook, type Destination } from './address-book.ts';
import { AddressHandles } from './address-handles.ts';
import { TRANSPORT_MASK, transports } from './opcode.ts';
import { decodePacket, MAX_HEADER_BYTES, Packet, ROCE_PORT } from './packet.ts';
import { type RocePort, type RoceQp, RoceRcQp } from './qp.ts';
import { Transmitter } from './transmitter.ts';
import { RoceUdQp } from './ud-qp.ts';

const MAX_PEERS = 4096;
const PLACES = 32;
/**
 * While little comes: a system call for many datagrams takes longer than one for a single datagram.
 */
const FEW_PLACES = 2;
/** A datagram, or as many as the kernel puts into one. */
const PLACE_BYTES = 65_536;
/** Bounds a turn, however fast packets come. */
const BATCHES_A_TURN = 8;
const BUFFER_BYTES = 8 << 20;
const mtus: readonly Mtu[] = [4096, 2048, 1024, 512, 256];
/** IP, UDP, the longest headers with immediate data, and the ICRC. */
const OVERHEAD_BYTES = 40 + 8 + MAX_HEADER_BYTES + 4 + 4;

export class RoceWire implements Wire<RoceQp>, RocePort {
  readonly gid: Gid;
  /** The port is always the same. */
  readonly lid = 0;
  readonly mtu: Mtu;
  readonly hasLinks = false;
  readonly needsEvents = false;
  readonly transmitter: Transmitter;
  readonly copies = new CopyList(4096);
  readonly #host: WireHost<RoceQp>;
  readonly #socket: Socket;
  readonly #token: number;
  readonly #slab: SharedMemory;
  readonly #view: DataView;
  readonly #places: ReceiveList;
  readonly #check: PacketCheck;
  readonly #packet = new Packet();
  readonly #addresses: AddressBook;
  readonly #handles: AddressHandles;
  readonly #faults: FaultSource | undefined;
  /** QPs that have had a packet in this batch. */
  readonly #touched = new WorkList<RoceQp>(marks.touched);
  /** QPs that had no room in the transmitter. */
  readonly #waiting = new Set<RoceQp>();
  /** QPs that may reply to what they got. */
  readonly #replying = new WorkList<RoceQp>(marks.replying);
  readonly #counters = { received: 0, damaged: 0, malformed: 0, unexpected: 0, cut: 0 };
  #nowNs = monotonicNs();
  /** The last batch was full. */
  #isBusy = false;

  constructor(host: WireHost<RoceQp>, address: string) {
    this.#host = host;
    using undo = new DisposableStack();
    const local = encodeAddress(ip(address, ROCE_PORT));
    this.gid = gidOf(address);
    this.#socket = undo.use(openSocket(address));
    this.mtu = largestMtu(this.#socket, address);
    this.#faults = host.faults && new FaultSource(host.faults, 0);

    // Each slab starts with this side's address.
    this.#slab = undo.use(
      SharedMemory.create({ sizeBytes: ADDRESS_ROOM + PLACES * (PLACE_BYTES + ADDRESS_ROOM), name: 'roce-rx' }),
    );
    new Uint8Array(this.#slab.buffer).set(local);
    this.#view = new DataView(this.#slab.buffer);
    this.#places = undo.use(new ReceiveList(this.#slab, ADDRESS_ROOM, PLACES, PLACE_BYTES, ADDRESS_ROOM));
    this.#check = undo.use(new PacketCheck(this.#slab, 0));

    const addressBytes = (1 + MAX_PEERS) * ADDRESS_ROOM;
    const resume = (): void => this.#resume();
    const times = {
      schedule: host.schedule.bind(host),
      unschedule: host.unschedule.bind(host),
      resume,
    };
    this.transmitter = undo.use(new Transmitter(this.#socket, times, addressBytes, 0, this.#faults));
    new Uint8Array(this.transmitter.slab.buffer).set(local);
    this.#addresses = new AddressBook(ip(address, 0).family, this.transmitter.slab.buffer, ADDRESS_ROOM, MAX_PEERS);
    this.#handles = new AddressHandles(this.#addresses);
    this.#token = host.watch(this.#socket.fd, pollEvents.in, () => this.receive());
    undo.move();
  }

  get nowNs(): number {
    return this.#nowNs;
  }

  look(): void {
    this.#nowNs = monotonicNs();
  }

  take(gid: Gid): Destination {
    return this.#addresses.take(gid);
  }

  release(destination: Destination): void {
    this.#addresses.release(destination);
  }

  createQp(owner: QpOwner<RoceQp>, number: number, pd: object, spec: QpSpec): RoceQp {
    return spec.type === 'RC'
      ? new RoceRcQp(owner, this, number, pd, spec)
      : new RoceUdQp(owner, this, this.#handles, number, pd, spec);
  }

  createAh(path: PathTo): ProviderAh {
    return this.#handles.create(path.gid);
  }

  counters(): Readonly<Record<string, number>> {
    return { ...this.#counters, ...this.transmitter.counters };
  }

  /** No connection is needed: packets are just sent. */
  establish(): void {}

  wanted(): void {}

  abandon(qp: RoceQp): void {
    this.#waiting.delete(qp);
    this.#touched.remove(qp);
    this.#replying.remove(qp);
  }

  revoked(): void {}

  settle(): void {
    this.copies.run();
  }

  sleep(): boolean {
    this.#endReplies();
    return true;
  }

  receive(): void {
    if (this.#socket.isClosed) return;
    if (!this.#replying.isEmpty) this.#endReplies();
    for (let batch = 0; batch < BATCHES_A_TURN; batch++) {
      if (this.#faults?.isSlow() === true) return;
      const places = this.#isBusy ? PLACES : FEW_PLACES;
      const count = this.#receiveBatch(places);
      if (count === 0) {
        this.#isBusy = false;
        return;
      }
      this.#isBusy = count === places;
      this.look();
      this.#dispatch(count);
      if (!this.#isBusy || this.#socket.isClosed) return;
    }
  }

  #receiveBatch(places: number): number {
    try {
      return this.#places.receive(this.#socket, places);
    } catch (error) {
      // An ICMP error of an earlier datagram, told late; the retransmission timers handle the loss.
      if (error instanceof SystemError) return 0;
      throw error;
    }
  }

  #dispatch(count: number): void {
    this.#check.clear();
    for (let place = 0; place < count; place++) this.#split(place);
    this.#check.run();
    const { count: packets } = this.#check;
    for (let index = 0; index < packets; index++) {
      this.#onPacket(index);
      // An event's listener may have closed the device.
      if (this.#socket.isClosed) return;
    }
    // Answers are made from memory, so data that came before them must be copied first.
    this.copies.run();
    for (let qp = this.#touched.shift(); qp !== undefined; qp = this.#touched.shift()) {
      if (qp.onBatch()) this.#host.kick(qp);
    }
  }

  /** One datagram may be several packets of the same size. */
  #split(place: number): void {
    const offset = this.#places.offset(place);
    const length = this.#places.length(place);
    const address = this.#places.addressOffset(place);
    // An empty datagram counts as well.
    const each = this.#places.segmentBytes(place) || Math.max(1, length);
    if (this.#places.isCut(place)) this.#counters.cut++;
    else {
      for (let at = 0; (at === 0 || at < length) && !this.#check.isFull; at += each) {
        this.#check.add(offset + at, Math.min(each, length - at), address);
      }
    }
  }

  /** Checks every packet before a QP gets it, because any host may send to this port. */
  #onPacket(index: number): void {
    const counters = this.#counters;
    counters.received++;
    const identification = this.#check.result(index);
    if (identification === NOT_WHOLE) {
      counters.damaged++;
      return;
    }
    const packet = this.#packet;
    const problem = decodePacket(this.#view, this.#check.offset(index), this.#check.length(index), packet);
    if (problem !== undefined) {
      counters.malformed++;
      return;
    }
    const qp = this.#host.qp(packet.destQp);
    const transport = packet.opcode & TRANSPORT_MASK;
    const isWanted =
      qp !== undefined &&
      transport === (qp.spec.type === 'RC' ? transports.rc : transports.ud) &&
      (packet.pkey & 0x7fff) === 0x7fff &&
      qp.onPacket(packet, identification, this.#slab, this.#check.remoteOffset(index));
    if (isWanted) this.#touched.add(qp);
    else counters.unexpected++;
  }

  flush(): void {
    if (!this.#socket.isClosed) this.transmitter.flush();
  }

  waitForRoom(qp: RoceQp): void {
    this.#waiting.add(qp);
  }

  waitForReply(qp: RoceQp): void {
    this.#replying.add(qp);
  }

  #endReplies(): void {
    for (let qp = this.#replying.shift(); qp !== undefined; qp = this.#replying.shift()) qp.giveUp();
  }

  #resume(): void {
    const waiting = [...this.#waiting];
    this.#waiting.clear();
    for (const qp of waiting) this.#host.kick(qp);
  }

  close(): void {
    this.#host.unwatch(this.#socket.fd, this.#token);
    this.transmitter.close();
    this.#places.close();
    this.#check.close();
    this.#slab.close();
    this.copies.close();
    this.#faults?.close();
    this.#socket.close();
  }
}

function openSocket(address: string): Socket {
  const local = ip(address, ROCE_PORT);
  const socket = Socket.datagram(local.family);
  try {
    // Not to be fragmented, and with an identification of 0: the ICRC covers both.
    if (local.family === 'ipv4') socket.setOption('mtuDiscover', PMTUDISC_DO);
    else {
      socket.setOption('ipv6Only', 1);
      socket.setOption('ipv6MtuDiscover', PMTUDISC_DO);
      // Others send without a checksum: the ICRC is one.
      socket.setOption('udpNoChecksum6Receive', 1);
    }
    socket.setOption('udpGro', 1);
    growBuffers(socket);
    socket.bind(local);
    return socket;
  } catch (error) {
    socket.close();
    if (!(error instanceof SystemError)) throw error;
    if (error.code === 'EADDRINUSE') {
      throw new MillraceError(
        'MILLRACE_ERR_FAILED',
        `open soft-roce at ${address}: another device has UDP port ${ROCE_PORT} there; give this one an address of its own (MILLRACE_SOFT_ADDRESS)`,
        { cause: error },
      );
    }
    if (error.code !== 'EADDRNOTAVAIL') throw error;
    throw new UsageError(`open soft-roce at ${address}: this host has no such address`, { cause: error });
  }
}

const PMTUDISC_DO = 2;

function growBuffers(socket: Socket): void {
  for (const [forced, plain] of [
    ['receiveBufferForce', 'receiveBuffer'],
    ['sendBufferForce', 'sendBuffer'],
  ] as const) {
    try {
      socket.setOption(forced, BUFFER_BYTES);
    } catch {
      // Only the administrator may go past the system's limit.
      socket.setOption(plain, BUFFER_BYTES);
    }
  }
}

/** The largest that fits in a packet of the interface with this address. */
function largestMtu(socket: Socket, address: string): Mtu {
  for (const [name, addresses] of Object.entries(networkInterfaces())) {
    // As bytes: an IPv6 address can be written in many ways.
    if (addresses?.some((one) => gidOf(one.address) === gidOf(address)) !== true) continue;
    const bytes = interfaceMtu(socket, name);
    return mtus.find((mtu) => mtu + OVERHEAD_BYTES <= bytes) ?? 256;
  }
  // All of 127.0.0.0/8 is the loopback's, listed or not.
  return address.startsWith('127.') ? 4096 : 1024;
}
