// Finds out where packets get to, on behalf of the programs of this host: a passage is admitted to
// be carried only while a SYN from the same network namespace and address is heard at a listener of
// the peer, and answered. Asked when the peer announces a listener, at the first connect that was
// left to plain TCP, and again for as long as it holds or is wanted.

import { SystemError } from '../../errors.ts';
import { type Fd, monotonicNs } from '../../native/index.ts';
import { type Admissions, formatIpEndpoint, type IpEndpoint, type Knock, type Passage } from '../../steering/index.ts';
import type { GateMessage, KnockMessage } from '../control/index.ts';
import { sealOf } from './seal.ts';

/** An admission counts for so long after its SYN was sent. */
const ADMITTED_MS = 4800;
/** How often a SYN is sent for an admission that holds: while it is used, and later. */
const AGAIN_MS = 1300;
const BUSY_MS = 5000;
const AGAIN_IDLE_MS = 3800;
/**
 * What is due within this time is asked along with what is due: many in few lines, and all that are
 * idle at once.
 */
const SOON_MS = 2200;
/** And after one that was not heard or not answered: the first time, and at most. */
const RETRY_MS = 300;
const MAX_RETRY_MS = 3000;
const ANSWER_MS = 1000;
const POLL_MS = 10;
const TICK_MS = 500;
const SWEEP_MS = 1000;
/** How long a passage counts as used after a connect, or after it was announced. */
const USED_MS = 60_000;
const ANNOUNCED_MS = 10_000;
/** More than these are not asked about; those used last are. */
const MAX_USED = 256;
const MAX_PASSAGES = 4096;
const MAX_UNDER_WAY = 64;
const MAX_REASONS = 256;
/** A passage that failed so often is forgotten, unless a peer announced its destination. */
const MAX_FAILURES = 3;

interface KnockerOptions {
  readonly admissions: Pick<Admissions, 'admit' | 'knock' | 'withdraw'>;
  /** This host's own network namespace. */
  readonly netns: number;
  /** What stands for another one; undefined when it is not served. */
  readonly namespaceOf: (netns: number) => Fd | undefined;
  /** The peer whose host a destination is at. */
  readonly peerOf: (to: IpEndpoint) => string | undefined;
  /** Passages that nobody uses are asked about as long as they are no more than these. */
  readonly idle: number;
  readonly send: (peer: string, message: KnockMessage) => boolean;
  /** The peer broke the protocol. */
  readonly refuse: (peer: string, reason: string) => void;
  /**
   * Packets get to that peer there, which need not have announced it; or, without a peer, not any
   * more.
   */
  readonly onReached: (to: IpEndpoint, peer: string | undefined) => void;
}

/** A SYN under way. */
interface Attempt {
  readonly knock: Knock;
  readonly peer: string;
  readonly sentNs: number;
  readonly number: number;
  /** Empty until the peer has heard it. */
  seal: string;
  isTold: boolean;
}

interface Entry {
  readonly key: string;
  readonly passage: Passage;
  /** Where to, as text. */
  readonly there: string;
  /** A peer announced the destination, and this is the passage of this host's own programs. */
  isAnnounced: boolean;
  attempt: Attempt | null;
  /** By the monotonic clock, in ns: of the last SYN that got there. */
  provenNs: number;
  /** The address that it had. */
  source: string;
  nextNs: number;
  /** When it was last announced, wanted or used. */
  usedNs: number;
  failures: number;
  /** Resolved by the first attempt that succeeds, or by the last of a few that fail. */
  readonly first: PromiseWithResolvers<void>;
}

export class Knocker implements Disposable {
  readonly #options: KnockerOptions;
  readonly #entries = new Map<string, Entry>();
  /** The same by where to. */
  readonly #byDestination = new Map<string, Set<Entry>>();
  readonly #underWay = new Map<number, Entry>();
  /** Why it failed the last time, by destination, the oldest first. */
  readonly #reasons = new Map<string, string>();
  readonly #ticks: NodeJS.Timeout;
  #poll: NodeJS.Timeout | undefined;
  #nextNumber = 1;
  #nextSweepNs = 0;

