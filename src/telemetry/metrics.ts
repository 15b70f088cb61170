// The metrics of a daemon: each is a row that says how it follows from a DaemonStatus.
// docs/metrics.md lists the same rows.

import { type PrometheusContentType, prometheusContentType } from '@prometheus-io/client';
import type { DaemonStatus } from '../status/index.ts';
import { verdictWords } from '../steering/index.ts';
import { counter, exposition, gauge, type MetricSpec, one } from './metric-spec.ts';
import { linkMetrics, peerMetrics } from './peer-metrics.ts';

export const metricsContentType: PrometheusContentType = prometheusContentType;

const states = ['starting', 'ready', 'draining'] as const;
/** Known values only, so that nothing can make new time series. */
const verdicts: ReadonlySet<string> = new Set(Object.keys(verdictWords));

export const metricSpecs: readonly MetricSpec[] = [
  gauge('millrace_info', ['node', 'instance', 'version'], 'Always 1; the labels say what runs.', (status) => [
    { labels: { node: status.node, instance: status.instance, version: status.version }, value: 1 },
  ]),
  gauge('millrace_start_time_seconds', [], 'When the daemon started, since the epoch.', ({ startedMs }) =>
    one(startedMs / 1000),
  ),
  gauge('millrace_state', ['state'], '1 for the state that the daemon is in, else 0.', ({ state }) =>
    states.map((name) => ({ labels: { state: name }, value: Number(name === state) })),
  ),
  gauge('millrace_not_ready_reasons', [], 'How many things keep the daemon from being ready.', ({ notReady }) =>
    one(notReady.length),
  ),
  counter('millrace_cpu_seconds_total', [], 'CPU time of the whole daemon, user and system.', ({ cpuSeconds }) =>
    one(cpuSeconds),
  ),
  gauge('millrace_resident_memory_bytes', [], 'Resident memory of the daemon.', ({ memory }) => one(memory.rssBytes)),
  gauge('millrace_held_bytes', [], 'Bytes that came from peers and that programs have not read yet.', ({ memory }) =>
    one(memory.heldBytes),
  ),
  gauge('millrace_held_budget_bytes', [], 'Bytes that may be held at most.', ({ memory }) => one(memory.budgetBytes)),
  counter('millrace_connects_total', ['verdict'], 'Connects by the verdict of the kernel hook.', (status) =>
    Object.entries(status.verdicts).map(([name, value]) => ({
      labels: { verdict: verdicts.has(name) ? name : 'other' },
      value,
    })),
  ),
  gauge(
    'millrace_listeners_left_out',
    [],
    'Listeners of peers that the kernel’s table has no room for; connects to them are plain TCP.',
    ({ listenersLeftOut }) => one(listenersLeftOut),
  ),
  counter(
    'millrace_events_lost_total',
    [],
    'Connects and listens that the daemon was not told of, because they came too fast.',
    ({ lostEvents }) => one(lostEvents),
  ),
  gauge(
    'millrace_overloaded',
    [],
    '1 while the daemon has few descriptors left, and new connections are plain TCP.',
    ({ overload }) => one(Number(overload.isOverloaded)),
  ),
  gauge('millrace_descriptors', [], 'Descriptors that the daemon has in use, at least.', ({ overload }) =>
    one(overload.descriptors),
  ),
  gauge('millrace_max_descriptors', [], 'Descriptors that the daemon may have (LimitNOFILE).', ({ overload }) =>
    one(overload.maxDescriptors),
  ),
  counter(
    'millrace_connections_opened_total',
    [],
    'Connections carried: of clients on this host, and of clients on peers’ hosts to servers on this host.',
    ({ counters }) => one(counters.opened),
  ),
  counter(
    'millrace_connections_accepted_total',
    [],
    'Connections of clients on this host that were accepted by the daemon.',
    ({ counters }) => one(counters.accepted),
  ),
  counter(
    'millrace_connections_refused_total',
    [],
    'Connections that could not be carried, or whose server on this host could not be connected to.',
    ({ counters }) => one(counters.refused),
  ),
  counter(
    'millrace_connections_reset_total',
    [],
    'Connections that their client reset before the daemon accepted them.',
    ({ counters }) => one(counters.resets),
  ),
  counter(
    'millrace_unsteered_total',
    [],
    'Unsteered connections to the daemon’s listener, which were reset.',
    ({ counters }) => one(counters.unsteered),
  ),
  counter('millrace_sent_bytes_total', [], 'Payload taken from programs and sent to peers.', ({ counters }) =>
    one(counters.bytesOut),
  ),
  counter('millrace_received_bytes_total', [], 'Payload received from peers for programs.', ({ counters }) =>
    one(counters.bytesIn),
  ),
  ...directSpecs(),
  ...laneSpecs(),
  ...peerMetrics(),
  ...linkMetrics(),
];

export function metricsText(status: DaemonStatus): Promise<string> {
  return exposition(metricSpecs, status);
}

function directSpecs(): readonly MetricSpec[] {
  return [
    gauge('millrace_direct_programs', [], 'Programs that have the library and are connected now.', ({ direct }) =>
      one(direct.programs),
    ),
    gauge('millrace_direct_waiting_offers', [], 'Connections of which one end only was offered.', ({ direct }) =>
      one(direct.waiting),
    ),
    gauge('millrace_direct_connections', [], 'Connections whose bytes go from program to program.', ({ direct }) =>
      one(direct.connections),
    ),
    gauge('millrace_direct_mirrored', [], 'Those whose other end is on the host of a peer.', ({ direct }) =>
      one(direct.mirrored),
    ),
    counter('millrace_direct_promoted_total', [], 'Connections that were promoted.', ({ direct }) =>
      one(direct.promoted),
    ),
    counter('millrace_direct_declined_total', [], 'Offers of connections that were declined.', ({ direct }) =>
      one(direct.declined),
    ),
  ];
}

function laneSpecs(): readonly MetricSpec[] {
  const perLane =
    (value: (lane: DaemonStatus['lanes'][number]) => number): MetricSpec['read'] =>
    ({ lanes }) =>
      lanes.map((lane) => ({ labels: { lane: String(lane.index) }, value: value(lane) }));
  return [
    gauge(
      'millrace_lane_connections',
      ['lane'],
      'Open connections of the lane.',
      perLane(({ connections }) => connections),
    ),
    counter(
      'millrace_lane_turns_total',
      ['lane'],
      'Turns of the lane’s event loop.',
      perLane(({ turns }) => turns),
    ),
    counter(
      'millrace_lane_sleeps_total',
      ['lane'],
      'Times the lane went to sleep.',
      perLane(({ sleeps }) => sleeps),
    ),
    gauge(
      'millrace_lane_held_bytes',
      ['lane'],
      'Bytes that the lane holds for slow programs.',
      perLane(({ heldBytes }) => heldBytes),
    ),
    counter(
      'millrace_lane_cpu_seconds_total',
      ['lane'],
      'CPU time of the lane.',
      perLane(({ cpuSeconds }) => cpuSeconds),
    ),
    gauge(
      'millrace_lane_stuck_seconds',
      ['lane'],
      'Since when the lane gives no sign of life; 0 while it does.',
      perLane(({ stuckSeconds }) => stuckSeconds),
    ),
  ];
}
