// The note beside a part: which file it is the beginning of, and who is writing it.

import { UsageError } from '../../errors.ts';
import { type Owner, parseOwner } from '../../system/index.ts';
import { decodeParcel, type Parcel } from './protocol.ts';

/** One is some 300 bytes. */
export const MAX_NOTE_BYTES = 4096;

export interface PartNote {
  readonly parcel: Parcel;
  readonly writer: Owner;
}

export function encodeNote({ parcel, writer }: PartNote): string {
  const { name = null, sizeBytes = null, modifiedNs = null } = parcel;
  return `${JSON.stringify({ v: 1, parcel: { name, sizeBytes, modifiedNs }, writer })}\n`;
}

/** Undefined: whatever it is, it is no note of this version. */
export function decodeNote(text: string): PartNote | undefined {
  if (Buffer.byteLength(text) > MAX_NOTE_BYTES) return undefined;
  try {
    const { v, parcel, writer } = JSON.parse(text);
    const owner = parseOwner(writer);
    return v === 1 && owner !== null ? { parcel: decodeParcel(parcel), writer: owner } : undefined;
  } catch (error) {
    if (error instanceof UsageError || error instanceof SyntaxError || error instanceof TypeError) return undefined;
    throw error;
  }
}
