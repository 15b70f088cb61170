// `millrace/transfer`: nodes, DMA buffers with ids that all nodes know, and transfers between them
// that never block.

// Devices come from the built-in providers.
import '../providers/index.ts';

export { type DmaBuffer, LocalBuffer, RemoteBuffer } from './buffer.ts';
export { MAX_NODE_ID } from './ids.ts';
export { type LibraryOptions, type NodeAddress, TransferLibrary, type TransferRequest } from './library.ts';
export { TransferNode } from './node.ts';
export { type OnTransfer, REMEMBERED_TRANSFERS, Transfer, type TransferState } from './transfer.ts';
export { TransferError, type TransferFailure } from './transfer-error.ts';
