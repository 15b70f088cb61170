// Frames on the virtio-serial port between a guest and the backend, version 1: eight bytes each, in
// both directions.
//
//   guest: MRGH, nonce    a program has opened the port and asks to be served; repeated until it is answered
//   host:  MRGW, nonce    it is served; the call area is ready, at the start of the memory that both share
//   both:  MRGB, 0        the doorbell; any bytes at all ring it
//   both:  MRGE, nonce    guest: the program closes the port. host: the program with that nonce is not served any more
//
// A hello with another nonce also ends the program before it: QEMU tells that a port was closed at
// most once a second, and not at all when it was opened again meanwhile. The nonce is the guest's,
// so that no program takes an answer to the one before it for its own. Frames are searched for at
// every byte: a port that was closed in the middle of a frame does not spoil the next one.

const frameKinds = { hello: 'MRGH', welcome: 'MRGW', doorbell: 'MRGB', end: 'MRGE' } as const;

export type FrameKind = keyof typeof frameKinds;

export const FRAME_BYTES = 8;

export function encodeFrame(kind: FrameKind, nonce: number): Uint8Array {
  const bytes = Buffer.alloc(FRAME_BYTES);
  bytes.write(frameKinds[kind], 0, 'latin1');
  bytes.writeUInt32LE(nonce, 4);
  return bytes;
}

/** Searches a stream of bytes for one kind of frame. Keeps at most seven bytes. */
export class FrameFinder {
  readonly #word: string;
  #rest = Buffer.alloc(0);

  constructor(kind: FrameKind) {
    this.#word = frameKinds[kind];
  }

  /** The nonces of the frames that these bytes complete, in order. */
  push(bytes: Uint8Array): number[] {
    const all = Buffer.concat([this.#rest, bytes]);
    const nonces: number[] = [];
    let from = 0;
    for (;;) {
      const at = all.indexOf(this.#word, from, 'latin1');
      if (at < 0 || at + FRAME_BYTES > all.length) break;
      nonces.push(all.readUInt32LE(at + 4));
      from = at + FRAME_BYTES;
    }
    this.#rest = Buffer.from(all.subarray(Math.max(from, all.length - (FRAME_BYTES - 1))));
    return nonces;
  }
}
