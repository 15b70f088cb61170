// Benchmarks: rows with ids, measured against rivals in the same run.

export { type MeasureOptions, measureRow, type Result, type Round } from './measure.ts';
export { plot } from './plot.ts';
export { type BenchDocument, describeMachine, format, tableHeader, tableRows } from './report.ts';
export type { Contest, Entrant, Rival, Row, Threshold } from './row.ts';
export { rows, selectRows } from './rows.ts';
