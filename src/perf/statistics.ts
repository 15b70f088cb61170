// Many samples summarized in a few numbers.

export interface Summary {
  readonly min: number;
  readonly max: number;
  /** The median, as perftest calls it. */
  readonly typical: number;
  readonly average: number;
  readonly stdev: number;
  readonly p50: number;
  readonly p90: number;
  readonly p99: number;
  readonly 'p99.9': number;
  readonly 'p99.99': number;
}

/** Sorts the samples in place. */
export function summarizeSamples(samples: Float64Array): Summary {
  samples.sort();
  const average = samples.reduce((sum, value) => sum + value, 0) / samples.length;
  const variance = samples.reduce((sum, value) => sum + (value - average) ** 2, 0) / samples.length;
  const at = (share: number): number => samples[Math.max(0, Math.ceil(share * samples.length) - 1)];
  return {
    min: samples[0],
    max: samples[samples.length - 1],
    typical: at(0.5),
    average,
    stdev: Math.sqrt(variance),
    p50: at(0.5),
    p90: at(0.9),
    p99: at(0.99),
    'p99.9': at(0.999),
    'p99.99': at(0.9999),
  };
}
