// Attributes of a device. libibverbs does not tell how much inline data a QP may have, so that is
// tried once.

import { type IbvDeviceAttributes, ibverbs, ibvKinds } from '../../native/index.ts';
import type { DeviceAttributes } from '../../verbs/index.ts';
import { checkMade } from './errors.ts';
import type { Handle } from './handle.ts';
import { readAttributes } from './port.ts';

/** enum ibv_atomic_cap. */
const atomics: readonly DeviceAttributes['atomics'][] = ['none', 'device', 'global'];

const inlineSizes = [1024, 512, 384, 256, 128, 64, 32] as const;
const RC = 2;

/** By name of the device: it does not change while the process runs. */
const inlineBytes = new Map<string, number>();

export function readDevice(context: Handle): IbvDeviceAttributes {
  return checkMade(ibverbs.ibvQueryDevice(context.value), 'ibv_query_device', () => 'look at the device');
}

export function deviceAttributes(name: string, context: Handle, device: IbvDeviceAttributes): DeviceAttributes {
  const { maxInitRdAtomic, maxSrqSge, ports, ...limits } = device;
  return {
    ...limits,
    maxSge: maxSrqSge > 0 ? Math.min(device.maxSge, maxSrqSge) : device.maxSge,
    maxRdAtomic: Math.min(device.maxRdAtomic, maxInitRdAtomic),
    // A device that takes everything says 2^64-1.
    maxMrBytes: Math.min(device.maxMrBytes, Number.MAX_SAFE_INTEGER),
    maxInlineBytes: maxInlineBytes(name, context),
    maxMessageBytes: ports > 0 ? readAttributes(context, 1).maxMessageBytes : 0,
    atomics: atomics[device.atomics] ?? 'none',
  };
}

function maxInlineBytes(name: string, context: Handle): number {
  const known = inlineBytes.get(name);
  if (known !== undefined) return known;
  const pd = ibverbs.ibvAllocPd(context.value);
  const cq = ibverbs.ibvCreateCq(context.value, 1, 0);
  const found = pd > 0 && cq > 0 ? (inlineSizes.find((size) => takesInline(pd, cq, size)) ?? 0) : 0;
  if (cq > 0) ibverbs.ibvClose(cq, ibvKinds.cq);
  if (pd > 0) ibverbs.ibvClose(pd, ibvKinds.pd);
  inlineBytes.set(name, found);
  return found;
}

function takesInline(pd: number, cq: number, size: number): boolean {
  const qp = ibverbs.ibvCreateQp(pd, RC, cq, cq, 0, 1, 1, 1, size, 0);
  if (typeof qp === 'number') return false;
  ibverbs.ibvClose(qp[0], ibvKinds.qp);
  return true;
}
