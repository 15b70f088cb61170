// Formats bytes, rates and times for tables: three digits and a unit.

const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'] as const;

/** `0`, `512 B`, `1.5 KiB`, `23 MiB`. */
export function bytesText(bytes: number): string {
  if (bytes === 0) return '0';
  let value = bytes;
  let index = 0;
  // The next unit starts at 1000, not 1024, so that four digits are never needed.
  while (Math.round(value) >= 1000 && index < units.length - 1) {
    value /= 1024;
    index++;
  }
  return `${digits(value, index === 0)} ${units[index]}`;
}

export function rateText(bytesPerSecond: number): string {
  return bytesPerSecond === 0 ? '0' : `${bytesText(bytesPerSecond)}/s`;
}

/** `0`, `950`, `12k`, `3.4M`. */
export function countText(count: number): string {
  if (count < 1000) return digits(count, Number.isInteger(count));
  return count < 999_500 ? `${digits(count / 1e3, false)}k` : `${digits(count / 1e6, false)}M`;
}

/** A share of one core as percent. */
export function percentText(share: number): string {
  return `${(share * 100).toFixed(1)}%`;
}

/** `45 us`, `1.2 ms`; `-` when it was never measured. */
export function microsecondsText(us: number): string {
  if (us < 0) return '-';
  return us < 1000 ? `${Math.round(us)} us` : `${digits(us / 1000, false)} ms`;
}

/** A duration: `5s`, `12m`, `3h04m`, `2d05h`. */
export function ageText(ageMs: number): string {
  const seconds = Math.max(0, Math.floor(ageMs / 1000));
  if (seconds < 60) return `${seconds}s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes}m`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return `${hours}h${twoDigits(minutes % 60)}m`;
  return `${Math.floor(hours / 24)}d${twoDigits(hours % 24)}h`;
}

function digits(value: number, isWhole: boolean): string {
  return isWhole || value >= 99.95 ? String(Math.round(value)) : value.toFixed(value >= 9.95 ? 0 : 1);
}

function twoDigits(value: number): string {
  return String(value).padStart(2, '0');
}
