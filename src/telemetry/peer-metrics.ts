// The metrics of peers and of the links to them.

import type { LinkStatus, PeerStatus } from '../status/index.ts';
import { counter, gauge, type Labels, type MetricSpec } from './metric-spec.ts';

const peerStates = ['up', 'connecting', 'recovering', 'down'] as const;
/**
 * A label takes one of a known set of values, so that nothing a peer says can make new time series.
 */
const wires: ReadonlySet<string> = new Set(['shm', 'roce', 'tcp', 'RoCEv2', 'InfiniBand']);
const US_PER_SECOND = 1e6;

export function peerMetrics(): readonly MetricSpec[] {
  const perPeer =
    (value: (peer: PeerStatus) => number): MetricSpec['read'] =>
    ({ peers }) =>
      peers.map((peer) => ({ labels: { peer: peer.name }, value: value(peer) }));
  return [
    gauge(
      'millrace_peer_up',
      ['peer'],
      '1 while connections to the peer are carried.',
      perPeer(({ state }) => Number(state === 'up')),
    ),
    gauge('millrace_peers', ['state'], 'Peers by state.', ({ peers }) =>
      peerStates.map((state) => ({ labels: { state }, value: peers.filter((peer) => peer.state === state).length })),
    ),
    gauge(
      'millrace_peer_state_since_seconds',
      ['peer'],
      'When the peer’s state changed, since the epoch.',
      perPeer(({ sinceMs }) => sinceMs / 1000),
    ),
    gauge(
      'millrace_peer_secure',
      ['peer'],
      '1 when the peer showed a certificate.',
      perPeer(({ isSecure }) => Number(isSecure)),
    ),
    gauge(
      'millrace_peer_listeners',
      ['peer'],
      'Listening sockets that the peer announced.',
      perPeer(({ listeners }) => listeners),
    ),
  ];
}

export function linkMetrics(): readonly MetricSpec[] {
  const labels = ['peer', 'lane', 'wire'] as const;
  const perLink =
    (value: (link: LinkStatus) => number): MetricSpec['read'] =>
    ({ peers }) =>
      peers.flatMap(({ name, links }) =>
        madeOf(links).map((link) => ({ labels: linkLabels(name, link), value: value(link) })),
      );
  return [
    gauge(
      'millrace_link_up',
      labels,
      '1 while the link is up.',
      perLink(({ state }) => Number(state === 'up')),
    ),
    gauge(
      'millrace_link_streams',
      labels,
      'Open connections on the link.',
      perLink(({ streams }) => streams),
    ),
    counter(
      'millrace_link_sent_bytes_total',
      labels,
      'Payload sent on the link.',
      perLink(({ bytesOut }) => bytesOut),
    ),
    counter(
      'millrace_link_received_bytes_total',
      labels,
      'Payload received on the link.',
      perLink(({ bytesIn }) => bytesIn),
    ),
    counter(
      'millrace_link_sent_records_total',
      labels,
      'Records written to the peer’s ring.',
      perLink(({ recordsOut }) => recordsOut),
    ),
    counter(
      'millrace_link_received_records_total',
      labels,
      'Records read from the ring.',
      perLink(({ recordsIn }) => recordsIn),
    ),
    counter(
      'millrace_link_posts_total',
      labels,
      'Batches of WRITEs posted.',
      perLink(({ posts }) => posts),
    ),
    counter(
      'millrace_link_sent_notifications_total',
      labels,
      'Notifications and doorbells sent to the peer.',
      perLink(({ notificationsOut }) => notificationsOut),
    ),
    counter(
      'millrace_link_received_notifications_total',
      labels,
      'Notifications and doorbells received from the peer.',
      perLink(({ notificationsIn }) => notificationsIn),
    ),
    counter(
      'millrace_link_recoveries_total',
      labels,
      'Times the link got a new transport under open connections.',
      perLink(({ recoveries }) => recoveries),
    ),
    gauge(
      'millrace_link_ring_used_slots',
      labels,
      'Slots of the outgoing ring that the peer has not read yet.',
      perLink(({ slotsUsed }) => slotsUsed),
    ),
    gauge(
      'millrace_link_ring_slots',
      labels,
      'Slots of the outgoing ring.',
      perLink(({ slots }) => slots),
    ),
    gauge(
      'millrace_link_held_bytes',
      labels,
      'Bytes held for slow programs.',
      perLink(({ heldBytes }) => heldBytes),
    ),
    gauge(
      'millrace_link_round_trip_seconds',
      labels,
      'Round trip of the last heartbeat; there is no sample before the first.',
      ({ peers }) =>
        peers.flatMap(({ name, links }) =>
          madeOf(links)
            .filter(({ roundTripUs }) => roundTripUs >= 0)
            .map((link) => ({ labels: linkLabels(name, link), value: link.roundTripUs / US_PER_SECOND })),
        ),
    ),
  ];
}

/** Without those that nothing has used so far, or that were given back: they have no wire. */
function madeOf(links: readonly LinkStatus[]): readonly LinkStatus[] {
  return links.filter(({ state }) => state !== 'idle');
}

function linkLabels(peer: string, { lane, wire }: LinkStatus): Labels {
  return { peer, lane: String(lane), wire: wires.has(wire) ? wire : 'other' };
}
