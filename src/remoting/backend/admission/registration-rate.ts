// How often one process may register with a backend: one that comes too often, or after a protocol
// error, waits for its turn.
//
// Admitting a guest and freeing what it had is work of the main thread and of a guest's thread that
// counts in no quota. So each process has an account of registrations: full at first, filled up
// again as time goes by, charged for every registration, and charged much more for a guest that was
// dropped. A process whose account is empty waits until it has been filled.

/**
 * The rate of one process, in the long run. A program that opens a connection for each device stays
 * far below.
 */
export const DEFAULT_REGISTRATIONS_PER_SECOND = 64;

/** A full account allows the registrations of so many seconds at once. */
const FULL_SECONDS = 4;
/** A guest that was dropped is charged as so many registrations. */
const PROTOCOL_ERROR_CHARGE = 32;
/** A process whose turn is further away is refused. Less than the frontend waits for an answer. */
const MAX_DELAY_SECONDS = 2;
/** When there are so many accounts, the full ones are removed: a new account is full as well. */
const MANY_ACCOUNTS = 256;

interface Account {
  /** Registrations; below zero for a process that has to wait. */
  balance: number;
  atMs: number;
}

export class RegistrationRate {
  readonly #perSecond: number;
  readonly #nowMs: () => number;
  readonly #accounts = new Map<number, Account>();

  /** `nowMs` is a clock that does not jump. */
  constructor(perSecond: number, nowMs: () => number = () => performance.now()) {
    this.#perSecond = perSecond;
    this.#nowMs = nowMs;
  }

  /** How many processes have an account. */
  get processes(): number {
    return this.#accounts.size;
  }

  /**
   * Charges a process for a registration, and says in how many milliseconds it is its turn.
   * Undefined, without a charge, when that is too far away.
   */
  charge(pid: number): number | undefined {
    const account = this.#account(pid);
    if (account.balance - 1 < -MAX_DELAY_SECONDS * this.#perSecond) return undefined;
    account.balance--;
    return account.balance >= 0 ? 0 : (-account.balance * 1000) / this.#perSecond;
  }

  /**
   * A guest of this process was dropped after a protocol error. The charge leaves the process a
   * turn that is near enough to wait for.
   */
  chargeProtocolError(pid: number): void {
    const account = this.#account(pid);
    const most = 1 - MAX_DELAY_SECONDS * this.#perSecond;
    account.balance = Math.max(account.balance - PROTOCOL_ERROR_CHARGE, Math.min(account.balance, most));
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
