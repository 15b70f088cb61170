// Registers more memory than its user may lock, and prints what it is told. Run as somebody else
// than root.

import { ibverbsProvider } from '../../../src/providers/ibverbs/index.ts';
import { Device } from '../../../src/verbs/index.ts';

using device = new Device(ibverbsProvider.openDevice('rxe0'));
try {
  device.createPd().allocate({ sizeBytes: 64 << 20 });
  console.log('registered');
} catch (error) {
  console.log(error instanceof Error ? error.message : error);
}
