// When an acknowledgement may wait for a reply to go out with: a program that answers every message
// at once saves a system call at each end. Other programs are not delayed: it starts after a few
// such replies in a row, and ends with the first reply that does not come.

/** Replies in a row before the next acknowledgement waits. */
const HABIT = 4;
/** A reply that takes longer does not count: the acknowledgement should have gone out before. */
const PROMPT_NS = 100_000;

export class AckDelay {
  #replies = 0;
  #dueNs = 0;

  /** An acknowledgement is due. True when it should wait. */
  begin(nowNs: number): boolean {
    this.#dueNs = nowNs;
    return this.#replies >= HABIT;
  }

  /** Something was posted. */
  reply(nowNs: number): void {
    if (this.#dueNs === 0) return;
    this.#replies = nowNs - this.#dueNs < PROMPT_NS ? Math.min(HABIT, this.#replies + 1) : 0;
    this.#dueNs = 0;
  }

  /** The program polled again without posting a reply. */
  giveUp(): void {
    if (this.#dueNs !== 0) this.#replies = 0;
    this.#dueNs = 0;
  }
}
