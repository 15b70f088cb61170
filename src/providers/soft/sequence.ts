// Packet sequence numbers (PSN): 24 bits that wrap.

/** How far `a` is ahead of `b`, in 24-bit arithmetic: from -2^23 to 2^23-1. */
export function sequenceDistance(a: number, b: number): number {
  return ((a - b) << 8) >> 8;
}

export function addSequence(sequence: number, count: number): number {
  return (sequence + count) & 0xff_ffff;
}
