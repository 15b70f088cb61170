// The payloads of a direct stream's records: the key of its connection, and where its ring begins.

/** 32 hex digits. */
const KEY_WORDS = 4;
export const KEY_BYTES = KEY_WORDS * 4;
/** The high half of a position; the record's value is the low one. */
export const FROM_BYTES = 4;
const TWO_32 = 4_294_967_296;

export function writeKey(buffer: ArrayBufferLike, offset: number, key: string): void {
  const words = new Uint32Array(buffer, offset, KEY_WORDS);
  for (let word = 0; word < KEY_WORDS; word++) words[word] = Number.parseInt(key.slice(word * 8, word * 8 + 8), 16);
}

/** Any key that the peer cares to write. */
export function readKey(words: Uint32Array, offset: number): string {
  let key = '';
  for (const word of words.subarray(offset / 4, offset / 4 + KEY_WORDS)) key += word.toString(16).padStart(8, '0');
  return key;
}

export function writeFrom(buffer: ArrayBufferLike, offset: number, position: number): void {
  new Uint32Array(buffer, offset, 1)[0] = Math.floor(position / TWO_32);
}

/** Negative when it is no position. */
export function readFrom(words: Uint32Array, offset: number, low: number): number {
  const position = words[offset / 4] * TWO_32 + low;
  return Number.isSafeInteger(position + 1) ? position : -1;
}
