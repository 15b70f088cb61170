// What a metric is: a name, its labels, a sentence, and how its samples follow from a DaemonStatus.

import type { DaemonStatus } from '../proxy/status.ts';

export type Labels = Readonly<Record<string, string>>;

export interface Sample {
  readonly labels?: Labels;
  readonly value: number;
}

export interface MetricSpec {
  readonly name: string;
  readonly type: 'counter' | 'gauge';
  readonly labels: readonly string[];
  readonly help: string;
  /** Samples with the same labels are added up. */
  readonly read: (status: DaemonStatus) => readonly Sample[];
}

export function one(value: number): readonly Sample[] {
  return [{ value }];
}

export function counter(name: string, labels: readonly string[], help: string, read: MetricSpec['read']): MetricSpec {
  return { name, type: 'counter', labels, help, read };
}

export function gauge(name: string, labels: readonly string[], help: string, read: MetricSpec['read']): MetricSpec {
  return { name, type: 'gauge', labels, help, read };
}
