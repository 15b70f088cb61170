// What a metric is: a name, its labels, a sentence, and how its samples follow from a status; and
// the text made of them.

import { Counter, Gauge, prometheusContentType, Registry } from '@prometheus-io/client';
import type { DaemonStatus } from '../status/index.ts';

export type Labels = Readonly<Record<string, string>>;

export interface Sample {
  readonly labels?: Labels;
  readonly value: number;
}

export interface MetricSpec<Status = DaemonStatus> {
  readonly name: string;
  readonly type: 'counter' | 'gauge';
  readonly labels: readonly string[];
  readonly help: string;
  /** Samples with the same labels are added up. */
  readonly read: (status: Status) => readonly Sample[];
}

export function one(value: number): readonly Sample[] {
  return [{ value }];
}

export function counter<Status = DaemonStatus>(
  name: string,
  labels: readonly string[],
  help: string,
  read: MetricSpec<Status>['read'],
): MetricSpec<Status> {
  return { name, type: 'counter', labels, help, read };
}

export function gauge<Status = DaemonStatus>(
  name: string,
  labels: readonly string[],
  help: string,
  read: MetricSpec<Status>['read'],
): MetricSpec<Status> {
  return { name, type: 'gauge', labels, help, read };
}

/** All metrics as text. Each scrape has a registry of its own, so that two at once do not mix. */
export async function exposition<Status>(specs: readonly MetricSpec<Status>[], status: Status): Promise<string> {
  const registry = new Registry(prometheusContentType);
  for (const { name, type, labels: labelNames, help, read } of specs) {
    const Metric = type === 'counter' ? Counter : Gauge;
    const metric = new Metric({ name, help, labelNames: [...labelNames], registers: [registry] });
    for (const { labels = {}, value } of read(status)) metric.inc({ ...labels }, value);
  }
  return registry.metrics();
}
