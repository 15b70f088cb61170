// How the programs of a guest divide its memory: each port has a slice of the area, and its name
// says which.

import { UsageError } from '../../../errors.ts';
import { CALL_AREA_BYTES } from '../../protocol/index.ts';
import { PAGE_BYTES } from './area-allocator.ts';

/** Ports are called `millrace.remoting.INDEX.COUNT`. */
const PREFIX = 'millrace.remoting';
const pattern = /^millrace\.remoting\.(\d{1,2})\.(\d{1,2})$/;
/** QEMU's virtio-serial devices have 31 ports, of which the lab's agent has one. */
export const MAX_PORTS = 30;

export interface Slice {
  readonly offset: number;
  readonly sizeBytes: number;
}

export function portName(index: number, count: number): string {
  return `${PREFIX}.${index}.${count}`;
}

/** Which of how many it is; undefined when it is a port of something else. */
export function portOf(name: string): { readonly index: number; readonly count: number } | undefined {
  const [, index, count] = (pattern.exec(name) ?? []).map(Number);
  return index !== undefined && count !== undefined && index < count ? { index, count } : undefined;
}

/** Whole pages; the remainder is not used. */
export function sliceOf(areaBytes: number, index: number, count: number): Slice {
  const sizeBytes = Math.floor(areaBytes / count / PAGE_BYTES) * PAGE_BYTES;
  if (!(count >= 1 && count <= MAX_PORTS && index >= 0 && index < count && sizeBytes > CALL_AREA_BYTES)) {
    throw new UsageError(
      `share ${areaBytes} bytes among ${count} ports: at most ${MAX_PORTS}, with more than 64 KiB each`,
    );
  }
  return { offset: index * sizeBytes, sizeBytes };
}
