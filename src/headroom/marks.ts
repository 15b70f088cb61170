// Marks on the way to a limit: where new work is left to others, where it is refused, and where
// there is room again.

/** The part of a limit that is kept for what must go on. */
const RESERVE_SHARE = 1 / 8;
const MAX_RESERVE = 1024;

export interface Marks {
  readonly limit: number;
  /** From here on new work is left to others, who are told so. */
  readonly short: number;
  /** From here on work that others have sent all the same is refused. */
  readonly refuse: number;
  /** Below it, new work is taken again. */
  readonly enough: number;
}

export function marksOf(limit: number): Marks {
  const reserve = Math.min(MAX_RESERVE, Math.ceil(limit * RESERVE_SHARE));
  return { limit, short: limit - reserve, refuse: limit - Math.floor(reserve / 2), enough: limit - 2 * reserve };
}
