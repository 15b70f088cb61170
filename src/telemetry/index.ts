// The daemon's events, log and metrics.

export { guestMetricSpecs, guestMetricsText } from './guest-metrics.ts';
export { type LogLevel, Logs, type LogsOptions, logLevels } from './logs.ts';
export type { MetricSpec } from './metric-spec.ts';
export { metricSpecs, metricsContentType, metricsText } from './metrics.ts';
