// The note beside a part: which file it is the beginning of, and who is writing it.

import { ProtocolError } from '../../errors.ts';
import { type Owner, parseOwner } from '../../system/index.ts';
import { type FileOffer, fileOffer } from './protocol.ts';

/** One is some 300 bytes. */
export const MAX_NOTE_BYTES = 4096;
const VERSION = 2;

export interface PartNote {
  readonly offer: FileOffer;
  readonly writer: Owner;
}

export function encodeNote({ offer, writer }: PartNote): string {
  return `${JSON.stringify({ v: VERSION, offer: fileOffer.encode(offer), writer })}\n`;
}

/** Undefined: whatever it is, it is no note of this version. */
export function decodeNote(text: string): PartNote | undefined {
  if (Buffer.byteLength(text) > MAX_NOTE_BYTES) return undefined;
  try {
    const { v, offer, writer } = JSON.parse(text);
    const owner = parseOwner(writer);
    return v === VERSION && owner !== null ? { offer: fileOffer.decode(offer, 'offer'), writer: owner } : undefined;
  } catch (error) {
    if (error instanceof ProtocolError || error instanceof SyntaxError || error instanceof TypeError) return undefined;
    throw error;
  }
}
