// Answers the knocks of peers. A gate leads to the listener at which a peer's SYN arrived, for
// clients with the address that it came from: no stream of that peer comes in any other way.

import type { ToLane } from '../../lane/index.ts';
import { type Admissions, addressOf, formatIpEndpoint, type HeardSyn, type IpEndpoint } from '../../steering/index.ts';
import type { GateMessage, KnockMessage } from '../control/index.ts';
import { makeKey, sealOf } from './seal.ts';

/**
 * A gate stays open for so long after its last knock: longer than an admission at the other side,
 * and than a stream may wait for a broken link.
 */
const OPEN_MS = 15_000;
/** One whose peer is not accepted there any more: as long as the admission at the other side. */
const REFUSED_MS = 6000;
const CLOSE_EVERY_MS = 1000;
/** The SYN may come after the word of it. */
const HEAR_MS = 800;
const HEAR_EVERY_MS = 10;
/** For so long a peer may prove that a SYN is its own. */
const PROVE_MS = 3000;
const MAX_PENDING = 256;
/** Wrong sequence numbers of a peer in a minute. */
const MAX_MISTAKES = 32;
const MISTAKES_MS = 60_000;
const MAX_GATES = 16_384;

type Gate = Extract<ToLane, { kind: 'gates' }>['opened'][number];

interface GatesOptions {
  readonly admissions: Pick<Admissions, 'heard' | 'forget'>;
  /** Whether the lanes can open sockets in that network namespace. */
  readonly isServed: (netns: number) => boolean;
  /** Why the peer may not reach a server; empty when it may. */
  readonly whyNot: (peer: string, server: IpEndpoint, netns: number) => string;
  readonly tellLanes: (message: ToLane) => void;
  /** Resolves when all lanes have heard what they were told before. */
  readonly settled: () => Promise<void>;
  readonly send: (peer: string, message: GateMessage) => void;
  /** The peer broke the protocol. */
  readonly refuse: (peer: string, reason: string) => void;
}

/** A knock that was heard, whose sender has not proven yet that it is its own. */
interface Pending {
  readonly heardMs: number;
  readonly knock: Extract<KnockMessage, { kind: 'knock' }>;
  readonly syn: HeardSyn;
  readonly key: string;
}

type Told = Extract<KnockMessage, { kind: 'sequence' }>;

interface OpenGate extends Gate {
  lastMs: number;
}

export class Gates implements Disposable {
  readonly #options: GatesOptions;
  /** By peer, and then by the number of the knock. */
  readonly #pending = new Map<string, Map<number, Pending | 'listening'>>();
  /** By peer, and then by where from and where to. */
  readonly #open = new Map<string, Map<string, OpenGate>>();
  readonly #mistakes = new Map<string, number>();
  readonly #timers: readonly NodeJS.Timeout[];
  #isOver = false;

