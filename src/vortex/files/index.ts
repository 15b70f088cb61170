// Files from host to host over a stream: `millrace send` and `millrace recv`.

export { addressText, DEFAULT_PORT, parseAddress } from './address.ts';

export { receiveFile } from './receive.ts';
export { sendFile } from './send.ts';
export type { FileTransferSettings, News, Receipt } from './settings.ts';
export { openFileSource, PipeSource } from './source.ts';
