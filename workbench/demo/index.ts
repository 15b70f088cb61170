// What npm start shows.

export { CarriedPair } from './carried-pair.ts';
export { type DemoFigures, type DemoServers, measure } from './measure.ts';
export { startTransferServer } from './transfer.ts';
