// Finds the other end of connections among the offers of peers. Of the two daemons the one that did
// not dial answers:
//
//   dialer    directWaits   an end with this key waits here
//   answerer  directFound   its lane expects that connection on that link, with a proof
//   dialer    directFound   its lane opens it, its program is promoted; with a proof of its own
//   answerer                its program is promoted
//
// Either proof is of no use to anybody else, so no daemon can get between two others. What the
// answerer tells of its own offers makes the dialer tell of those that match.

import type { Place } from './arenas.ts';
import { type Candidate, candidatesOf, isProof, proofOf } from './candidates.ts';
import type { IdentifiedConnection } from './connection.ts';
import type { DirectWord, Mesh } from './mesh.ts';
import type { Mirrors } from './mirrors.ts';
import { PeerWords } from './peer-words.ts';

/** Of offers that wait, a peer that comes up is told so many. */
const MAX_TOLD = 1024;

/** Who decides on connections. */
interface Ends {
  /** It does not wait any more. */
  stopWaiting(connection: IdentifiedConnection): void;
  /** It waits again. */
  waitAgain(connection: IdentifiedConnection): void;
  promote(connection: IdentifiedConnection, place: Place, token: bigint): void;
  decline(connection: IdentifiedConnection): void;
}

interface Waiting {
  readonly connection: IdentifiedConnection;
  readonly candidate: Candidate;
}

type Found = Extract<DirectWord, { readonly kind: 'directFound' }>;

export class RemotePairing {
  readonly #mesh: Mesh;
  readonly #mirrors: Mirrors;
  readonly #ends: Ends;
  readonly #ringBytes: number;
  /** Those that wait, the oldest first. */
  readonly #waiting = new Map<IdentifiedConnection, readonly Candidate[]>();
  readonly #byKey = new Map<string, Waiting>();
  /** Those that are up. */
  readonly #peers = new Map<string, PeerWords<Waiting>>();

  constructor(mesh: Mesh, mirrors: Mirrors, ends: Ends, ringBytes: number) {
    this.#mesh = mesh;
    this.#mirrors = mirrors;
    this.#ends = ends;
    this.#ringBytes = ringBytes;
  }

