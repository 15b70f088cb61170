// Queue pairs of the device: steps of the QP state machine as attributes of libibverbs, and
// posting.

import { constants } from 'node:os';
import { UnsupportedError, UsageError } from '../../errors.ts';
import { ibverbs, lastRefusal, pathWords, stepWords } from '../../native/index.ts';
import {
  gidBytes,
  type PathTo,
  type ProviderQp,
  type QpAttributes,
  type QpSpec,
  type QpState,
  qpStates,
  type ReceiveBatch,
  type RemoteWindow,
  type SendBatch,
} from '../../verbs/index.ts';
import type { IbvCq } from './cq.ts';
import { checkMade, isFull, refusalError, stepHint, verbsError } from './errors.ts';
import { Handle } from './handle.ts';
import { chooseSource, mtuCode, type Source } from './port.ts';
import type { IbvSrq } from './srq.ts';

/** enum ibv_qp_type. */
const qpTypes = { RC: 2, UD: 4 } as const;

/** enum ibv_qp_attr_mask. */
const masks = {
  state: 1 << 0,
  access: 1 << 3,
  pkeyIndex: 1 << 4,
  portNumber: 1 << 5,
  qkey: 1 << 6,
  path: 1 << 7,
  pathMtu: 1 << 8,
  timeout: 1 << 9,
  retryCount: 1 << 10,
  rnrRetry: 1 << 11,
  rqPsn: 1 << 12,
  maxRdAtomic: 1 << 13,
  minRnrTimer: 1 << 15,
  sqPsn: 1 << 16,
  maxDestRdAtomic: 1 << 17,
  destQpNumber: 1 << 20,
} as const;

/** A packet may pass this many routers, unless the path says otherwise. */
const HOPS = 64;

/** In ms, when a QP leaves SQD. */
const DRAIN_WAITS = 50;
const unusedWord = new Int32Array(new SharedArrayBuffer(4));
const { EINVAL } = constants.errno;

/** Attributes that go to the device unchanged. */
type PlainName = Exclude<keyof typeof masks, 'state' | 'path' | 'pathMtu'>;
const plainNames = Object.keys(masks).filter((name) => !['state', 'path', 'pathMtu'].includes(name)) as PlainName[];

/** The path to the peer, as words for native/ibverbs-objects.c. */
export function encodePath(port: number, path: PathTo, source: Source): Uint8Array {
  const words = new Uint32Array(pathWords.count);
  words[pathWords.port] = port;
  words[pathWords.lid] = path.lid ?? 0;
  words[pathWords.isGlobal] = source.isGlobal ? 1 : 0;
  words[pathWords.gidIndex] = source.gidIndex;
  words[pathWords.hopLimit] = path.hopLimit ?? HOPS;
  const bytes = new Uint8Array(words.buffer);
  bytes.set(gidBytes(path.gid), pathWords.gid * 4);
  return bytes;
}

/** A step, without its path, as words for native/ibverbs-objects.c. */
export function encodeStep(to: QpState, attributes: QpAttributes): Uint32Array {
  const words = new Uint32Array(stepWords.count);
  let mask: number = masks.state;
  words[stepWords.state] = qpStates.indexOf(to);
  for (const name of plainNames) {
    const value = attributes[name];
    if (value === undefined) continue;
    mask |= masks[name];
    words[stepWords[name]] = value;
  }
  if (attributes.pathMtu !== undefined) {
    mask |= masks.pathMtu;
    words[stepWords.pathMtu] = mtuCode(attributes.pathMtu);
  }
  if (attributes.path !== undefined) mask |= masks.path;
  words[stepWords.mask] = mask;
  return words;
}

export class IbvQp implements ProviderQp {
  readonly number: number;
  readonly #context: Handle;
  readonly #handle: Handle;
  readonly #spec: QpSpec;
  #port = 1;
  #peer = 'nobody';
  #lastState: QpState = 'RESET';

