// Files from host to host over a stream: `millrace send` and `millrace recv`.

export { type Address, addressText, DEFAULT_PORT, parseAddress } from './address.ts';
export { FileTransferError } from './file-transfer-error.ts';
export { type ReceiveSettings, receiveFile } from './receive.ts';
export { type SendSettings, sendFile } from './send.ts';
export type { FileTransferSettings, News, Receipt } from './settings.ts';
export { openFileSource, PipeSource, type Source } from './source.ts';
