// Sizes as people write them: 65536, 64KiB, 4MiB, 1GiB.

const units = { KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30 } as const;

export const sizePattern = /^(\d{1,16}) ?(KiB|MiB|GiB)?$/;

/** In bytes; NaN for what is no size. */
export function parseSize(size: string | number): number {
  if (typeof size === 'number') return Number.isSafeInteger(size) && size >= 0 ? size : Number.NaN;
  const match = sizePattern.exec(size.trim());
  if (match === null) return Number.NaN;
  const bytes = Number(match[1]) * (match[2] === undefined ? 1 : units[match[2] as keyof typeof units]);
  return Number.isSafeInteger(bytes) ? bytes : Number.NaN;
}

/** In the largest unit that leaves a whole number. */
export function formatSize(bytes: number): string {
  for (const [unit, factor] of Object.entries(units).toReversed()) {
    if (bytes >= factor && bytes % factor === 0) return `${bytes / factor}${unit}`;
  }
  return String(bytes);
}

export function isPowerOfTwo(value: number): boolean {
  return Number.isSafeInteger(value) && value > 0 && Number.isInteger(Math.log2(value));
}
