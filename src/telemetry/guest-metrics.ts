// The metrics of a backend: each is a row that says how it follows from a BackendStatus.
// docs/metrics.md lists the same rows.

import type { BackendStatus, GuestStatus } from '../status/index.ts';
import { counter, exposition, gauge, type MetricSpec, one, type Sample } from './metric-spec.ts';

type Spec = MetricSpec<BackendStatus>;

/**
 * Guests are told apart by their numbers: a name that a guest chose could make new time series
 * without end.
 */
function perGuest(value: (guest: GuestStatus) => number): Spec['read'] {
  return ({ guests }) => guests.map((guest): Sample => ({ labels: { guest: String(guest.id) }, value: value(guest) }));
}

export const guestMetricSpecs: readonly Spec[] = [
  gauge('millrace_backend_guests', [], 'Guests that are connected.', ({ guests }) => one(guests.length)),
  gauge('millrace_backend_max_guests', [], 'Guests that may be connected at a time.', ({ maxGuests }) =>
    one(maxGuests),
  ),
  gauge(
    'millrace_backend_used',
    ['kind'],
    'Descriptors and mappings that all guests have together, at most.',
    ({ host }) => Object.entries(host).map(([kind, { used }]) => ({ labels: { kind }, value: used })),
  ),
  gauge('millrace_backend_limit', ['kind'], 'Descriptors and mappings that all guests may have together.', ({ host }) =>
    Object.entries(host).map(([kind, { limit }]) => ({ labels: { kind }, value: limit })),
  ),
  counter('millrace_backend_accepted_total', [], 'Guests that were accepted.', ({ accepted }) => one(accepted)),
  counter('millrace_backend_refused_total', [], 'Guests that were refused.', ({ refused }) => one(refused)),
  counter('millrace_backend_dropped_total', [], 'Guests that were dropped because of a protocol error.', (status) =>
    one(status.dropped),
  ),
  counter(
    'millrace_guest_calls_total',
    ['guest'],
    'Calls of the guest.',
    perGuest(({ counts }) => counts.calls),
  ),
  counter(
    'millrace_guest_failed_calls_total',
    ['guest'],
    'Calls that were answered with an error.',
    perGuest(({ counts }) => counts.failedCalls),
  ),
  counter(
    'millrace_guest_posted_total',
    ['guest'],
    'Requests that the guest posted.',
    perGuest(({ counts }) => counts.posted),
  ),
  counter(
    'millrace_guest_completions_total',
    ['guest'],
    'Completions given to the guest.',
    perGuest(({ counts }) => counts.completions),
  ),
  counter(
    'millrace_guest_failed_completions_total',
    ['guest'],
    'Completions with an error status.',
    perGuest(({ counts }) => counts.failedCompletions),
  ),
  gauge(
    'millrace_guest_objects',
    ['guest'],
    'Objects that the guest has.',
    perGuest(({ objects }) => objects),
  ),
  gauge(
    'millrace_guest_used',
    ['guest', 'kind'],
    'What the guest uses of its quota, by the names of the limits.',
    ({ guests }) =>
      guests.flatMap(({ id, used }) =>
        Object.entries(used).map(([kind, value]) => ({ labels: { guest: String(id), kind }, value })),
      ),
  ),
  counter(
    'millrace_guest_sleeps_total',
    ['guest'],
    'Times the guest’s thread went to sleep.',
    perGuest(({ sleeps }) => sleeps),
  ),
  gauge(
    'millrace_guest_wait_seconds',
    ['guest'],
    'How long the guest’s thread waits for work, on average.',
    perGuest(({ averageWaitNs }) => averageWaitNs / 1e9),
  ),
  counter(
    'millrace_guest_cpu_seconds_total',
    ['guest'],
    'CPU time of the guest’s thread.',
    perGuest(({ cpuSeconds }) => cpuSeconds),
  ),
];

export function guestMetricsText(status: BackendStatus): Promise<string> {
  return exposition(guestMetricSpecs, status);
}
