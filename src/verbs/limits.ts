// Checks counts against the attributes of a device before it is called.

import { UsageError } from '../errors.ts';

export function checkCount(what: string, value: number, min: number, max: number): void {
  if (Number.isInteger(value) && value >= min && value <= max) return;
  throw new UsageError(`${value} ${what}: the device takes ${min} to ${max}`);
}
