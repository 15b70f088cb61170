// A datagram queue pair on the roce wire (UD): messages of one packet, from and to any QP,
// unreliable.

import { UsageError } from '../../../errors.ts';
import type { SharedMemory } from '../../../native/index.ts';
import {
  completionOpcodes,
  completionStatuses,
  GRH_BYTES,
  type QpAttributes,
  type QpSpec,
  type QpState,
  type SendBatch,
  sendFlags,
  sendOpcodes,
  sendRow,
} from '../../../verbs/index.ts';
import type { SoftCq } from '../completion-queue.ts';
import { HeldReceive } from '../held-receive.ts';
import type { QpOwner, ReceiveHalf, SendHalf } from '../qp.ts';
import { SendCompletions } from '../send-completions.ts';
import { SendQueue } from '../send-queue.ts';
import { addSequence } from '../sequence.ts';
import type { AddressHandles } from './address-handles.ts';
import { operations, transports } from './opcode.ts';
import { Packet } from './packet.ts';
import { PiecesCursor } from './pieces-cursor.ts';
import { type RocePort, RoceQp } from './qp.ts';
import { writeRoute } from './route-header.ts';

/** A queue key whose top bit is set stands for the QP's own. */
const OWN_QKEY = 0x8000_0000;

export class RoceUdQp extends RoceQp {
  protected override readonly requester: SendHalf;
  protected override readonly responder: ReceiveHalf;
  readonly #owner: QpOwner<RoceQp>;
  readonly #handles: AddressHandles;
  readonly #queue: SendQueue;
  readonly #completions: SendCompletions;
  readonly #receive: HeldReceive;
  readonly #packet = new Packet();
  readonly #outgoing = new PiecesCursor();
  readonly #incoming = new PiecesCursor();
  #qkey = 0;
  #psn = 0;

  constructor(
    owner: QpOwner<RoceQp>,
    port: RocePort,
    handles: AddressHandles,
    number: number,
    pd: object,
    spec: QpSpec,
  ) {
    super(owner, port, number, pd, spec);
    this.#owner = owner;
    this.#handles = handles;
    this.#queue = new SendQueue(this, spec);
    this.#completions = new SendCompletions(this, spec.sendCq as SoftCq, this.#queue, spec.signalAll);
    this.#receive = new HeldReceive(this, spec.receiveCq as SoftCq, this.queue);
    this.requester = this.#sendHalf();
    this.responder = {
      start: () => {},
      adjust: () => {},
      flush: (isShared) => this.#receive.flush(isShared),
      reset: (isShared) => this.#receive.reset(isShared),
    };
  }

  #sendHalf(): SendHalf {
    const queue = this.#queue;
    return {
      get count() {
        return queue.count;
      },
      get unsent() {
        return queue.count;
      },
      post: (batch) => this.#post(batch),
      start: ({ sqPsn }) => {
        this.#psn = sqPsn;
      },
      adjust: () => {},
      flush: () => {
        while (queue.count > 0) this.#completions.doneFirst(completionStatuses.WR_FLUSH_ERR);
      },
      reset: () => queue.clear(),
      close: () => queue.close(),
    };
  }

  /** It has no single peer. */
  override get isConnected(): boolean {
    return this.isReady;
  }

  override modify(to: QpState, attributes: QpAttributes): void {
    super.modify(to, attributes);
    if (attributes.qkey !== undefined) this.#qkey = attributes.qkey;
  }

  #post({ words, rowWords, count }: SendBatch): number {
    for (let index = 0; index < count; index++) {
      if (this.#queue.isFull) return index;
      const opcode = words[index * rowWords + sendRow.opcode];
      if (opcode !== sendOpcodes.send && opcode !== sendOpcodes.sendWithImm) {
        throw new UsageError(`a request with opcode ${opcode} on a UD queue pair: it can only send`);
      }
      this.#queue.store(words, index * rowWords);
    }
    return count;
  }

  override pump(): boolean {
    while (this.isSending && this.#queue.count > 0) {
      const status = this.#send();
      if (status === undefined) return false;
      this.#completions.doneFirst(status);
      if (status !== completionStatuses.SUCCESS) this.fail(`a request failed with status ${status}`);
    }
    return false;
  }

  /** Sends the oldest request. Returns its status, or undefined when there is no room now. */
  #send(): number | undefined {
    const { transmitter, mtu } = this.port;
    const { words } = this.#queue;
    const entry = this.#queue.entryAt(0);
    const row = this.#queue.rowOf(entry);
    const bytes = this.#queue.bytesOf(entry);
    if (bytes > mtu) return completionStatuses.LOC_LEN_ERR;
    const destination = this.#handles.get(words[row + sendRow.addressHandle]);
    if (destination === undefined) return completionStatuses.LOC_QP_OP_ERR;
    this.#outgoing.clear();
    if (!this.#queue.resolve(entry, 0, this.#outgoing.pieces)) return completionStatuses.LOC_PROT_ERR;
    if (!transmitter.hasRoom(bytes, this.#outgoing.count)) {
      this.port.waitForRoom(this);
      return undefined;
    }
    const packet = this.#packet;
    const hasImm = words[row + sendRow.opcode] === sendOpcodes.sendWithImm;
    packet.opcode = transports.ud | (hasImm ? operations.sendOnlyWithImm : operations.sendOnly);
    packet.isSolicited = (words[row + sendRow.flags] & sendFlags.solicited) !== 0;
    packet.destQp = words[row + sendRow.destQpNumber] & 0xff_ffff;
    packet.psn = this.#psn;
    const qkey = words[row + sendRow.qkey];
    packet.qkey = qkey >= OWN_QKEY ? this.#qkey : qkey;
    packet.sourceQp = this.number;
    packet.imm = words[row + sendRow.imm];
    this.#psn = addSequence(this.#psn, 1);
    transmitter.add(packet, destination, bytes, this.#outgoing, 0);
    return completionStatuses.SUCCESS;
  }

  /** A datagram without a receive, or too long for it, is lost. */
  override onPacket(packet: Packet, identification: number, slab: SharedMemory, source: number): boolean {
    if (!this.isReady || packet.qkey !== this.#qkey || !this.#receive.take()) return false;
    const { copies } = this.port;
    const bytes = GRH_BYTES + packet.payloadBytes;
    this.#incoming.clear();
    if (bytes > this.#receive.roomBytes || !this.#receive.resolve(this.#incoming.pieces)) return false;
    writeRoute(this.#incoming, this.port.gid, packet, identification, slab, source);
    if (!this.#incoming.scatter(copies, GRH_BYTES, packet.payloadBytes, slab, packet.payloadOffset)) return false;
    const hasImm = packet.opcode === (transports.ud | operations.sendOnlyWithImm);
    const { SUCCESS } = completionStatuses;
    const { receive } = completionOpcodes;
    this.#receive.complete(SUCCESS, receive, bytes, packet.imm, hasImm, packet.isSolicited, packet.sourceQp);
    return true;
  }

  protected override onFailing(): void {
    this.port.copies.run();
  }

  protected override onFailed(): void {}

  protected override disconnect(): void {
    this.#owner.abandon(this);
  }
}
