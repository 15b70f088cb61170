// What a perf run measures: the tests there are, and the parameters that the client tells the
// server.

import { MillraceError, UsageError } from '../errors.ts';

export const perfTests = ['write-bw', 'read-bw', 'send-bw', 'write-lat', 'send-lat', 'atomic-lat'] as const;
export type PerfTest = (typeof perfTests)[number];

/** As perftest prints them. */
export const testTitles: Readonly<Record<PerfTest, string>> = {
  'write-bw': 'RDMA_Write BW Test',
  'read-bw': 'RDMA_Read BW Test',
  'send-bw': 'Send BW Test',
  'write-lat': 'RDMA_Write Latency Test',
  'send-lat': 'Send Latency Test',
  'atomic-lat': 'Atomic FETCH_AND_ADD Latency Test',
};

export interface PerfParameters {
  readonly test: PerfTest;
  readonly transport: string;
  readonly sizeBytes: number;
  readonly iterations: number;
  /** 0: `iterations` decides; otherwise the run takes this long. */
  readonly durationS: number;
  readonly queuePairs: number;
  readonly txDepth: number;
}

const atomicBytes = 8;

/** Any peer may connect to a server, so it accepts only these. */
const limits: Readonly<Record<'sizeBytes' | 'iterations' | 'durationS' | 'queuePairs' | 'txDepth', [number, number]>> =
  {
    sizeBytes: [1, 256 * 1024 * 1024],
    iterations: [1, 100_000_000],
    durationS: [0, 86_400],
    queuePairs: [1, 64],
    txDepth: [1, 4096],
  };

/** The options of the command line. */
const letters = { sizeBytes: '-s', iterations: '-n', durationS: '-D', queuePairs: '-q', txDepth: '-t' } as const;

export function isLatency(test: PerfTest): boolean {
  return test.endsWith('-lat');
}

/** Sizes and counts as perftest has them by default. */
export function defaultSize(test: PerfTest): number {
  if (test === 'atomic-lat') return atomicBytes;
  return isLatency(test) ? 2 : 65_536;
}

export function defaultIterations(test: PerfTest): number {
  return isLatency(test) ? 1000 : 5000;
}

/** Throws a UsageError that names the option of the command line. */
export function checkParameters(parameters: PerfParameters): void {
  const problem = problemOf(parameters);
  if (problem !== undefined) throw new UsageError(`perf ${parameters.test}: ${problem}`);
}

function problemOf(parameters: PerfParameters): string | undefined {
  for (const name of Object.keys(limits) as (keyof typeof limits)[]) {
    const [min, max] = limits[name];
    const value: unknown = parameters[name];
    if (typeof value === 'number' && Number.isInteger(value) && value >= min && value <= max) continue;
    return `${letters[name]} is ${JSON.stringify(value)}; expected ${min} to ${max}`;
  }
  const { test, sizeBytes, queuePairs } = parameters;
  if (test === 'atomic-lat' && sizeBytes !== atomicBytes) return `-s is ${sizeBytes}; an atomic has 8 bytes`;
  if (isLatency(test) && queuePairs !== 1) return `-q is ${queuePairs}; latency is measured on one queue pair`;
  return undefined;
}

/** Checks what the client sent: `test` and `transport` must be the server's own. */
export function decodeParameters(value: unknown, own: Pick<PerfParameters, 'test' | 'transport'>): PerfParameters {
  const refuse = (reason: string): never => {
    throw new MillraceError('MILLRACE_ERR_FAILED', `perf ${own.test}: the client ${reason}`);
  };
  if (typeof value !== 'object' || value === null) return refuse('sent no parameters');
  const fields: Partial<Record<keyof PerfParameters | 'v', unknown>> = value;
  if (fields.v !== 1) return refuse('speaks another version of the protocol');
  if (fields.test !== own.test) {
    return refuse(`runs ${perfTests.find((test) => test === fields.test) ?? 'something else'}; start both sides alike`);
  }
  if (fields.transport !== own.transport) {
    return refuse(`uses a device on another wire than this ${own.transport} one; choose the same with -d`);
  }
  const { sizeBytes, iterations, durationS, queuePairs, txDepth } = fields;
  const parameters = { ...own, sizeBytes, iterations, durationS, queuePairs, txDepth } as PerfParameters;
  const problem = problemOf(parameters);
  return problem === undefined ? parameters : refuse(`sent invalid parameters: ${problem}`);
}
