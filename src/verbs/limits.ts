// What a device takes: counts are checked against its attributes before it hears of them.

import { UsageError } from '../errors.ts';

export function checkCount(what: string, value: number, min: number, max: number): void {
  if (Number.isInteger(value) && value >= min && value <= max) return;
  throw new UsageError(`${value} ${what}: the device takes ${min} to ${max}`);
}
