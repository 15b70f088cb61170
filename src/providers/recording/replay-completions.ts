// Completions that come in a replay, held until the recording asks for them, and compared.

import { setImmediate as nextTurn, setTimeout as sleepMs } from 'node:timers/promises';
import { CompletionBatch } from '../../verbs/index.ts';
import type { RecordedCompletion } from './recording-format.ts';
import { recordedCompletions } from './recording-rows.ts';
import type { ReportBuilder } from './replay-report.ts';
import type { ReplayedQp, ReplayWorld } from './replay-world.ts';

/** Opcodes whose completions have a length. */
const counted: readonly string[] = ['receive', 'receiveWriteWithImm', 'read', 'fetchAdd', 'compareSwap'];
/** After so many turns of the event loop without a result, it is not worth a whole processor. */
const EAGER_TURNS = 2000;

export class ReplayCompletions implements Disposable {
  readonly #world: ReplayWorld;
  readonly #report: ReportBuilder;
  readonly #completionTimeoutMs: number;
  readonly #batch = new CompletionBatch(256);
  /** By QP and request, in the order in which they came. */
  readonly #come = new Map<string, RecordedCompletion[]>();
  #heldCount = 0;

  constructor(world: ReplayWorld, report: ReportBuilder, completionTimeoutMs: number) {
    this.#world = world;
    this.#report = report;
    this.#completionTimeoutMs = completionTimeoutMs;
  }

  /** Completions that the recording does not have. */
  get heldCount(): number {
    return this.#heldCount;
  }

  /** Waits until the same completion has come here, and returns how it differs. */
  async expect(line: number, recorded: RecordedCompletion): Promise<void> {
    const qp = this.#world.qpByRecordedNumber(recorded.qp);
    if (qp === undefined || qp.isOutside || qp.isSilent) {
      this.#report.skipped++;
      return;
    }
    const key = keyOf(qp, recorded);
    const about = `request ${recorded.wrId} on QP ${recorded.qp}`;
    if (!(await this.until(() => this.#come.has(key)))) {
      qp.isSilent = true;
      this.#report.differs(
        line,
        `${about}: no completion in ${this.#completionTimeoutMs} ms; recorded was ${shown(recorded)}`,
      );
      return;
    }
    const come = this.#take(key);
    this.#report.completions++;
    if (come !== undefined && !isSame(recorded, come)) {
      this.#report.differs(line, `${about}: ${shown(come)}; recorded was ${shown(recorded)}`);
    }
  }

  /** Drives the device until the condition holds, or the time is over. */
  async until(isSo: () => boolean): Promise<boolean> {
    const endMs = performance.now() + this.#completionTimeoutMs;
    for (let turns = 0; ; turns++) {
      this.drain();
      if (isSo()) return true;
      if (performance.now() > endMs) return false;
      await (turns < EAGER_TURNS ? nextTurn() : sleepMs(1));
    }
  }

  /** Takes what has come on all CQs. */
  drain(): void {
    for (const cq of this.#world.cqs) {
      for (let count = cq.poll(this.#batch); count > 0; count = cq.poll(this.#batch)) {
        for (const completion of recordedCompletions(this.#batch, count)) {
          const qp = this.#world.qpByNumber(cq.device, completion.qp);
          if (qp !== undefined) this.#hold(keyOf(qp, completion), completion);
        }
      }
    }
  }

  [Symbol.dispose](): void {
    this.#batch.close();
  }

  #hold(key: string, completion: RecordedCompletion): void {
    const held = this.#come.get(key) ?? [];
    held.push(completion);
    this.#come.set(key, held);
    this.#heldCount++;
  }

  #take(key: string): RecordedCompletion | undefined {
    const held = this.#come.get(key);
    const first = held?.shift();
    if (held?.length === 0) this.#come.delete(key);
    if (first !== undefined) this.#heldCount--;
    return first;
  }
}

/**
 * Which receive of a shared queue a message takes depends on which comes first: there, only the
 * order on a QP counts.
 */
function keyOf(qp: ReplayedQp, { wrId, status, opcode }: RecordedCompletion): string {
  const isShared = qp.hasSrq && status === 'SUCCESS' && opcode.startsWith('receive');
  return `${qp.id} ${isShared ? 'shared' : wrId}`;
}

/** Opcode, length and immediate mean nothing when it failed. */
function isSame(one: RecordedCompletion, other: RecordedCompletion): boolean {
  if (one.status !== other.status) return false;
  if (one.status !== 'SUCCESS') return true;
  const isLong = counted.includes(one.opcode);
  return one.opcode === other.opcode && one.imm === other.imm && (!isLong || one.byteLength === other.byteLength);
}

function shown({ status, opcode, byteLength, imm }: RecordedCompletion): string {
  if (status !== 'SUCCESS') return status;
  return `${opcode} of ${byteLength} bytes${imm === undefined ? '' : ` with immediate ${imm}`}`;
}
