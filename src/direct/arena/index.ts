// Arenas as memory: their layout, one party's view of them, and their doorbells.

export {
  arenaBytes,
  DOORBELL_BYTES,
  doorbellWords,
  FLOW_BYTES,
  flowWords,
  type LostWord,
  lostWords,
  RINGS_OFFSET,
  ringsOffset,
  SLOT_BYTES,
  SLOTS,
  SLOTS_OFFSET,
} from './layout.ts';
export { MappedArena } from './mapped-arena.ts';
export type { MirrorOrder } from './mirror-order.ts';
