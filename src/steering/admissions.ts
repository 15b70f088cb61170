// Admissions: from where to where packets have got lately. To find out, the daemon knocks: it sends
// a SYN that no server ever accepts, and asks its peer whether that was heard there.

import { SystemError } from '../errors.ts';
import {
  type Address,
  type BpfMap,
  type BpfObject,
  type Family,
  type Fd,
  inNetns,
  monotonicNs,
  Socket,
} from '../native/index.ts';
import { addressOf, addressWords, hostOf } from './ip-endpoint.ts';
import {
  ADMISSION_BYTES,
  ADMISSION_KEY_BYTES,
  HEARD_SYN_BYTES,
  type HeardSyn,
  type IpEndpoint,
  readAdmission,
  readHeardSyn,
  writeAdmission,
  writeAdmissionKey,
  writeHeardSyn,
} from './layouts.ts';

/** As in bpf/steer.bpf.h. */
const HEARD_SYNS = 16_384;
/** A SYN with the same last bits may have come long before. */
const HEARD_NS = 3_000_000_000;
const nowhere = [0, 0, 0, 0];
// Filled anew for each call.
const admission = new Uint8Array(ADMISSION_BYTES);
const admissionView = new DataView(admission.buffer);

/** From where to where. */
export interface Passage {
  /** The network namespace of the client, by its cookie. */
  readonly netns: number;
  /** The address that the client is bound to; empty where the kernel chooses it. */
  readonly from: string;
  readonly to: IpEndpoint;
}

/** What is known of a SYN at the place where it arrived. */
export type { HeardSyn } from './layouts.ts';

export class Admissions implements Disposable {
  readonly #filter: number;
  readonly #admissions: BpfMap;
  readonly #knocks: BpfMap;
  readonly #answers: BpfMap;
  readonly #heard: BpfMap;
  readonly #undo: DisposableStack;

  constructor(object: BpfObject) {
    using undo = new DisposableStack();
    this.#filter = object.programFd('knock_filter');
    this.#admissions = undo.use(object.openMap('admissions'));
    this.#knocks = undo.use(object.openMap('knocks'));
    this.#answers = undo.use(object.openMap('knock_answers'));
    this.#heard = undo.use(object.openMap('heard_syns'));
    this.#undo = undo.move();
  }

  /**
   * Connects there may be carried until the deadline, by the monotonic clock: those that are bound
   * to `source`, and unbound ones if that is what the kernel chose; these get that address. Returns
   * when a connect last asked, about; 0 when none has.
   */
  admit(passage: Passage, source: string, deadlineNs: number): number {
    const from = addressWords(source);
    let lastNs = 0;
    for (const key of keysOf(passage, source)) {
      const usedNs = this.#usedNs(key);
      writeAdmission(admissionView, 0, { deadlineNs, usedNs, from });
      this.#admissions.update(key, admission);
      lastNs = Math.max(lastNs, usedNs);
    }
    return lastNs;
  }

  withdraw(passage: Passage, source: string): void {
    for (const key of keysOf(passage, source)) this.#admissions.delete(key);
  }

