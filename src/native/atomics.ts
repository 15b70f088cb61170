// Loads and stores with the ordering that rings in shared memory rely on.
//
// What is relied on. ECMAScript makes every `Atomics` operation on an integer typed array
// sequentially consistent, and V8 compiles it to the machine's atomic instruction (on x86-64: a
// plain load, an `xchg` for a store, `lock xadd`, `lock cmpxchg`) whether or not the buffer is a
// SharedArrayBuffer. So a `loadAcquire` that sees the value of a `storeRelease` also sees
// everything written before that store, written by another thread of this process or by another
// process, be it JavaScript or C with __ATOMIC_ACQUIRE and __ATOMIC_RELEASE. Plain reads and writes
// of typed arrays on either side stay on their side of the atomic one: V8 does not move them
// across. litmus.test.ts checks both claims between threads and processes.
//
// The names say what the code needs, not what the hardware does: both are stronger than their names
// here. Flags of a side that is about to sleep rely on that: it stores its flag and then loads the
// other side's word, which acquire and release alone would not order.

/** Reads an index that another party publishes. Partner: `storeRelease`. */
export function loadAcquire(view: Int32Array | Uint32Array, index: number): number {
  return Atomics.load(view, index);
}

/**
 * Publishes an index: a thread that loads it sees all plain writes before it. Partner:
 * `loadAcquire`.
 */
export function storeRelease(view: Int32Array | Uint32Array, index: number, value: number): void {
  Atomics.store(view, index, value);
}

/** Stores `value` and returns what was there: takes a flag back and sees whether it was set. */
export function exchange(view: Int32Array | Uint32Array, index: number, value: number): number {
  return Atomics.exchange(view, index, value);
}

/** Returns the value before the addition. */
export function fetchAdd(view: Int32Array | Uint32Array, index: number, value: number): number {
  return Atomics.add(view, index, value);
}

/** Sets bits; returns the value before. */
export function fetchOr(view: Int32Array | Uint32Array, index: number, value: number): number {
  return Atomics.or(view, index, value);
}

/** Stores `value` if the word is `expected`; returns what was there. */
export function compareExchange(
  view: Int32Array | Uint32Array,
  index: number,
  expected: number,
  value: number,
): number {
  return Atomics.compareExchange(view, index, expected, value);
}
