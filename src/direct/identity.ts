// Which connection a socket is an end of: reads the sequence numbers of handed-over sockets by the
// program in bpf/direct.bpf.c.

import { readFileSync } from 'node:fs';
import { MillraceError } from '../errors.ts';
import { type BpfIterator, type BpfMap, BpfObject, type Fd } from '../native/index.ts';
import type { Identity } from './pairing.ts';

// struct identity and enum identity_flags of bpf/direct.bpf.c.
const ROW_BYTES = 24;
const TCP = 1;
const UNSTEADY = 2;
const TAKEN = 4;
const FAST_OPEN = 8;

/** <net/tcp_states.h>: TCP_ESTABLISHED */
const ESTABLISHED = 1;

/** Bytes that arrive just then make a socket unsteady, for nanoseconds. */
const MAX_READS = 8;

/** Undefined: it is no TCP socket, or not one whose bytes can move elsewhere. */
export type IdentityAnswer = Identity | undefined;

export class IdentityReader implements Disposable {
  readonly #offered: BpfMap;
  readonly #iterator: BpfIterator;
  readonly #undo: DisposableStack;

  /** Throws where the kernel has no such iterators, or where this user may not load them. */
  static create(): IdentityReader {
    using undo = new DisposableStack();
    const object = undo.use(BpfObject.load(readObject(), { name: 'direct' }));
    const offered = undo.use(object.openMap('offered'));
    const iterator = undo.use(object.iterate('read_identities', 'offered'));
    return new IdentityReader(offered, iterator, undo.move());
  }

  private constructor(offered: BpfMap, iterator: BpfIterator, undo: DisposableStack) {
    this.#offered = offered;
    this.#iterator = iterator;
    this.#undo = undo;
  }

  /** The identities of these sockets, in their order. */
  read(sockets: readonly (Fd | undefined)[]): readonly IdentityAnswer[] {
    const answers: IdentityAnswer[] = sockets.map(() => undefined);
    const open = new Set<number>();
    // One socket may be handed over twice, and a socket has one place in the map.
    let later: number[] = [];
    for (const [index, socket] of sockets.entries()) {
      const added = this.#add(socket, index);
      if (added === 'added') open.add(index);
      else if (added === 'twice') later.push(index);
    }
    for (let reads = 0; open.size > 0 && reads < MAX_READS; reads++) {
      for (const { number, answer } of this.#rows()) {
        if (answer === 'unsteady' || !open.delete(number)) continue;
        answers[number] = answer;
        this.#remove(sockets[number]);
        later = later.filter((index) => {
          const added = this.#add(sockets[index], index);
          if (added === 'added') open.add(index);
          return added === 'twice';
        });
      }
    }
    for (const index of open) this.#remove(sockets[index]);
    return answers;
  }

  close(): void {
    this.#undo.dispose();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #add(socket: Fd | undefined, number: number): 'added' | 'twice' | 'refused' {
    if (socket === undefined) return 'refused';
    try {
      this.#offered.update(keyBytes(socket), numberBytes(number), 'onlyNew');
      return 'added';
    } catch (error) {
      // ENOTSOCK, ENOMEM and whatever else the kernel says of such a descriptor.
      return (error as NodeJS.ErrnoException).code === 'EEXIST' ? 'twice' : 'refused';
    }
  }

  #remove(socket: Fd | undefined): void {
    if (socket !== undefined) this.#offered.delete(keyBytes(socket));
  }

  #rows(): readonly { readonly number: number; readonly answer: IdentityAnswer | 'unsteady' }[] {
    const bytes = this.#iterator.read();
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    return Array.from({ length: Math.floor(bytes.byteLength / ROW_BYTES) }, (_, index) => {
      const word = (at: number): number => view.getUint32(index * ROW_BYTES + at, true);
      const [number, iss, irs, state, flags] = [word(0), word(8), word(12), word(16), word(20)];
      const isUsable = (flags & (TCP | TAKEN | FAST_OPEN)) === TCP && state === ESTABLISHED;
      if (!isUsable) return { number, answer: undefined };
      return { number, answer: (flags & UNSTEADY) === 0 ? { iss, irs } : 'unsteady' };
    });
  }
}

function keyBytes(socket: Fd): Uint8Array {
  return new Uint8Array(Int32Array.of(socket.fd).buffer);
}

function numberBytes(number: number): Uint8Array {
  return new Uint8Array(BigUint64Array.of(BigInt(number)).buffer);
}

function readObject(): Uint8Array {
  const file = new URL('../../build/bpf/direct.bpf.o', import.meta.url);
  try {
    return readFileSync(file);
  } catch (error) {
    throw new MillraceError('MILLRACE_ERR_NOT_RUNNING', 'build/bpf/direct.bpf.o is not there; run: npm run setup', {
      cause: error,
    });
  }
}
