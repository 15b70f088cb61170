// Reads a recording from a stream of bytes: the header, then calls, each with the number of its
// line.

import { MillraceError } from '../../errors.ts';
import { MAX_LINE_BYTES, parseCall, parseHeader, type RecordedCall, type RecordingHeader } from './recording-format.ts';

export interface NumberedCall {
  readonly line: number;
  readonly call: RecordedCall;
}

/** A recording is not trusted: the error names the line and what is wrong with it, in one line. */
export class RecordingError extends MillraceError {
  readonly line: number;

  constructor(line: number, reason: string) {
    super('MILLRACE_ERR_USAGE', `read a recording: line ${line}: ${reason}`);
    this.name = 'RecordingError';
    this.line = line;
  }
}

/** The first value is the header. */
export async function* readRecording(
  source: AsyncIterable<Uint8Array>,
): AsyncGenerator<RecordingHeader | NumberedCall, void, undefined> {
  let line = 0;
  for await (const text of linesOf(source)) {
    line++;
    if (text === undefined) throw new RecordingError(line, `it is longer than ${MAX_LINE_BYTES} bytes`);
    let value: RecordingHeader | NumberedCall;
    try {
      value = line === 1 ? parseHeader(text) : { line, call: parseCall(text) };
    } catch (error) {
      throw new RecordingError(line, error instanceof Error ? error.message : String(error));
    }
    yield value;
  }
  if (line === 0) throw new RecordingError(1, 'it is empty');
}

/** Undefined is a line that is too long, and the last value. */
async function* linesOf(source: AsyncIterable<Uint8Array>): AsyncGenerator<string | undefined, void, undefined> {
  let parts: Uint8Array[] = [];
  let sizeBytes = 0;
  for await (const chunk of source) {
    let start = 0;
    for (let end = chunk.indexOf(10); end >= 0; end = chunk.indexOf(10, start)) {
      yield Buffer.concat([...parts, chunk.subarray(start, end)]).toString();
      parts = [];
      sizeBytes = 0;
      start = end + 1;
    }
    if (start === chunk.length) continue;
    parts.push(chunk.subarray(start));
    sizeBytes += chunk.length - start;
    if (sizeBytes > MAX_LINE_BYTES) {
      yield undefined;
      return;
    }
  }
  // A recorder that was killed leaves half a line, which is reported as invalid.
  if (sizeBytes > 0) yield Buffer.concat(parts).toString();
}
