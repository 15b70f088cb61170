// Fault plans: faults on purpose, the same every time for a seed, for tests.

import { UsageError } from '../../errors.ts';
import { SharedMemory } from '../../native/index.ts';
import type { Pieces } from './pieces.ts';

/** Rates are from 0 to 1, per frame that this device sends. */
export interface FaultPlan {
  readonly seed: number;
  /** Frames that vanish; the peers send them again. */
  readonly drop?: number;
  /** Frames that arrive twice. */
  readonly duplicate?: number;
  /** Frames with a flipped bit. The peers then check sums. */
  readonly corrupt?: number;
  readonly delay?: { readonly rate: number; readonly maxMs: number };
  /** Frames after which the connection is cut. */
  readonly disconnect?: number;
  /** The QP fails when this many requests have been posted on it. */
  readonly qpDeathAt?: number;
  /** Receives in only one of so many turns. */
  readonly slowPeer?: { readonly oneTurnIn: number };
}

type Fate =
  | { readonly kind: 'send' }
  | { readonly kind: 'drop' }
  | { readonly kind: 'disconnect' }
  | { readonly kind: 'delay'; readonly ns: number };

export function checkFaultPlan(plan: FaultPlan): void {
  const rates = { ...plan, delay: plan.delay?.rate };
  for (const name of ['drop', 'duplicate', 'corrupt', 'disconnect', 'delay'] as const) {
    const rate = rates[name] ?? 0;
    if (!(rate >= 0 && rate <= 1)) throw new UsageError(`fault plan: ${name} is ${rate}; expected 0 to 1`);
  }
  if (!Number.isSafeInteger(plan.seed))
    throw new UsageError(`fault plan: seed is ${plan.seed}; expected a whole number`);
  const counts = { qpDeathAt: plan.qpDeathAt ?? 1, 'slowPeer.oneTurnIn': plan.slowPeer?.oneTurnIn ?? 1 };
  for (const [name, count] of Object.entries(counts)) {
    if (!Number.isInteger(count) || count < 1)
      throw new UsageError(`fault plan: ${name} is ${count}; expected 1 or more`);
  }
}

/** Whether the peers must expect to lose frames, and whether to check sums. */
export function isLossy(plan: FaultPlan | undefined): boolean {
  return plan !== undefined && (plan.drop ?? 0) + (plan.duplicate ?? 0) + (plan.corrupt ?? 0) > 0;
}

/** The faults of one link. */
export class FaultSource {
  readonly #plan: FaultPlan;
  #state: number;
  #turn = 0;
  readonly #copies: SharedMemory[] = [];

  /** `stream` tells links apart, so that each has a sequence of its own. */
  constructor(plan: FaultPlan, stream: number) {
    this.#plan = plan;
    this.#state = (Math.imul(plan.seed ^ 0x9e37_79b9, 0x85eb_ca6b) ^ Math.imul(stream + 1, 0xc2b2_ae35)) >>> 0;
  }

  /**
   * What becomes of a frame. May change the frame: a duplicate is appended, a corrupted one is a
   * copy.
   */
  next(frame: Pieces): Fate {
    const { drop = 0, duplicate = 0, corrupt = 0, disconnect = 0, delay } = this.#plan;
    // The same number of draws for every frame; what is corrupted or delayed draws on, and shifts
    // what follows.
    const draws = [this.#random(), this.#random(), this.#random(), this.#random(), this.#random()];
    if (draws[0] < disconnect) return { kind: 'disconnect' };
    if (draws[1] < drop) return { kind: 'drop' };
    if (draws[2] < corrupt) this.#corrupt(frame);
    else if (draws[3] < duplicate) this.#duplicate(frame);
    if (delay !== undefined && draws[4] < delay.rate) return { kind: 'delay', ns: this.#random() * delay.maxMs * 1e6 };
    return { kind: 'send' };
  }

  isSlow(): boolean {
    const { slowPeer } = this.#plan;
    return slowPeer !== undefined && this.#turn++ % slowPeer.oneTurnIn !== 0;
  }

  close(): void {
    for (const copy of this.#copies.splice(0)) copy.close();
  }

  #duplicate(frame: Pieces): void {
    const { count } = frame;
    for (let piece = 0; piece < count; piece++) {
      frame.add(frame.memories[piece], frame.offsets[piece], frame.lengths[piece]);
    }
  }

  #corrupt(frame: Pieces): void {
    const bytes = frame.totalBytes;
    const copy = SharedMemory.create({ sizeBytes: bytes, name: 'corrupt' });
    // The one before is surely sent by now.
    for (const old of this.#copies.splice(0)) old.close();
    this.#copies.push(copy);
    const target = new Uint8Array(copy.buffer);
    let at = 0;
    for (let piece = 0; piece < frame.count; piece++) {
      target.set(new Uint8Array(frame.memories[piece].buffer, frame.offsets[piece], frame.lengths[piece]), at);
      at += frame.lengths[piece];
    }
    target[Math.floor(this.#random() * bytes)] ^= 1 << Math.floor(this.#random() * 8);
    frame.clear();
    frame.add(copy, 0, bytes);
  }

  /** 0 ≤ x < 1: mulberry32. */
  #random(): number {
    this.#state = (this.#state + 0x6d2b_79f5) >>> 0;
    let t = this.#state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296;
  }
}
