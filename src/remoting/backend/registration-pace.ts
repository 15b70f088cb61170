// How often one process may register with a backend: who comes too often, or has broken the rules, waits for its turn.
//
// Letting a guest in and clearing up after it is work of the monitor and of a thread, which is done in nobody's quota. So each
// process has an account of registrations: full at first, filled up again as time goes by, charged for every registration, and
// charged much more for a guest that had to be dropped. Whose account is empty waits until it has been filled.

/** Of one process, in the long run. No program that opens and closes a connection for each device comes near. */
export const DEFAULT_REGISTRATIONS_PER_SECOND = 64;

/** An account that is full allows the registrations of so long at once. */
const FULL_SECONDS = 4;
/** A guest that was dropped costs its process as much as so many registrations. */
const FINE = 32;
/** Whose turn is further away is refused. Less than the frontend waits for an answer. */
const PATIENCE_SECONDS = 2;
/** Accounts that are full say nothing; they are removed when there are so many. */
const MANY_ACCOUNTS = 256;

interface Account {
  /** Registrations; below zero for one who has to wait. */
  balance: number;
  atMs: number;
}

export class RegistrationPace {
  readonly #perSecond: number;
  readonly #nowMs: () => number;
  readonly #accounts = new Map<number, Account>();

  /** `nowMs` is a clock that does not jump. */
  constructor(perSecond: number, nowMs: () => number = () => performance.now()) {
    this.#perSecond = perSecond;
    this.#nowMs = nowMs;
  }

  /** How many have an account. */
  get processes(): number {
    return this.#accounts.size;
  }

  /** Charges a process for a registration. In how many milliseconds it may have it; undefined, and not charged: not soon. */
  charge(pid: number): number | undefined {
    const account = this.#account(pid);
    if (account.balance - 1 < -PATIENCE_SECONDS * this.#perSecond) return undefined;
    account.balance--;
    return account.balance >= 0 ? 0 : (-account.balance * 1000) / this.#perSecond;
  }

  /** A guest of this process has broken the rules. Never so much that the process could not wait for its next turn. */
  fine(pid: number): void {
    const account = this.#account(pid);
    const most = 1 - PATIENCE_SECONDS * this.#perSecond;
    account.balance = Math.max(account.balance - FINE, Math.min(account.balance, most));
  }

  #account(pid: number): Account {
    const nowMs = this.#nowMs();
    let account = this.#accounts.get(pid);
    if (account === undefined) {
      if (this.#accounts.size >= MANY_ACCOUNTS) this.#removeFull(nowMs);
      account = { balance: this.#full, atMs: nowMs };
      this.#accounts.set(pid, account);
    }
    this.#fill(account, nowMs);
    return account;
  }

  get #full(): number {
    return FULL_SECONDS * this.#perSecond;
  }

  #fill(account: Account, nowMs: number): void {
    const earned = ((nowMs - account.atMs) * this.#perSecond) / 1000;
    account.balance = Math.min(this.#full, account.balance + earned);
    account.atMs = nowMs;
  }

  #removeFull(nowMs: number): void {
    for (const [pid, account] of this.#accounts) {
      this.#fill(account, nowMs);
      if (account.balance >= this.#full) this.#accounts.delete(pid);
    }
  }
}