  constructor(options: KnockerOptions) {
    this.#options = options;
    this.#ticks = setInterval(() => this.#tick(), TICK_MS);
  }

  /** A peer listens there. */
  announced(to: IpEndpoint): void {
    const entry = this.#entry({ netns: this.#options.netns, from: '', to });
    if (entry === undefined) return;
    if (!entry.isAnnounced && entry.provenNs > 0) this.#unreach(entry);
    entry.isAnnounced = true;
    this.#beginIfDue(entry);
  }

  /**
   * Resolves when it is known whether packets of this host get there; undefined when it is, or
   * nobody asks.
   */
  asked(to: IpEndpoint): Promise<void> | undefined {
    const entry = this.#entries.get(keyOf({ netns: this.#options.netns, from: '', to }));
    return entry === undefined || entry.provenNs > 0 ? undefined : entry.first.promise;
  }

  /** No peer does any more, so that it is not carried there from anywhere. */
  withdrawn(to: IpEndpoint): void {
    for (const entry of this.#byDestination.get(formatIpEndpoint(to)) ?? []) this.#forget(entry);
  }

  /** A connect there was left to plain TCP: the next one need not be. */
  wanted(passage: Passage): void {
    const { netns, namespaceOf, peerOf } = this.#options;
    if (peerOf(passage.to) === undefined) return;
    if (passage.netns !== netns && namespaceOf(passage.netns) === undefined) return;
    const entry = this.#entry(passage);
    if (entry === undefined) return;
    entry.usedNs = monotonicNs();
    this.#beginIfDue(entry);
  }

  /** Why packets did not get there the last time; empty when they did, or when nobody asked. */
  whyNot(to: IpEndpoint): string {
    return this.#reasons.get(formatIpEndpoint(to)) ?? '';
  }

  hear(peer: string, message: GateMessage): void {
    const entry = this.#underWay.get(message.number);
    const attempt = entry?.attempt;
    // One that came too late is no mistake of the peer.
    if (entry === undefined || attempt === undefined || attempt === null || attempt.peer !== peer) return;
    if (message.kind === 'closed') {
      this.#fail(entry, `peer ${peer}: ${message.reason}`);
    } else if (message.kind === 'heard' && attempt.seal !== '') {
      // A second seal could be made of the sequence number that it was told for the first.
      this.#fail(entry, `peer ${peer} says twice that it has heard it`);
      this.#options.refuse(peer, 'two seals of one SYN');
    } else if (message.kind === 'heard') {
      attempt.seal = message.seal;
      this.#askOn(entry, attempt);
    } else if (!attempt.isTold || sealOf(attempt.knock.sequence, message.key) !== attempt.seal) {
      this.#fail(entry, `peer ${peer} has not heard it`);
      this.#options.refuse(peer, 'a SYN that it says to have heard, and has not');
    } else {
      this.#succeed(entry, attempt);
    }
  }

  /** The peer is not there any more: what is under way does not wait for it. */
  peerDown(peer: string): void {
    for (const entry of this.#underWay.values()) {
      if (entry.attempt?.peer === peer) this.#fail(entry, `peer ${peer} is not connected`);
    }
  }

  [Symbol.dispose](): void {
    clearInterval(this.#ticks);
    clearInterval(this.#poll);
    for (const entry of this.#entries.values()) this.#end(entry);
    this.#entries.clear();
  }

  #entry(passage: Passage): Entry | undefined {
    const key = keyOf(passage);
    const known = this.#entries.get(key);
    if (known !== undefined || this.#entries.size >= MAX_PASSAGES) return known;
    const there = formatIpEndpoint(passage.to);
    const entry: Entry = {
      key,
      passage,
      there,
      isAnnounced: false,
      attempt: null,
      provenNs: 0,
      source: '',
      nextNs: 0,
      usedNs: monotonicNs() - (USED_MS - ANNOUNCED_MS) * 1e6,
      failures: 0,
      first: Promise.withResolvers<void>(),
    };
    this.#entries.set(key, entry);
    const others = this.#byDestination.get(there) ?? new Set();
    this.#byDestination.set(there, others.add(entry));
    return entry;
  }

  #tick(): void {
    const nowNs = monotonicNs();
    for (const entry of this.#entries.values()) {
      if (entry.attempt !== null && nowNs - entry.attempt.sentNs > ANSWER_MS * 1e6) {
        this.#fail(entry, entry.attempt.seal === '' ? 'nobody heard a SYN there' : 'its SYN was not answered');
      }
      if (entry.provenNs > 0 && nowNs - entry.provenNs > ADMITTED_MS * 1e6) this.#lapse(entry);
    }
    this.#beginDue(nowNs);
    if (this.#entries.size <= this.#options.idle || nowNs < this.#nextSweepNs) return;
    this.#nextSweepNs = nowNs + SWEEP_MS * 1e6;
    this.#forgetIdle(nowNs);
  }

  /** Whatever else is due has its tick. */
  #beginIfDue(entry: Entry): void {
    if (entry.attempt === null && entry.nextNs <= monotonicNs() && this.#underWay.size < MAX_UNDER_WAY) {
      this.#beginLast(entry);
    }
  }

  /** The others come before it next time. */
  #beginLast(entry: Entry): void {
    this.#entries.delete(entry.key);
    this.#entries.set(entry.key, entry);
    this.#begin(entry);
  }

  #beginDue(nowNs: number): void {
    let isAnyDue = false;
    for (const { attempt, nextNs } of this.#entries.values()) isAnyDue ||= attempt === null && nextNs <= nowNs;
    if (!isAnyDue) return;
    const isSoon = ({ attempt, nextNs, provenNs }: Entry): boolean => {
      const isFresh = nowNs - provenNs < AGAIN_MS * 1e6;
      return attempt === null && nextNs <= (provenNs > 0 && !isFresh ? nowNs + SOON_MS * 1e6 : nowNs);
    };
    const due = Array.from(this.#entries.values()).filter(isSoon);
    for (const entry of due.slice(0, MAX_UNDER_WAY - this.#underWay.size)) this.#beginLast(entry);
  }

  #begin(entry: Entry): void {
    const { admissions, netns, namespaceOf, peerOf, send } = this.#options;
    const { passage } = entry;
    const peer = peerOf(passage.to);
    const namespace = passage.netns === netns ? null : namespaceOf(passage.netns);
    if (peer === undefined || namespace === undefined) {
      this.#forget(entry);
      return;
    }
    const sentNs = monotonicNs();
    try {
      const knock = admissions.knock(passage, namespace);
      const number = this.#nextNumber++;
      entry.attempt = { knock, peer, sentNs, number, seal: '', isTold: false };
      this.#underWay.set(number, entry);
      const isSent = send(peer, { kind: 'knock', number, tag: knock.tag, from: knock.source, to: passage.to });
      if (!isSent) this.#fail(entry, `peer ${peer} is not connected`);
    } catch (error) {
      if (!(error instanceof SystemError)) throw error;
      this.#fail(entry, `a SYN there: ${error.code}`);
    }
  }

  /** The peer has heard it: once it is answered as well, the peer is told the sequence number. */
  #askOn(entry: Entry, attempt: Attempt): void {
    let answer: number | undefined;
    try {
      answer = attempt.knock.answer;
    } catch (error) {
      if (!(error instanceof SystemError)) throw error;
      this.#fail(entry, `a SYN there: ${error.code}`);
      return;
    }
    if (answer === undefined) {
      this.#poll ??= setInterval(() => this.#pollAll(), POLL_MS);
      return;
    }
    attempt.isTold = true;
    const { number, knock } = attempt;
    this.#options.send(attempt.peer, { kind: 'sequence', number, sequence: knock.sequence, answer });
  }

  #pollAll(): void {
    clearInterval(this.#poll);
    this.#poll = undefined;
    for (const entry of this.#underWay.values()) {
      const { attempt } = entry;
      if (attempt !== null && attempt.seal !== '' && !attempt.isTold) this.#askOn(entry, attempt);
    }
  }

  #succeed(entry: Entry, attempt: Attempt): void {
    const { admissions, onReached } = this.#options;
    const { passage } = entry;
    const deadlineNs = attempt.sentNs + ADMITTED_MS * 1e6;
    this.#end(entry);
    if (!entry.isAnnounced && entry.provenNs === 0) onReached(passage.to, attempt.peer);
    entry.provenNs = attempt.sentNs;
    const isMoved = entry.source !== '' && entry.source !== attempt.knock.source;
    if (isMoved) admissions.withdraw(passage, entry.source);
    entry.source = attempt.knock.source;
    entry.failures = 0;
    this.#reasons.delete(entry.there);
    entry.usedNs = Math.max(entry.usedNs, admissions.admit(passage, entry.source, deadlineNs));
    entry.nextNs = attempt.sentNs + (attempt.sentNs - entry.usedNs < BUSY_MS * 1e6 ? AGAIN_MS : AGAIN_IDLE_MS) * 1e6;
    entry.first.resolve();
  }

  #fail(entry: Entry, reason: string): void {
    this.#end(entry);
    entry.failures++;
    entry.nextNs = monotonicNs() + Math.min(MAX_RETRY_MS, RETRY_MS * 2 ** (entry.failures - 1)) * 1e6;
    this.#remember(entry.passage.to, reason);
    if (entry.failures < MAX_FAILURES) return;
    entry.first.resolve();
    if (!entry.isAnnounced && entry.provenNs === 0) this.#forget(entry);
  }

  #remember(to: IpEndpoint, reason: string): void {
    const key = formatIpEndpoint(to);
    this.#reasons.delete(key);
    this.#reasons.set(key, reason);
    const [oldest] = this.#reasons.keys();
    if (this.#reasons.size > MAX_REASONS && oldest !== undefined) this.#reasons.delete(oldest);
  }

  #end(entry: Entry): void {
    const { attempt } = entry;
    entry.attempt = null;
    if (attempt === null) return;
    this.#underWay.delete(attempt.number);
    attempt.knock.close();
    // Others may have waited for it.
    if (this.#underWay.size === MAX_UNDER_WAY - 1) setImmediate(() => this.#beginDue(monotonicNs()));
  }

  /** The kernel has seen the deadline pass. */
  #lapse(entry: Entry): void {
    if (!entry.isAnnounced) this.#unreach(entry);
    entry.provenNs = 0;
    // What was never announced is asked about again when somebody wants it.
    if (!entry.isAnnounced) this.#forget(entry);
  }