  #usedNs(key: Uint8Array): number {
    return this.#admissions.lookup(key, admission) ? readAdmission(admissionView, 0).usedNs : 0;
  }

  /**
   * Sends a SYN; `namespace` is where, unless it is here. Throws where plain TCP says so at once.
   */
  knock({ from, to }: Passage, namespace: Fd | null): Knock {
    const target = addressOf(to);
    if (target.family === 'unix') throw new TypeError('a unix socket has no passage');
    using undo = new DisposableStack();
    const socket = undo.use(openIn(namespace, target.family));
    if (from !== '') socket.bind(addressOf({ address: addressWords(from), port: 0 }));
    socket.attachFilter(this.#filter);
    const key = new Uint8Array(new Int32Array([socket.fd]).buffer);
    const sequence = new Uint32Array(1);
    const bytes = new Uint8Array(sequence.buffer);
    this.#knocks.update(key, bytes);
    socket.connect(target);
    this.#knocks.lookup(key, bytes);
    undo.move();
    return new Knock({ socket, target, namespace }, sequence[0], this.#answers);
  }

  /** The SYN whose sequence number ends in the tag, if one came lately. */
  heard(tag: number): HeardSyn | undefined {
    const bytes = new Uint8Array(HEARD_SYN_BYTES);
    this.#heard.lookup(placeOf(tag), bytes);
    const syn = readHeardSyn(new DataView(bytes.buffer), 0);
    return syn.heardNs > 0 && monotonicNs() - syn.heardNs < HEARD_NS ? syn : undefined;
  }

  /** It counts once. */
  forget({ sequence }: HeardSyn): void {
    const bytes = new Uint8Array(HEARD_SYN_BYTES);
    const nobody = { address: nowhere, port: 0 };
    const none = { heardNs: 0, netns: 0, client: nobody, server: nobody, sequence: 0, answer: 0 };
    writeHeardSyn(new DataView(bytes.buffer), 0, none);
    this.#heard.update(placeOf(tagOf(sequence)), bytes);
  }

  [Symbol.dispose](): void {
    this.#undo.dispose();
  }
}

/** A socket that has sent its SYN, and where. */
interface SentSyn {
  readonly socket: Socket;
  readonly target: Exclude<Address, { readonly family: 'unix' }>;
  readonly namespace: Fd | null;
}

/** A SYN that was sent, and what came back. */
export class Knock implements Disposable {
  /** The SYN's. */
  readonly sequence: number;
  /** The address that it came from. */
  readonly source: string;
  readonly #sent: SentSyn;
  readonly #local: Address;
  readonly #cookie: Uint8Array;
  readonly #answers: BpfMap;

  constructor(sent: SentSyn, sequence: number, answers: BpfMap) {
    const { localAddress, cookie } = sent.socket;
    this.#sent = sent;
    this.#local = localAddress;
    this.#cookie = cookie;
    this.#answers = answers;
    this.sequence = sequence;
    this.source = localAddress.family === 'unix' ? '' : hostOf(addressWords(localAddress.host));
  }

  /** By which the peer finds it among those it heard. */
  get tag(): number {
    return tagOf(this.sequence);
  }

  /**
   * The sequence number of the SYN that answered; undefined while none has. Throws when it was
   * refused.
   */
  get answer(): number | undefined {
    this.#sent.socket.finishConnect();
    const sequence = new Uint32Array(1);
    return this.#answers.lookup(this.#cookie, new Uint8Array(sequence.buffer)) ? sequence[0] : undefined;
  }

  /** The server’s half of the handshake is reset: it would wait for its other half. */
  close(): void {
    const { socket, target, namespace } = this.#sent;
    if (socket.isClosed) return;
    const sequence = new Uint32Array(1);
    const isAnswered = this.#answers.lookup(this.#cookie, new Uint8Array(sequence.buffer));
    this.#answers.delete(this.#cookie);
    socket.close();
    if (!isAnswered || namespace?.isClosed === true) return;
    try {
      using other = openIn(namespace, target.family);
      other.bind(this.#local);
      other.resetHalfOpen(target, this.sequence, sequence[0]);
    } catch (error) {
      // The server’s next answer is reset by the kernel, where the namespace is still there.
      if (!(error instanceof SystemError)) throw error;
    }
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

function openIn(namespace: Fd | null, family: Family): Socket {
  const open = (): Socket => Socket.stream(family);
  return namespace === null ? open() : inNetns(namespace, open);
}

function tagOf(sequence: number): number {
  return sequence % HEARD_SYNS;
}

function placeOf(tag: number): Uint8Array {
  return new Uint8Array(new Uint32Array([tag % HEARD_SYNS]).buffer);
}

/** `source`: the address that packets had; empty when none has got there. */
function keysOf({ netns, from, to }: Passage, source: string): readonly Uint8Array[] {
  return [...new Set([from, source])].map((host) => {
    const bytes = new Uint8Array(ADMISSION_KEY_BYTES);
    const words = host === '' ? nowhere : addressWords(host);
    writeAdmissionKey(new DataView(bytes.buffer), 0, { netns, from: words, to, unused: 0 });
    return bytes;
  });
}
