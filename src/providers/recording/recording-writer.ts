// Where a recording goes, line by line: numbers for objects, times, and a bound on how long it
// gets.

import { SystemError } from '../../errors.ts';
import type { RecordedCall, RecordingHeader } from './recording-format.ts';

/** Takes a line of text with its newline. */
export type RecordingSink = (line: string) => void;

export interface RecordOptions {
  /** Bytes of one range of memory that are recorded; of longer ranges, their hash. */
  readonly maxDataBytes?: number;
  /**
   * The recording ends, with a line that says so, before it is longer than this. The program is not
   * disturbed.
   */
  readonly maxBytes?: number;
}

const DEFAULT_MAX_DATA_BYTES = 65_536;
const DEFAULT_MAX_BYTES = 1024 ** 3;
const MAX_MESSAGE_LENGTH = 1000;

/** A call without the fields that every call has. */
type CallLine = RecordedCall extends infer Call ? (Call extends unknown ? Omit<Call, 'us'> : never) : never;

export class RecordingWriter {
  readonly maxDataBytes: number;
  readonly #sink: RecordingSink;
  readonly #maxBytes: number;
  readonly #startMs = performance.now();
  #lastId = 0;
  #writtenBytes = 0;
  #isOver = false;

  constructor(provider: string, sink: RecordingSink, options: RecordOptions = {}) {
    const { maxDataBytes = DEFAULT_MAX_DATA_BYTES, maxBytes = DEFAULT_MAX_BYTES } = options;
    this.maxDataBytes = maxDataBytes;
    this.#maxBytes = maxBytes;
    this.#sink = sink;
    const startedAt = new Date().toISOString();
    const header: RecordingHeader = { millrace: 'recording', version: 1, provider, startedAt };
    this.#write(JSON.stringify(header));
  }

  /** Whether nothing is written any more, so that bytes need not be fetched for it. */
  get isOver(): boolean {
    return this.#isOver;
  }

  newId(): number {
    this.#lastId++;
    return this.#lastId;
  }

  write(line: CallLine): void {
    if (this.#isOver) return;
    const { call, ...rest } = line;
    this.#write(JSON.stringify({ call, us: Math.round((performance.now() - this.#startMs) * 1000), ...rest }));
  }

  /**
   * Carries out a call and records how it ended: `results` makes the rest of the line from what it
   * gave.
   */
  record<T>(line: CallLine, carryOut: () => T, results: (value: T) => object = () => ({})): T {
    let value: T;
    try {
      value = carryOut();
    } catch (error) {
      this.write({ ...line, error: failureOf(error) });
      throw error;
    }
    this.write({ ...line, ...results(value) });
    return value;
  }

  #write(text: string): void {
    const line = `${text}\n`;
    const sizeBytes = Buffer.byteLength(line);
    if (this.#writtenBytes + sizeBytes > this.#maxBytes) {
      this.#isOver = true;
      this.#sink(`${JSON.stringify({ call: 'truncated', us: 0, afterBytes: this.#writtenBytes })}\n`);
      return;
    }
    this.#writtenBytes += sizeBytes;
    this.#sink(line);
  }
}

export function failureOf(error: unknown): { code: string; message: string } {
  const message = (error instanceof Error ? error.message : String(error)).slice(0, MAX_MESSAGE_LENGTH);
  const hasCode = error instanceof Error && 'code' in error && typeof error.code === 'string';
  const code = hasCode ? String(error.code) : error instanceof SystemError ? error.code : 'UNKNOWN';
  return { code: code.slice(0, 64), message };
}
