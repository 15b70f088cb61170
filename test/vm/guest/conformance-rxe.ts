// The conformance suite on rxe, run inside a guest: two openings of one device, which reach each
// other by its GID.

import { ibverbsProvider } from '../../../src/providers/ibverbs/index.ts';
import { Device } from '../../../src/verbs/index.ts';
import { conformance } from '../../conformance/index.ts';
import { rxeLacks } from './rxe-lacks.ts';

const NAME = 'rxe0';

function open(): Device {
  return new Device(ibverbsProvider.openDevice(NAME));
}

conformance({
  name: 'ibverbs rxe',
  lacks: rxeLacks,
  open: async () => {
    const [left, right] = [open(), open()];
    return {
      left,
      right,
      [Symbol.asyncDispose]: async () => {
        left.close();
        right.close();
      },
    };
  },
});
