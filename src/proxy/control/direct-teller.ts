// What a peer is told of direct connections: many words in one line, and few lines a second,
// however many connections programs offer.

import { type DirectWord, MAX_AT_ONCE, type PeerMessage } from './control-protocol.ts';

/** Each kind has one line in this time at most; see MAX_LINES_PER_SECOND. */
const PACE_MS = 5;
/** Of each kind. The oldest are not told when there are more: those connections stay plain TCP. */
const MAX_UNTOLD = 4096;

type Kind = DirectWord['kind'];
type Later = (run: () => void, ms: number) => void;
type DirectMessage = Extract<PeerMessage, { readonly kind: Kind }>;

const kinds: readonly Kind[] = ['directGone', 'directFound', 'directWaits'];

export class DirectTeller {
  readonly #send: (message: DirectMessage) => void;
  readonly #later: Later;
  readonly #untold = new Map<Kind, DirectWord[]>(kinds.map((kind) => [kind, []]));
  #isPaced = false;

  /** `later` runs something after a time, or at the end of this turn. */
  constructor(send: (message: DirectMessage) => void, later: Later = afterMs) {
    this.#send = send;
    this.#later = later;
  }

  tell(word: DirectWord): void {
    const untold = this.#untold.get(word.kind) ?? [];
    if (untold.push(word) > MAX_UNTOLD) untold.shift();
    if (this.#isPaced) return;
    this.#isPaced = true;
    this.#later(() => this.#tellSome(), 0);
  }

  /** What was not told yet is not told any more. */
  close(): void {
    for (const untold of this.#untold.values()) untold.length = 0;
  }

  #tellSome(): void {
    const some = kinds.flatMap((kind) => {
      const words = this.#untold.get(kind)?.splice(0, MAX_AT_ONCE) ?? [];
      return words.length === 0 ? [] : [messageOf(kind, words)];
    });
    this.#isPaced = some.length > 0;
    if (this.#isPaced) this.#later(() => this.#tellSome(), PACE_MS);
    // Sending may fail, and then this is closed.
    for (const message of some) this.#send(message);
  }
}

function afterMs(run: () => void, ms: number): void {
  if (ms === 0) setImmediate(run);
  else setTimeout(run, ms).unref();
}

function messageOf(kind: Kind, words: readonly DirectWord[]): DirectMessage {
  if (kind !== 'directFound') return { kind, keys: words.map(({ key }) => key) };
  return { kind, list: words.filter((word) => word.kind === 'directFound') };
}

/** The words of a message, one by one. */
export function wordsOf(message: DirectMessage): readonly DirectWord[] {
  if (message.kind === 'directFound') return message.list.map((found) => ({ kind: message.kind, ...found }));
  return message.keys.map((key) => ({ kind: message.kind, key }));
}
