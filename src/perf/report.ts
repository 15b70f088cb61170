// The report of a perf run: perftest's columns for people, one JSON document for programs.

import type { BandwidthFigures } from './bandwidth.ts';
import type { LatencyFigures } from './latency.ts';
import type { PerfParameters } from './parameters.ts';
import { type Summary, summarizeSamples } from './statistics.ts';

export interface PerfDocument {
  readonly v: 1;
  readonly role: 'client' | 'server';
  readonly device: string;
  readonly parameters: PerfParameters;
  /**
   * Client: operations that were measured. Server: messages that it received, if its test receives
   * any.
   */
  readonly iterations: number;
  readonly bandwidth?: {
    readonly averageMiBPerS: number;
    readonly peakMiBPerS: number;
    readonly messagesPerS: number;
    readonly elapsedS: number;
  };
  readonly latencyUs?: Summary;
}

const MiB = 1024 * 1024;

export function bandwidthOf(figures: BandwidthFigures): Pick<PerfDocument, 'iterations' | 'bandwidth'> {
  const { iterations, elapsedNs, averageBytesPerS, peakBytesPerS } = figures;
  return {
    iterations,
    bandwidth: {
      averageMiBPerS: averageBytesPerS / MiB,
      peakMiBPerS: peakBytesPerS / MiB,
      messagesPerS: iterations / (elapsedNs / 1e9),
      elapsedS: elapsedNs / 1e9,
    },
  };
}

export function latencyOf({ iterations, samplesNs }: LatencyFigures): Pick<PerfDocument, 'iterations' | 'latencyUs'> {
  return { iterations, latencyUs: summarizeSamples(samplesNs.map((ns) => ns / 1000)) };
}

const rule = '-'.repeat(87);

/** Lines in perftest's layout, with its header and columns. What perftest calls MB is MiB. */
export function tableOf({ parameters, iterations, bandwidth, latencyUs }: PerfDocument): string[] {
  const size = String(parameters.sizeBytes);
  if (bandwidth !== undefined) {
    const { peakMiBPerS, averageMiBPerS, messagesPerS } = bandwidth;
    const header = ' #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]';
    const cells = [size.padEnd(10), String(iterations).padEnd(14), peakMiBPerS.toFixed(2).padEnd(18)];
    return [
      rule,
      header,
      ` ${[...cells, averageMiBPerS.toFixed(2).padEnd(20), (messagesPerS / 1e6).toFixed(6)].join(' ')}`,
      rule,
    ];
  }
  if (latencyUs === undefined) return [];
  const header =
    ' #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]' +
    '   99% percentile[usec]   99.9% percentile[usec]';
  const { min, max, typical, average, stdev } = latencyUs;
  const widths = [14, 12, 18, 14, 15, 22];
  const figures = [min, max, typical, average, stdev, latencyUs.p99].map((us, index) =>
    us.toFixed(2).padEnd(widths[index]),
  );
  const cells = [size.padEnd(6), String(iterations).padEnd(14), ...figures, latencyUs['p99.9'].toFixed(2)];
  return [rule, header, ` ${cells.join(' ')}`, rule];
}