  constructor(context: Handle, pd: Handle, spec: QpSpec) {
    const { sendRequests, receiveRequests, maxSge, maxInlineBytes } = spec;
    const made = ibverbs.ibvCreateQp(
      pd.value,
      qpTypes[spec.type],
      (spec.sendCq as IbvCq).handle.value,
      (spec.receiveCq as IbvCq).handle.value,
      (spec.srq as IbvSrq | undefined)?.handle.value ?? 0,
      sendRequests,
      receiveRequests,
      maxSge,
      maxInlineBytes,
      spec.signalAll ? 1 : 0,
    );
    const [handle, number] = checkMade(
      made,
      'ibv_create_qp',
      () =>
        `make a ${spec.type} QP of ${sendRequests} sends and ${receiveRequests} receives with ${maxSge} scatter-gather entries and ${maxInlineBytes} inline bytes`,
    );
    this.#context = context;
    this.#handle = new Handle(handle, 'qp');
    this.#spec = spec;
    this.number = number;
  }

  /** Asks the device, which moves a QP to ERR by itself. */
  get state(): QpState {
    if (this.#handle.isClosed) return this.#lastState;
    // The QPs of a device that is gone do not work.
    this.#lastState = qpStates[ibverbs.ibvQueryState(this.#handle.value)] ?? 'ERR';
    return this.#lastState;
  }

  get peer(): string {
    return this.#peer;
  }

  modify(to: QpState, attributes: QpAttributes): void {
    const { path, portNumber = this.#port } = attributes;
    // The device needs one in any case; there is hardly ever more than the first.
    const needsPkey = to === 'INIT' && attributes.portNumber !== undefined;
    const step = encodeStep(to, needsPkey ? { pkeyIndex: 0, ...attributes } : attributes);
    const source = path === undefined ? undefined : chooseSource(this.#context, portNumber, path);
    if (source !== undefined) this.#checkMtu(attributes, source, portNumber);
    const place =
      path === undefined || source === undefined
        ? new Uint8Array(pathWords.count * 4)
        : encodePath(portNumber, path, source);
    const result = this.#step(new Uint8Array(step.buffer), place);
    if (result < 0) throw this.#stepError(result, to, attributes, source);
    this.#port = portNumber;
    if (to === 'RESET') this.#peer = 'nobody';
    if (path !== undefined) this.#peer = `QP ${attributes.destQpNumber ?? 0} at ${path.gid}`;
  }

  postSend(batch: SendBatch): number {
    const { count } = batch;
    const taken = ibverbs.ibvPostSend(this.#handle.value, batch.memory.id, batch.rowWords, count);
    return taken === count ? taken : this.#explain('send request', taken);
  }

  postReceive(batch: ReceiveBatch): number {
    const { count } = batch;
    const taken = ibverbs.ibvPostReceive(this.#handle.value, batch.memory.id, batch.rowWords, count);
    return taken === count ? taken : this.#explain('receive', taken);
  }

  async mapRemote(): Promise<RemoteWindow> {
    throw new UnsupportedError(`map memory of ${this.#peer}: only the soft device's shm wire can`);
  }

  close(): void {
    this.#lastState = 'RESET';
    this.#handle.close();
  }

  /** Waits until the send queue has drained, because the device does not leave SQD before. */
  #step(step: Uint8Array, place: Uint8Array): number {
    let result = ibverbs.ibvModifyQp(this.#handle.value, step, place);
    for (let waits = 0; result === -EINVAL && waits < DRAIN_WAITS && this.state === 'SQD'; waits++) {
      Atomics.wait(unusedWord, 0, 0, 1);
      result = ibverbs.ibvModifyQp(this.#handle.value, step, place);
    }
    return result;
  }

  /** A full queue takes what fits; anything else is a mistake or a failure. */
  #explain(what: string, taken: number): number {
    const errno = lastRefusal();
    if (isFull(errno)) return taken;
    const { maxSge, maxInlineBytes } = this.#spec;
    throw refusalError({ errno, what, row: taken, queue: `QP ${this.number}`, maxSge, maxInlineBytes });
  }

  #checkMtu({ pathMtu = 256 }: QpAttributes, { activeMtu }: Source, port: number): void {
    if (pathMtu <= activeMtu) return;
    throw new UsageError(
      `QP ${this.number} to RTR: pathMtu is ${pathMtu}, and the active MTU of port ${port} is ${activeMtu} (on RoCE it follows the MTU of the network device)`,
    );
  }

  #stepError(errno: number, to: QpState, { path }: QpAttributes, source: Source | undefined): Error {
    const facts = { gidIndex: source?.gidIndex ?? 0, peer: path?.gid ?? this.#peer };
    const hint = path === undefined ? undefined : stepHint(errno, facts);
    return verbsError(errno, 'ibv_modify_qp', `QP ${this.number} from ${this.state} to ${to}`, hint);
  }
}
