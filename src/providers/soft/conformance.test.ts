// The conformance suite on both wires of the soft device.

import { conformance } from '../../../test/conformance/index.ts';
import { openSoftPair, wires } from './fixtures/soft-pair.ts';

for (const wire of wires) {
  conformance({ name: `soft ${wire}`, open: async () => openSoftPair(wire) });
}
