// Checks what a guest has posted: rows are copied out of the shared ring, out of the guest's reach,
// and checked there.
//
// A guest may write anything into its rings at any time, so nothing is checked in place. A row that
// breaks a rule becomes one that every device fails in its turn: the guest sees a completion with
// an error, as for any bad request. Only counts that no frontend writes are protocol errors, for
// which the guest is dropped.

import { MillraceError } from '../../../errors.ts';
import {
  type Mr,
  type QpType,
  receiveRow,
  sendFlags,
  sendOpcodes,
  sendRow,
  sgeRow,
  write64,
} from '../../../verbs/index.ts';

/**
 * What a guest may name in its requests. Any other key is replaced by 0, which every device
 * refuses.
 */
export interface GuestKeys {
  readonly lkeys: ReadonlySet<number>;
  readonly addressHandles: ReadonlySet<number>;
}

/** What the send requests of one QP are checked against. */
export interface SendLimits {
  readonly qpType: QpType;
  readonly maxSge: number;
  readonly keys: GuestKeys;
  /** The inline bytes of the ring, registered; the guest does not know the key. */
  readonly inline: Mr | undefined;
  readonly inlineStride: number;
  readonly maxInlineBytes: number;
}

/**
 * Throws unless the guest has posted at most as many requests as there was room for: no frontend
 * posts more.
 */
export function checkPostedCount(posted: number, free: number): void {
  if (posted <= free) return;
  throw new MillraceError('MILLRACE_ERR_PROTOCOL', `a ring with ${posted} new requests: there was room for ${free}`);
}

/** Throws unless the guest has at most as many unread completions as its ring has entries. */
export function checkUnreadCount(unread: number, entries: number): void {
  if (unread <= entries) return;
  throw new MillraceError('MILLRACE_ERR_PROTOCOL', `a ring of ${entries} completions of which ${unread} are unread`);
}

/**
 * Copies the row at `from` of the ring to `to` of private words, and checks it. Its inline bytes
 * are those of `slot`.
 */
export function copyCheckedSend(
  ring: Uint32Array,
  from: number,
  words: Uint32Array,
  to: number,
  slot: number,
  limits: SendLimits,
): void {
  for (let word = 0; word < sendRow.sge; word++) words[to + word] = ring[from + word];
  const sges = words[to + sendRow.sgeCount];
  if (sges > limits.maxSge || words[to + sendRow.opcode] > sendOpcodes.compareSwap) {
    makeFail(words, to);
    return;
  }
  const used = sendRow.sge + sges * sgeRow.words;
  for (let word = sendRow.sge; word < used; word++) words[to + word] = ring[from + word];
  if ((words[to + sendRow.flags] & sendFlags.inline) !== 0) pointInline(words, to, slot, limits);
  else checkLkeys(words, to + sendRow.sge, sges, limits.keys);
  if (limits.qpType === 'UD' && !limits.keys.addressHandles.has(words[to + sendRow.addressHandle])) {
    words[to + sendRow.addressHandle] = 0;
  }
}

/**
 * As `copyCheckedSend`, without the work request id. More entries than the queue takes are cut off.
 */
export function copyCheckedReceive(
  ring: Uint32Array,
  from: number,
  words: Uint32Array,
  to: number,
  maxSge: number,
  keys: GuestKeys,
): void {
  const sges = Math.min(ring[from + receiveRow.sgeCount], maxSge);
  words[to + receiveRow.sgeCount] = sges;
  const used = receiveRow.sge + sges * sgeRow.words;
  for (let word = receiveRow.sge; word < used; word++) words[to + word] = ring[from + word];
  checkLkeys(words, to + receiveRow.sge, sges, keys);
}

/** Ranges are checked by the device, which knows the region's size. */
function checkLkeys(words: Uint32Array, firstSge: number, sges: number, keys: GuestKeys): void {
  for (let sge = 0; sge < sges; sge++) {
    const at = firstSge + sge * sgeRow.words + sgeRow.lkey;
    if (!keys.lkeys.has(words[at])) words[at] = 0;
  }
}

/**
 * The frontend has put the inline bytes into the ring, one entry after the other. The device copies
 * them from there when it is posted to.
 */
function pointInline(words: Uint32Array, to: number, slot: number, limits: SendLimits): void {
  const { inline, inlineStride, maxInlineBytes } = limits;
  const sges = words[to + sendRow.sgeCount];
  let bytes = 0;
  for (let sge = 0; sge < sges; sge++) bytes += words[to + sendRow.sge + sge * sgeRow.words + sgeRow.length];
  if (inline === undefined || bytes > maxInlineBytes || words[to + sendRow.opcode] >= sendOpcodes.read) {
    makeFail(words, to);
    return;
  }
  words[to + sendRow.sgeCount] = bytes === 0 ? 0 : 1;
  write64(words, to + sendRow.sge, inline.address + slot * inlineStride);
  words[to + sendRow.sge + sgeRow.length] = bytes;
  words[to + sendRow.sge + sgeRow.lkey] = inline.lkey;
}

/** A row that no frontend writes becomes one that every device fails, in its turn. */
function makeFail(words: Uint32Array, to: number): void {
  words[to + sendRow.opcode] = sendOpcodes.send;
  words[to + sendRow.flags] = sendFlags.signaled;
  words[to + sendRow.sgeCount] = 1;
  write64(words, to + sendRow.sge, 0);
  words[to + sendRow.sge + sgeRow.length] = 1;
  words[to + sendRow.sge + sgeRow.lkey] = 0;
}
