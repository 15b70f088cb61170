// The perftest-like tools: what they measure, and running one side of them.

export { measureBandwidth } from './bandwidth.ts';
export { dial } from './conversation.ts';
export { RoundTrips } from './latency.ts';
export { Pace } from './pace.ts';
export {
  defaultIterations,
  defaultSize,
  type PerfTest,
  perfTests,
  testTitles,
} from './parameters.ts';
export { type PingpongOptions, pingpongLines, runPingpong } from './pingpong.ts';
export { type PerfDocument, tableOf } from './report.ts';
export { requestRows } from './rows.ts';
export { runClient, runServer } from './run.ts';
export { connectSetup, openPerfDevice, type PerfSetup } from './setup.ts';
export { summarizeSamples } from './statistics.ts';
