// SENDs back and forth as ibv_rc_pingpong does, with its exchange and its figures, so that either
// side may be the original.

import { once } from 'node:events';
import { MillraceError, UsageError } from '../errors.ts';
import { monotonicNs } from '../native/index.ts';
import {
  CompletionBatch,
  type Cq,
  completionOpcodes,
  type Device,
  type Mr,
  type Mtu,
  modifyToRts,
  type Qp,
  ReceiveBatch,
  randomPsn,
  SendBatch,
} from '../providers/index.ts';
import { accept, type Conversation, dial } from './conversation.ts';
import { Pace } from './pace.ts';
import { exchange, type PingpongAddress } from './pingpong-exchange.ts';
import { openPerfDevice } from './setup.ts';

interface PingpongParameters {
  readonly sizeBytes: number;
  /** Must be the same on both sides. */
  readonly iterations: number;
  readonly rxDepth: number;
  readonly mtu: Mtu;
}

export interface PingpongOptions extends PingpongParameters {
  /** The server to connect to; undefined: this is the server. */
  readonly host?: string | undefined;
  readonly port: number;
  readonly device?: string | undefined;
  /** The index of the local GID. Default: the port's choice. */
  readonly gidIndex?: number | undefined;
  /** The client marks every page that it sends, and the server checks that the marks arrived. */
  readonly isChecked: boolean;
  readonly signal: AbortSignal;
  readonly say: (line: string) => void;
}

interface PingpongDocument {
  readonly v: 1;
  readonly role: 'client' | 'server';
  readonly device: string;
  readonly parameters: PingpongParameters;
  /** In both directions together. */
  readonly bytes: number;
  readonly elapsedS: number;
  readonly mbitPerS: number;
  readonly usPerIteration: number;
}

const pageBytes = 4096;
/** The content of memory at the start, and the first byte of a page that the client has marked. */
const blank = 0x7b;
const marked = 0;
const turnsPerCheck = 64;
/**
 * How long to wait for the peer to close its connection; the original closes it right after the
 * exchange.
 */
const goodbyeMs = 2000;

const limits: Readonly<Record<'sizeBytes' | 'iterations' | 'rxDepth', readonly [min: number, max: number]>> = {
  sizeBytes: [1, 256 * 1024 * 1024],
  iterations: [1, 100_000_000],
  rxDepth: [1, 16_384],
};
const mtus: readonly number[] = [256, 512, 1024, 2048, 4096];

function checkPingpong(parameters: PingpongParameters): void {
  for (const [name, [min, max]] of Object.entries(limits)) {
    const value = parameters[name as keyof typeof limits];
    if (Number.isInteger(value) && value >= min && value <= max) continue;
    throw new UsageError(`perf pingpong: ${name} is ${value}; expected ${min} to ${max}`);
  }
  if (mtus.includes(parameters.mtu)) return;
  throw new UsageError(`perf pingpong: the MTU is ${parameters.mtu}; expected one of ${mtus.join(', ')}`);
}

export async function runPingpong(options: PingpongOptions): Promise<PingpongDocument> {
  checkPingpong(options);
  const { host, port, signal, say, sizeBytes, iterations, rxDepth, mtu } = options;
  const role = host === undefined ? 'server' : 'client';
  using conversation =
    host === undefined
      ? await accept(port, signal, (listening) => say(`waiting for a client on port ${listening}`))
      : await dial(host, port, 'pingpong', signal);
  using device = openPerfDevice(options.device, conversation);
  using end = new PingpongEnd(device, options);
  if (role === 'client' && options.isChecked) end.mark();
  await end.connect(conversation, role);
  const elapsedNs = await end.play(role === 'client');
  if (role === 'server' && options.isChecked) end.checkMarks();
  await goodbye(conversation);
  const bytes = sizeBytes * iterations * 2;
  return {
    v: 1,
    role,
    device: device.name,
    parameters: { sizeBytes, iterations, rxDepth, mtu },
    bytes,
    elapsedS: elapsedNs / 1e9,
    mbitPerS: (bytes * 8 * 1000) / elapsedNs,
    usPerIteration: elapsedNs / 1000 / iterations,
  };
}

/** In the format of ibv_rc_pingpong. */
export function pingpongLines({ bytes, elapsedS, mbitPerS, usPerIteration, parameters }: PingpongDocument): string[] {
  const time = `${elapsedS.toFixed(2)} seconds`;
  return [
    `${bytes} bytes in ${time} = ${mbitPerS.toFixed(2)} Mbit/sec`,
    `${parameters.iterations} iters in ${time} = ${usPerIteration.toFixed(2)} usec/iter`,
  ];
}

/** A queue pair and its one region, which is both sent from and received to. */
class PingpongEnd implements Disposable {
  readonly #options: PingpongOptions;
  readonly #cq: Cq;
  readonly #mr: Mr;
  readonly #qp: Qp;
  readonly #undo = new DisposableStack();
  readonly #completions: CompletionBatch;
  readonly #send: SendBatch;
  readonly #receives: ReceiveBatch;
  #sent = 0;
  #received = 0;
  /** Receives that are posted. */
  #postedReceives = 0;
  #isSending = false;
  #isAnswerDue = false;

