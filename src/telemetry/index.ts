// The log of a daemon, and the metrics of a daemon and a backend.

export { guestMetricsText } from './guest-metrics.ts';
export { Logs, type LogsOptions } from './logs.ts';
export { metricsContentType, metricsText } from './metrics.ts';
