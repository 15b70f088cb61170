// What a replay has made so far, found by what the recording calls it: numbers of objects, keys,
// addresses, QP numbers.

import { SharedMemory } from '../../native/index.ts';
import type { Ah, CompletionChannel, Cq, Device, Mr, Pd, Qp, Srq } from '../../verbs/index.ts';
import type { RecordedBytes, RecordedSend } from './recording-format.ts';
import { RecordingError } from './recording-lines.ts';

export interface ReplayedQp {
  readonly kind: 'qp';
  readonly id: number;
  readonly object: Qp;
  readonly device: Device;
  /** What the recording calls it. */
  readonly number: number;
  readonly hasSrq: boolean;
  /** Its peer is not in the recording. */
  isOutside: boolean;
  /** A completion did not come: no other is waited for. */
  isSilent: boolean;
}

interface ReplayedMr {
  readonly kind: 'mr';
  readonly object: Mr;
  /** Of the recording. */
  readonly address: number;
  readonly lkey: number;
}

export type Replayed =
  | ReplayedQp
  | ReplayedMr
  | { readonly kind: 'device'; readonly object: Device }
  | { readonly kind: 'pd'; readonly object: Pd }
  | { readonly kind: 'channel'; readonly object: CompletionChannel }
  | { readonly kind: 'cq'; readonly object: Cq }
  | { readonly kind: 'srq'; readonly object: Srq }
  | { readonly kind: 'ah'; readonly object: Ah };

type Kind = Replayed['kind'];
type OfKind<K extends Kind> = Extract<Replayed, { readonly kind: K }>;

const MAX_OBJECTS = 65_536;

export class ReplayWorld implements Disposable {
  readonly #objects = new Map<number, Replayed>();
  /** Made in the recording, and not here. */
  readonly #missing = new Set<number>();
  readonly #memories = new Map<number, SharedMemory>();
  readonly #qpsByNumber = new Map<number, ReplayedQp>();
  readonly #mrsByLkey = new Map<number, ReplayedMr>();
  /** Stay when they are revoked, so that a request with an old key has an old key here, too. */
  readonly #rkeys = new Map<number, { readonly rkey: number; readonly mr: ReplayedMr }>();
  readonly #handles = new Map<number, number>();
  readonly #maxMemoryBytes: number;
  #memoryBytes = 0;

  constructor(maxMemoryBytes: number) {
    this.#maxMemoryBytes = maxMemoryBytes;
  }

