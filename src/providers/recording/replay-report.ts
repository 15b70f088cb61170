// What a replay found out.

export interface Difference {
  /** Of the recording. */
  readonly line: number;
  readonly what: string;
}

export interface ReplayReport {
  readonly device: string;
  /** Calls that were made again. */
  readonly calls: number;
  /** Work requests that were posted again. */
  readonly requests: number;
  /** Completions that were compared. */
  readonly completions: number;
  /** The first of them; `differenceCount` is how many there were. */
  readonly differences: readonly Difference[];
  readonly differenceCount: number;
  /** QPs whose peer is not in the recording: nothing was posted to them. */
  readonly outside: readonly Difference[];
  /**
   * Calls that could not be made, because they are about such a QP, or about something that could
   * not be made.
   */
  readonly skipped: number;
  /** Ranges of memory whose bytes are not in the recording, only their hash: others were sent. */
  readonly unrecordedRanges: number;
  /** Completions that came and that the recorded program had not asked for. */
  readonly unasked: number;
  /** The recording had reached its bound. */
  readonly isTruncated: boolean;
}

const MAX_DIFFERENCES = 1000;

export class ReportBuilder {
  readonly differences: Difference[] = [];
  readonly outside: Difference[] = [];
  differenceCount = 0;
  calls = 0;
  requests = 0;
  completions = 0;
  skipped = 0;
  unrecordedRanges = 0;
  isTruncated = false;

  differs(line: number, what: string): void {
    this.differenceCount++;
    if (this.differences.length < MAX_DIFFERENCES) this.differences.push({ line, what });
  }

  isOutside(line: number, what: string): void {
    if (this.outside.length < MAX_DIFFERENCES) this.outside.push({ line, what });
  }

  finish(device: string, unasked: number): ReplayReport {
    const { differences, outside, differenceCount, calls, requests, completions, skipped } = this;
    const { unrecordedRanges, isTruncated } = this;
    const counts = { calls, requests, completions, differenceCount, skipped, unrecordedRanges, unasked };
    return { device, ...counts, differences, outside, isTruncated };
  }
}
