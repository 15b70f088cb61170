// The messages between a guest's agent and its host, over one byte stream. Runs on both sides.

import { Buffer } from 'node:buffer';

/** Host to guest: start, input, kill. Guest to host: the others. */
export const frameTypes = { ready: 1, start: 2, input: 3, kill: 4, stdout: 5, stderr: 6, exit: 7 } as const;

export type FrameType = keyof typeof frameTypes;

export interface Frame {
  readonly type: FrameType;
  /** The command it is about; 0 where it is about none. */
  readonly id: number;
  readonly payload: Buffer;
}

/** What `ready` carries, as JSON. */
export interface ReadyMessage {
  readonly version: number;
  readonly kernel: string;
  /** What went wrong while the guest was set up; it may do without. */
  readonly problems: string;
}

/** What `start` carries, as JSON. */
export interface StartMessage {
  readonly words: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  /** The first one that exists in the guest is taken. */
  readonly cwds: readonly string[];
  /**
   * False: it reads nothing, from /dev/null. Otherwise `input` frames follow, an empty one last.
   */
  readonly hasInput: boolean;
}

/** What `exit` carries, as JSON. */
export interface ExitMessage {
  /** Null when a signal ended it, or when it never started. */
  readonly code: number | null;
  readonly signal: string | null;
  /** Why it never started. */
  readonly error: string | null;
}

export const protocolVersion = 1;
export const maxPayloadBytes = 1024 * 1024;

/** Length of the payload (4 bytes, little-endian as the rest), type (1), id (4). */
const headerBytes = 9;
const typeNames = new Map<number, FrameType>(
  Object.entries(frameTypes).map(([name, number]) => [number, name as FrameType]),
);

export function encodeFrame(type: FrameType, id: number, payload: Uint8Array | string = ''): Buffer {
  const body = typeof payload === 'string' ? Buffer.from(payload) : payload;
  if (body.length > maxPayloadBytes) {
    throw new RangeError(`frame ${type} of ${body.length} bytes; the largest has ${maxPayloadBytes}`);
  }
  const frame = Buffer.allocUnsafe(headerBytes + body.length);
  frame.writeUInt32LE(body.length, 0);
  frame.writeUInt8(frameTypes[type], 4);
  frame.writeUInt32LE(id, 5);
  frame.set(body, headerBytes);
  return frame;
}

/**
 * Cuts a stream into frames, however it arrives. Throws on what no agent would send; the stream is
 * of no use then.
 */
export class FrameDecoder {
  #pending: Buffer[] = [];
  #pendingBytes = 0;
  /** How much is needed before there is anything to do. */
  #wanted = headerBytes;

  push(chunk: Uint8Array): readonly Frame[] {
    this.#pending.push(Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength));
    this.#pendingBytes += chunk.byteLength;
    if (this.#pendingBytes < this.#wanted) return [];
    let bytes = Buffer.concat(this.#pending);
    const frames: Frame[] = [];
    for (;;) {
      const frame = parse(bytes);
      if (typeof frame === 'number') {
        this.#wanted = frame;
        break;
      }
      frames.push(frame);
      bytes = bytes.subarray(headerBytes + frame.payload.length);
    }
    this.#pending = [bytes];
    this.#pendingBytes = bytes.length;
    return frames;
  }
}

/** A frame, or how many bytes it takes to tell. */
function parse(bytes: Buffer): Frame | number {
  if (bytes.length < headerBytes) return headerBytes;
  const length = bytes.readUInt32LE(0);
  if (length > maxPayloadBytes) throw new RangeError(`a frame claims to have ${length} bytes`);
  const type = typeNames.get(bytes.readUInt8(4));
  if (type === undefined) throw new RangeError(`there is no frame type ${bytes.readUInt8(4)}`);
  if (bytes.length < headerBytes + length) return headerBytes + length;
  return { type, id: bytes.readUInt32LE(5), payload: bytes.subarray(headerBytes, headerBytes + length) };
}