  #forget(entry: Entry): void {
    this.#end(entry);
    this.#entries.delete(entry.key);
    const others = this.#byDestination.get(entry.there);
    others?.delete(entry);
    if (others?.size === 0) this.#byDestination.delete(entry.there);
    if (entry.provenNs > 0) {
      this.#options.admissions.withdraw(entry.passage, entry.source);
      if (!entry.isAnnounced) this.#unreach(entry);
    }
    entry.first.resolve();
  }

  /** Unless another network namespace or address of this host gets to the same destination. */
  #unreach(entry: Entry): void {
    const others = this.#byDestination.get(entry.there) ?? [];
    const isReached = Array.from(others).some((one) => one !== entry && one.provenNs > 0 && !one.isAnnounced);
    if (!isReached) this.#options.onReached(entry.passage.to, undefined);
  }

  /** Keeps those used last. */
  #forgetIdle(nowNs: number): void {
    const { idle } = this.#options;
    const byUse = Array.from(this.#entries.values()).toSorted((left, right) => right.usedNs - left.usedNs);
    const recent = byUse.findLastIndex(({ usedNs }) => nowNs - usedNs < USED_MS * 1e6) + 1;
    const kept = Math.min(MAX_USED, Math.max(idle, recent));
    for (const entry of byUse.slice(kept)) if (entry.attempt === null) this.#forget(entry);
  }
}

function keyOf({ netns, from, to }: Passage): string {
  return `${netns} ${from} ${formatIpEndpoint(to)}`;
}