  /** Undefined when it could not be made here. */
  find<K extends Kind>(line: number, kind: K, id: number): OfKind<K> | undefined {
    const found = this.#objects.get(id);
    if (found?.kind === kind) return found as OfKind<K>;
    if (found === undefined && this.#missing.has(id)) return undefined;
    throw new RecordingError(line, `object ${id} is not a ${kind} that was made before`);
  }

  add(line: number, id: number, made: Replayed): void {
    this.#checkNew(line, id);
    this.#objects.set(id, made);
    if (made.kind === 'qp') this.#qpsByNumber.set(made.number, made);
    if (made.kind === 'mr') this.#mrsByLkey.set(made.lkey, made);
  }

  addMissing(line: number, id: number): void {
    this.#checkNew(line, id);
    this.#missing.add(id);
  }

  addRkey(recorded: number, rkey: number, mr: ReplayedMr): void {
    this.#rkeys.set(recorded, { rkey, mr });
  }

  addHandle(recorded: number, handle: number): void {
    this.#handles.set(recorded, handle);
  }

  /** What it closes, or undefined where it was never made here. */
  take(line: number, id: number): Replayed | undefined {
    const found = this.#objects.get(id);
    if (found === undefined && !this.#missing.has(id)) throw new RecordingError(line, `object ${id} was never made`);
    this.#objects.delete(id);
    this.#missing.delete(id);
    if (found?.kind === 'qp' && this.#qpsByNumber.get(found.number) === found) this.#qpsByNumber.delete(found.number);
    return found;
  }

  memory(line: number, id: number, sizeBytes: number): SharedMemory {
    const known = this.#memories.get(id);
    if (known !== undefined) {
      if (known.sizeBytes === sizeBytes) return known;
      throw new RecordingError(line, `memory ${id} had ${known.sizeBytes} bytes before, not ${sizeBytes}`);
    }
    if (sizeBytes < 1 || this.#memoryBytes + sizeBytes > this.#maxMemoryBytes) {
      throw new RecordingError(line, `${sizeBytes} more bytes of memory: the bound is ${this.#maxMemoryBytes} in all`);
    }
    const memory = SharedMemory.create({ sizeBytes, name: 'replay' });
    this.#memories.set(id, memory);
    this.#memoryBytes += sizeBytes;
    return memory;
  }

  get cqs(): readonly Cq[] {
    return [...this.#objects.values()].flatMap((made) => (made.kind === 'cq' ? [made.object] : []));
  }

  qpByRecordedNumber(number: number): ReplayedQp | undefined {
    return this.#qpsByNumber.get(number);
  }

  /** Of a completion that came here. */
  qpByNumber(device: Device, number: number): ReplayedQp | undefined {
    for (const qp of this.#qpsByNumber.values()) {
      if (qp.device === device && qp.object.number === number) return qp;
    }
    return undefined;
  }

  rkey(recorded: number): number | undefined {
    return this.#rkeys.get(recorded)?.rkey;
  }

  sge([address, length, lkey]: readonly [number, number, number]): [number, number, number] {
    const mr = this.#mrsByLkey.get(lkey) ?? this.#containing(address);
    if (mr === undefined) return [address, length, lkey];
    return [mr.object.address + (address - mr.address), length, mr.lkey === lkey ? mr.object.lkey : lkey];
  }

  remote([address, rkey]: readonly [number, number]): [number, number] {
    const key = this.#rkeys.get(rkey);
    return key === undefined ? [address, rkey] : [key.mr.object.address + (address - key.mr.address), key.rkey];
  }

  /**
   * The request with the keys and addresses of this replay; undefined when its peer is not in the
   * recording.
   */
  request(recorded: RecordedSend): RecordedSend | undefined {
    const { sges, remote, to, ...rest } = recorded;
    const request: RecordedSend = { ...rest, sges: sges.map((each) => this.sge(each)) };
    if (remote !== undefined) request.remote = this.remote(remote);
    if (to === undefined) return request;
    const handle = this.#handles.get(to[0]);
    const peer = this.#qpsByNumber.get(to[1]);
    if (handle === undefined || peer === undefined) return undefined;
    request.to = [handle, peer.object.number, to[2]];
    return request;
  }

  /**
   * Puts the recorded bytes where the request takes them from; returns how many ranges had none
   * recorded.
   */
  fill({ sges, data = [], remote, remoteData }: RecordedSend): number {
    const ranges: readonly (readonly [ReplayedMr | undefined, number, RecordedBytes])[] = [
      ...data.map((bytes, index) => {
        const [address, , lkey] = sges[index] ?? [0, 0, 0];
        return [this.#mrsByLkey.get(lkey) ?? this.#containing(address), address, bytes] as const;
      }),
      ...(remote === undefined || remoteData === undefined
        ? []
        : [[this.#rkeys.get(remote[1])?.mr, remote[0], remoteData] as const]),
    ];
    return ranges.reduce((count, [mr, address, bytes]) => count + put(mr, address, bytes), 0);
  }

  [Symbol.dispose](): void {
    for (const made of this.#objects.values()) if (made.kind === 'device') made.object.close();
    for (const memory of this.#memories.values()) memory.close();
  }

  #containing(address: number): ReplayedMr | undefined {
    for (const mr of this.#mrsByLkey.values()) {
      if (address >= mr.address && address < mr.address + mr.object.sizeBytes) return mr;
    }
    return undefined;
  }

  #checkNew(line: number, id: number): void {
    if (this.#objects.has(id) || this.#missing.has(id)) throw new RecordingError(line, `object ${id} is made twice`);
    if (this.#objects.size + this.#missing.size >= MAX_OBJECTS) {
      throw new RecordingError(line, `more than ${MAX_OBJECTS} objects at a time`);
    }
  }
}

/** 1 when the bytes are not in the recording: then others, always the same, are there. */
function put(mr: ReplayedMr | undefined, address: number, bytes: RecordedBytes): number {
  const at = address - (mr?.address ?? 0);
  const range = mr?.object.bytes.subarray(Math.max(0, at)) ?? new Uint8Array(0);
  if (typeof bytes === 'string') {
    const content = Buffer.from(bytes, 'base64');
    if (at >= 0 && content.length <= range.length) range.set(content);
    return 0;
  }
  if (at >= 0) range.subarray(0, bytes.sizeBytes).fill(0x5a);
  return 1;
}
