// The daemon's events, log and metrics.

export {
  type ConnectionEvent,
  type DaemonEvent,
  type DaemonEvents,
  type EventKind,
  eventKindNames,
  isConnectionHeard,
  type LinkEvent,
  type PeerEvent,
  publishConnection,
  publishDaemon,
  publishLink,
  publishPeer,
  publishTrouble,
  subscribe,
  type TroubleEvent,
} from './channels.ts';
export { guestMetricSpecs, guestMetricsText } from './guest-metrics.ts';
export { type LogLevel, Logs, type LogsOptions, logLevels } from './logs.ts';
export type { MetricSpec } from './metric-spec.ts';
export { metricSpecs, metricsContentType, metricsText } from './metrics.ts';