  constructor(options: GatesOptions) {
    this.#options = options;
    this.#timers = [
      setInterval(() => this.#closeOld(), CLOSE_EVERY_MS),
      setInterval(() => this.#forgetOld(), CLOSE_EVERY_MS),
      setInterval(() => this.#mistakes.clear(), MISTAKES_MS),
    ];
  }

  hear(peer: string, message: KnockMessage): void {
    if (message.kind === 'knock') this.#listen(peer, message);
    else void this.#compare(peer, message);
  }

  /** The peer hung up: knocks under way are over; its gates close by themselves. */
  peerDown(peer: string): void {
    this.#pending.delete(peer);
  }

  [Symbol.dispose](): void {
    this.#isOver = true;
    for (const timer of this.#timers) clearInterval(timer);
  }

  #listen(peer: string, knock: Pending['knock']): void {
    const pending = this.#pending.get(peer) ?? new Map<number, Pending | 'listening'>();
    this.#pending.set(peer, pending);
    if (pending.has(knock.number)) {
      this.#options.refuse(peer, 'two knocks of one number');
      return;
    }
    if (pending.size >= MAX_PENDING) {
      this.#options.send(peer, { kind: 'closed', number: knock.number, reason: 'too many knocks at once' });
      return;
    }
    pending.set(knock.number, 'listening');
    const endMs = performance.now() + HEAR_MS;
    const look = (): void => {
      if (this.#isOver || this.#pending.get(peer) !== pending) return;
      const syn = this.#options.admissions.heard(knock.tag);
      if (syn !== undefined) {
        const key = makeKey();
        pending.set(knock.number, { heardMs: performance.now(), knock, syn, key });
        this.#options.send(peer, { kind: 'heard', number: knock.number, seal: sealOf(syn.sequence, key) });
      } else if (performance.now() < endMs) {
        setTimeout(look, HEAR_EVERY_MS);
      } else {
        pending.delete(knock.number);
        this.#options.send(peer, { kind: 'closed', number: knock.number, reason: 'it has not heard a SYN there' });
      }
    };
    look();
  }

  /**
   * Who knows both sequence numbers has sent the SYN and got the answer, so that it is where the
   * SYN says that it came from.
   */
  async #compare(peer: string, { number, sequence, answer }: Told): Promise<void> {
    const { admissions, isServed, whyNot, send, settled, refuse } = this.#options;
    const pending = this.#pending.get(peer)?.get(number);
    this.#pending.get(peer)?.delete(number);
    const isKnown = pending !== undefined && pending !== 'listening';
    if (!isKnown || sequence !== pending.syn.sequence || answer !== pending.syn.answer) {
      // It came too late, or another SYN has taken its place; or the peer guesses.
      const count = (this.#mistakes.get(peer) ?? 0) + 1;
      this.#mistakes.set(peer, count);
      if (count > MAX_MISTAKES) refuse(peer, 'too many SYNs that were heard are not its own');
      else send(peer, { kind: 'closed', number, reason: 'it has heard another SYN' });
      return;
    }
    const { knock, syn, key } = pending;
    admissions.forget(syn);
    const { server, client, netns } = syn;
    const reason = isServed(netns) ? whyNot(peer, server, netns) : 'the server’s network namespace is not served';
    const isFull = (this.#open.get(peer)?.size ?? 0) >= MAX_GATES;
    if (reason !== '' || isFull) {
      send(peer, { kind: 'closed', number, reason: isFull ? 'too many gates' : reason });
      return;
    }
    const { host } = addressOf(client) as { readonly host: string };
    const gate = { from: knock.from, to: formatIpEndpoint(knock.to), at: server, netns, client: host };
    // Lanes first: the peer opens streams as soon as it is told.
    if (this.#openGate(peer, gate)) await settled();
    send(peer, { kind: 'gate', number, key });
  }

  /** True when lanes were told. */
  #openGate(peer: string, gate: Gate): boolean {
    const gates = this.#open.get(peer) ?? new Map<string, OpenGate>();
    this.#open.set(peer, gates);
    const key = `${gate.from} ${gate.to}`;
    const before = gates.get(key);
    const isSame =
      before !== undefined &&
      before.netns === gate.netns &&
      before.client === gate.client &&
      formatIpEndpoint(before.at) === formatIpEndpoint(gate.at);
    const lastMs = performance.now();
    if (isSame) {
      before.lastMs = lastMs;
      return false;
    }
    gates.set(key, { ...gate, lastMs });
    this.#options.tellLanes({ kind: 'gates', peer, opened: [gate], closed: [] });
    return true;
  }

  /** A peer whose SYN was not answered says nothing more of it. */
  #forgetOld(): void {
    for (const pending of this.#pending.values()) {
      for (const [number, one] of pending) {
        if (one !== 'listening' && performance.now() - one.heardMs > PROVE_MS) pending.delete(number);
      }
    }
  }

  #closeOld(): void {
    const { whyNot } = this.#options;
    for (const [peer, gates] of this.#open) {
      const isOld = ({ lastMs, at, netns }: OpenGate): boolean => {
        const silentMs = performance.now() - lastMs;
        return silentMs > OPEN_MS || (silentMs > REFUSED_MS && whyNot(peer, at, netns) !== '');
      };
      this.#close(
        peer,
        Array.from(gates).filter(([, gate]) => isOld(gate)),
      );
    }
  }

  #close(peer: string, old: readonly (readonly [string, OpenGate])[]): void {
    if (old.length === 0) return;
    const gates = this.#open.get(peer);
    for (const [key] of old) gates?.delete(key);
    if (gates?.size === 0) this.#open.delete(peer);
    this.#options.tellLanes({ kind: 'gates', peer, opened: [], closed: old.map(([, { from, to }]) => ({ from, to })) });
  }
}