  /** `isNew`: no peer has been told of it. */
  add(connection: IdentifiedConnection, isNew: boolean): void {
    const candidates = candidatesOf(connection.identity, this.#ringBytes);
    this.#waiting.set(connection, candidates);
    for (const candidate of candidates) {
      if (!this.#byKey.has(candidate.key)) this.#byKey.set(candidate.key, { connection, candidate });
    }
    const told = new Set(isNew ? this.#mesh.peersFor(connection.ends.remoteHost) : []);
    for (const [peer, words] of this.#peers) {
      for (const { key } of candidates) {
        if (!words.has(key)) continue;
        if (words.isDialer) told.add(peer);
        else if (this.#answer(peer, words, key)) return;
      }
    }
    // It may have been declined.
    if (!this.#waiting.has(connection)) return;
    for (const peer of told) this.#tellOf(peer, candidates);
  }

  /** It has been paired on this host, or left. */
  remove(connection: IdentifiedConnection): void {
    for (const { key } of this.#waiting.get(connection) ?? []) {
      if (this.#byKey.get(key)?.connection === connection) this.#byKey.delete(key);
    }
    this.#waiting.delete(connection);
  }

  /** A connection that has a slot is left by its program, which may have ended. */
  leave({ mirror }: IdentifiedConnection, isEnded: boolean): void {
    if (mirror === undefined) return;
    const { place, key, peer, isPromoted } = mirror;
    this.#mirrors.leave(place, isEnded && isPromoted);
    const words = this.#peers.get(peer);
    if (words !== undefined && !isPromoted) this.#close(peer, words, key);
  }

  peerUp(peer: string, isDialer: boolean): void {
    this.#peers.set(peer, new PeerWords(isDialer));
    this.#tellAll(peer);
  }

  peerDown(peer: string): void {
    const words = this.#peers.get(peer);
    this.#peers.delete(peer);
    for (const answer of words?.answers.values() ?? []) this.#takeBack(answer);
  }

  linkUp(peer: string): void {
    const words = this.#peers.get(peer);
    if (words === undefined) return;
    this.#answerAll(peer, words);
    if (words.isOwed) this.#tellAll(peer);
    words.isOwed = false;
  }

  hear(peer: string, word: DirectWord): void {
    const words = this.#peers.get(peer);
    if (words === undefined) return;
    if (word.kind === 'directWaits') this.#hearWaits(peer, words, word.key);
    else if (words.isDialer && word.kind === 'directFound') this.#hearAnswer(peer, words, word);
    else if (!words.isDialer) this.#hearOutcome(peer, words, word);
  }

  #hearWaits(peer: string, words: PeerWords<Waiting>, key: string): void {
    const waiting = this.#byKey.get(key);
    words.remember(key);
    if (waiting === undefined) return;
    if (words.isDialer) this.#tellOf(peer, this.#waiting.get(waiting.connection) ?? []);
    else this.#answer(peer, words, key);
  }

  // The side that did not dial.

  /** False when no such offer waits, or none can be answered now: the key is remembered. */
  #answer(peer: string, words: PeerWords<Waiting>, key: string): boolean {
    const waiting = this.#byKey.get(key);
    if (waiting === undefined || !words.mayAnswer || words.answers.has(key)) return false;
    const link = this.#mesh.nextLink(peer);
    if (link === undefined) return false;
    if (!this.#take(waiting, { peer, link, isOpener: false })) return false;
    words.forget(key);
    words.answers.set(key, waiting);
    // The dialer's lane opens it at once, and then it must be expected.
    void this.#mesh.lanes.settled().then(() => {
      if (words.answers.get(key) !== waiting) return;
      const proof = proofOf(waiting.candidate, this.#mesh.name, peer);
      this.#mesh.tell(peer, { kind: 'directFound', key, link, proof });
    });
    return true;
  }

  /** All that could not be answered before. */
  #answerAll(peer: string, words: PeerWords<Waiting>): void {
    if (!words.isDialer) for (const key of words.keys) this.#answer(peer, words, key);
  }

  #hearOutcome(peer: string, words: PeerWords<Waiting>, word: DirectWord): void {
    const answer = words.answers.get(word.key);
    if (answer === undefined) return;
    const { candidate, connection } = answer;
    const isFound = word.kind === 'directFound' && isProof(word.proof, candidate, peer, this.#mesh.name);
    this.#close(peer, words, word.key);
    if (isFound) this.#promote(connection, candidate);
    else this.#takeBack(answer);
  }

  /** Nothing more is expected of it. */
  #close(peer: string, words: PeerWords<Waiting>, key: string): void {
    const wasFull = !words.mayAnswer;
    words.answers.delete(key);
    if (wasFull) this.#answerAll(peer, words);
  }

  #takeBack({ connection }: Waiting): void {
    if (connection.mirror !== undefined) this.#mirrors.leave(connection.mirror.place, false);
    connection.mirror = undefined;
    this.#ends.waitAgain(connection);
  }

  // The side that dialed.

  #hearAnswer(peer: string, words: PeerWords<Waiting>, { key, proof, link }: Found): void {
    const waiting = this.#byKey.get(key);
    const isKnown = waiting !== undefined && isProof(proof, waiting.candidate, peer, this.#mesh.name);
    const isLinkUp = this.#mesh.isLinkUp(peer, link);
    // Here the link is not up yet, or not up any more.
    if (isKnown && !isLinkUp) words.isOwed = true;
    if (!isKnown || !isLinkUp || !this.#take(waiting, { peer, link, isOpener: true })) {
      this.#mesh.tell(peer, { kind: 'directGone', key });
      return;
    }
    const { connection, candidate } = waiting;
    this.#promote(connection, candidate);
    this.#mesh.tell(peer, { kind: 'directFound', key, link, proof: proofOf(candidate, this.#mesh.name, peer) });
  }

  // Both.

  /** Where there is no slot for it, it is declined. */
  #take({ connection, candidate }: Waiting, spec: { peer: string; link: number; isOpener: boolean }): boolean {
    const { key } = candidate;
    const place = this.#mirrors.take(connection.program.id, { ...spec, key });
    if (place === undefined) {
      this.#ends.decline(connection);
      return false;
    }
    this.#ends.stopWaiting(connection);
    connection.hasConnected = candidate.hasConnected;
    connection.mirror = { place, key, peer: spec.peer, link: spec.link, isPromoted: false };
    return true;
  }

  #promote(connection: IdentifiedConnection, { token }: Candidate): void {
    if (connection.mirror === undefined) return;
    connection.mirror.isPromoted = true;
    this.#ends.promote(connection, connection.mirror.place, token);
  }

  #tellAll(peer: string): void {
    for (const [{ ends }, candidates] of [...this.#waiting].slice(-MAX_TOLD)) {
      if (this.#mesh.peersFor(ends.remoteHost).includes(peer)) this.#tellOf(peer, candidates);
    }
  }

  #tellOf(peer: string, candidates: readonly Candidate[]): void {
    if (!this.#peers.has(peer)) return;
    for (const { key } of candidates) this.#mesh.tell(peer, { kind: 'directWaits', key });
  }
}
