// The demo that npm start runs: two daemons, loads and their figures.

export { CarriedPair } from './carried-pair.ts';
export { type DemoFigures, type DemoServers, measure } from './measure.ts';
export { startTransferServer } from './transfer.ts';