  constructor(device: Device, options: PingpongOptions) {
    const { sizeBytes, rxDepth } = options;
    this.#options = options;
    const pd = device.createPd();
    this.#cq = device.createCq({ entries: rxDepth + 1 });
    this.#mr = pd.allocate({ sizeBytes });
    this.#mr.bytes.fill(blank);
    const queues = { sendRequests: 1, receiveRequests: rxDepth, maxSge: 1, maxInlineBytes: 0 };
    this.#qp = pd.createQp({ sendCq: this.#cq, ...queues });
    this.#completions = this.#undo.use(new CompletionBatch(16));
    this.#send = this.#undo.use(new SendBatch({ capacity: 1, maxSge: 1 }));
    this.#receives = this.#undo.use(new ReceiveBatch({ capacity: rxDepth, maxSge: 1 }));
    this.#send.send(1).sge(this.#mr.lkey, this.#mr.address, sizeBytes);
    this.#qp.init();
    this.#refill();
  }

  mark(): void {
    const { bytes } = this.#mr;
    for (let at = 0; at < bytes.length; at += pageBytes) bytes[at] = marked;
  }

  checkMarks(): void {
    const { bytes } = this.#mr;
    for (let at = 0; at < bytes.length; at += pageBytes) {
      if (bytes[at] === marked) continue;
      throw new MillraceError('MILLRACE_ERR_FAILED', `pingpong: invalid data in page ${at / pageBytes}`);
    }
  }

  async connect(conversation: Conversation, role: 'client' | 'server'): Promise<void> {
    const { mtu, say } = this.#options;
    const { lid, gids, gidIndex: preferred = 0 } = this.#qp.pd.device.port();
    const gidIndex = this.#options.gidIndex ?? preferred;
    const gid = gids[gidIndex];
    if (gid === undefined) throw new UsageError(`perf pingpong: GID index ${gidIndex}: the port has ${gids.length}`);
    const local = { qpNumber: this.#qp.number, psn: randomPsn(), gid, lid };
    say(addressLine('local', local));
    using limit = conversation.timeLimit();
    const peer = await exchange(conversation.socket, role, local, limit.signal, (remote) => {
      const common = { mtu, regions: {} };
      const options = { maxRdAtomic: 1, gidIndex: this.#options.gidIndex };
      modifyToRts(this.#qp, { ...local, ...common }, { ...remote, ...common }, options);
    });
    say(addressLine('remote', peer));
  }

  /** Resolves to the time that it took, in ns. */
  async play(isFirst: boolean): Promise<number> {
    const { signal } = this.#options;
    const pace = new Pace(() => signal.throwIfAborted());
    const startNs = monotonicNs();
    if (isFirst) this.#post();
    while (!this.#run(pace)) await pace.pause();
    return monotonicNs() - startNs;
  }

  [Symbol.dispose](): void {
    this.#undo.dispose();
  }

  /** True when everything is sent and received, false when a pause is due. */
  #run(pace: Pace): boolean {
    const { iterations } = this.#options;
    for (let turn = 1; this.#sent < iterations || this.#received < iterations; turn++) {
      const count = this.#cq.poll(this.#completions);
      for (let row = 0; row < count; row++) this.#take(row);
      if (this.#isAnswerDue && !this.#isSending && this.#sent < iterations) this.#post();
      if (turn % turnsPerCheck === 0 && pace.isDue(this.#sent + this.#received)) return false;
    }
    return true;
  }

  #take(row: number): void {
    this.#qp.throwIfFailed(this.#completions, row);
    if (this.#completions.opcode(row) !== completionOpcodes.receive) {
      this.#sent++;
      this.#isSending = false;
      return;
    }
    this.#received++;
    this.#isAnswerDue = true;
    if (--this.#postedReceives <= 1) this.#refill();
  }

  #post(): void {
    this.#isAnswerDue = false;
    this.#isSending = true;
    if (this.#qp.postSend(this.#send) !== 1)
      throw new MillraceError('MILLRACE_ERR_FAILED', 'pingpong: post a SEND: the send queue is full');
  }

  #refill(): void {
    const { sizeBytes, rxDepth } = this.#options;
    this.#receives.clear();
    for (let index = this.#postedReceives; index < rxDepth; index++) {
      this.#receives.receive(2).sge(this.#mr.lkey, this.#mr.address, sizeBytes);
    }
    this.#postedReceives += this.#qp.postReceive(this.#receives);
  }
}

/**
 * The device must stay until the peer has closed its connection too: it may still have to
 * acknowledge the last SEND.
 */
async function goodbye({ socket }: Conversation): Promise<void> {
  socket.end();
  if (socket.readableEnded || socket.destroyed) return;
  socket.resume();
  await once(socket, 'close', { signal: AbortSignal.timeout(goodbyeMs) }).catch(() => {});
}

function addressLine(side: 'local' | 'remote', { lid, qpNumber, psn, gid }: PingpongAddress): string {
  const hex = (value: number, digits: number): string => value.toString(16).padStart(digits, '0');
  const title = `${side} address:`.padEnd(16);
  return `  ${title} LID 0x${hex(lid, 4)}, QPN 0x${hex(qpNumber, 6)}, PSN 0x${hex(psn, 6)}, GID ${gid}`;
}
