// The table of streams by stream id: which ids are in use, and which may be used again without
// being taken for an earlier stream.
//
//   stream id | generation, 16 bits | index, 15 bits | 1 when the accepting side opened it |

export const MAX_STREAMS = 32_768;

export class StreamTable<Stream extends { readonly id: number }> {
  readonly #openerBit: number;
  readonly #ours: (Stream | undefined)[] = [];
  readonly #theirs: (Stream | undefined)[] = [];
  readonly #generations = new Uint16Array(MAX_STREAMS);
  /** Free indexes of ours, first in first out, so that each rests as long as possible. */
  readonly #free: number[] = [];
  #freeHead = 0;
  #count = 0;

  constructor(isDialer: boolean) {
    this.#openerBit = isDialer ? 0 : 1;
  }

  get count(): number {
    return this.#count;
  }

  /** An id for a stream that this side opens; -1 when there are too many. */
  allocate(): number {
    let index = this.#ours.length;
    if (this.#freeHead < this.#free.length) {
      index = this.#free[this.#freeHead++];
      if (this.#freeHead > 1024 && this.#freeHead * 2 > this.#free.length) {
        this.#free.splice(0, this.#freeHead);
        this.#freeHead = 0;
      }
    } else if (index === MAX_STREAMS) {
      return -1;
    } else {
      this.#ours.push(undefined);
    }
    return ((this.#generations[index] << 16) | (index << 1) | this.#openerBit) >>> 0;
  }

  /** Whether the peer may open a stream with this id now. */
  isFreeForPeer(id: number): boolean {
    return (id & 1) !== this.#openerBit && this.#theirs[(id >>> 1) & 0x7fff] === undefined;
  }

  set(stream: Stream): void {
    const { id } = stream;
    this.#list(id)[(id >>> 1) & 0x7fff] = stream;
    this.#count++;
  }

  get(id: number): Stream | undefined {
    const stream = this.#list(id)[(id >>> 1) & 0x7fff];
    return stream !== undefined && stream.id === id ? stream : undefined;
  }

  /** Neither side will write a record of the stream any more. */
  delete(stream: Stream): void {
    const { id } = stream;
    if (this.get(id) !== stream) return;
    const index = (id >>> 1) & 0x7fff;
    this.#list(id)[index] = undefined;
    this.#count--;
    if ((id & 1) !== this.#openerBit) return;
    this.#generations[index]++;
    this.#free.push(index);
  }

  *[Symbol.iterator](): Generator<Stream> {
    for (const list of [this.#ours, this.#theirs]) {
      for (const stream of list) if (stream !== undefined) yield stream;
    }
  }

  #list(id: number): (Stream | undefined)[] {
    return (id & 1) === this.#openerBit ? this.#ours : this.#theirs;
  }
}
