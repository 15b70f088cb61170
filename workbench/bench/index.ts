// Benchmarks: rows with ids, measured against rivals in the same run.

export { measureRow, type Result } from './measure.ts';
export { plot } from './plot.ts';
export { type BenchDocument, describeMachine, tableHeader, tableRows } from './report.ts';
export type { Row } from './row.ts';
export { selectRows } from './rows.ts';
