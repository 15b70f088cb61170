// How far a daemon is with a peer: follows from the control connection and the links alone.

import type { LinkState, PeerState } from '../status/index.ts';
import type { PeerConnection } from './control/index.ts';

/** The control connection. `waiting`: there was none so far, and no attempt failed. */
export type PeerControl =
  | { readonly kind: 'waiting' | 'down'; readonly reason: string }
  | { readonly kind: 'up'; readonly connection: PeerConnection };

export interface PeerLink {
  readonly state: LinkState;
  /** Why it is not up; '' when it is. */
  readonly reason: string;
}

/**
 * `waiting`, `down`: as the control connection. `linking`: it is up, and a link could not be made,
 * or broke for good. `recovering`: a link lost its transport. `ready`: all links are up, or are
 * made when something uses them, as far as is known. Only the listeners of a ready peer are
 * announced to the kernel.
 */
export type PeerPhase =
  | { readonly kind: 'waiting' | 'down' | 'linking' | 'recovering'; readonly reason: string }
  | { readonly kind: 'ready'; readonly reason: '' };

export function phaseOf(control: PeerControl, links: readonly PeerLink[]): PeerPhase {
  if (control.kind !== 'up') return control;
  const recovering = links.find(({ state }) => state === 'recovering');
  if (recovering !== undefined) return { kind: 'recovering', reason: recovering.reason };
  const missing = links.find(({ state }) => state === 'down');
  if (missing !== undefined || links.length === 0) return { kind: 'linking', reason: missing?.reason ?? '' };
  return { kind: 'ready', reason: '' };
}

/** As people are told. */
export const stateOfPhase: Readonly<Record<PeerPhase['kind'], PeerState>> = {
  waiting: 'connecting',
  down: 'down',
  linking: 'connecting',
  recovering: 'recovering',
  ready: 'up',
};
