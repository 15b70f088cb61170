// The conformance suite between the kernel's rxe and our own RoCEv2, run inside a guest: `ADDRESS rxe|soft`, the address
// of the soft device and which of the two is on the left, where most requests come from.
//
// rxe lives in the guest's first network namespace and has UDP port 4791 there; this process is in another one with the
// soft device, and reaches rxe because RDMA devices are shared between namespaces.

import { isIPv6 } from 'node:net';
import { ibverbsProvider } from '../../../src/providers/ibverbs/index.ts';
import { openSoftDevice } from '../../../src/providers/index.ts';
import { Device } from '../../../src/verbs/index.ts';
import { type ConformanceTarget, conformance, preferredGid, wireParts } from '../../conformance/index.ts';
import { rxeLacks } from './rxe-lacks.ts';

const [address = '', left = 'rxe'] = process.argv.slice(2);

function openBoth(): readonly [Device, Device] {
  const rxe = new Device(ibverbsProvider.openDevice('rxe0'));
  const soft = openSoftDevice({ wire: 'roce', address });
  return left === 'rxe' ? [rxe, soft] : [soft, rxe];
}

/** The one of rxe's addresses that the soft device's peers have. */
function gidOf(device: Device): string {
  const { gids } = device.port();
  const isWanted = (gid: string): boolean => gid.startsWith('fd') === isIPv6(address) && !gid.startsWith('fe80');
  return device.info.provider === 'soft' ? preferredGid(device) : (gids.find(isWanted) ?? '');
}

const target: ConformanceTarget = {
  name: `${left} and ${left === 'rxe' ? 'soft' : 'rxe'} at ${address}`,
  gidOf,
  lacks: rxeLacks,
  open: async () => {
    const [one, other] = openBoth();
    return {
      left: one,
      right: other,
      [Symbol.asyncDispose]: async () => {
        one.close();
        other.close();
      },
    };
  },
};

// The second direction needs no second look at what is not on the wire.
if (left === 'rxe') conformance(target);
else conformance(target, wireParts);
