// One direction of a direct connection: from TCP to the ring and back, by position.
//
// The writer decides where the ring begins (`from`), the reader confirms (MR_SEEN) before it reads
// more of TCP. Either may end it by one compare-and-exchange: the writer at what it has written,
// the reader at what it has read. Whoever comes second finds the other's word.
#include "internal.h"

#include <string.h>
#include <sys/mman.h>

static uint64_t position_of(uint64_t word) {
  return (word & MR_POSITION) - 1;
}

void mr_broken(struct mr_connection *connection) {
  atomic_store(&connection->is_broken, 1);
  connection->in_mode = MR_TCP_ONLY;
  connection->out_mode = MR_TCP_ONLY;
}

// Reading

// The reader decides the end of the ring: what it has not read comes again by TCP.
static bool take_back(struct mr_connection *connection) {
  const uint64_t position = connection->in_mode == MR_RING ? connection->in_position : connection->in_from;
  uint64_t none = 0;
  if (!atomic_compare_exchange_strong(&connection->in->until, &none, (position + 1) | MR_TAKEN_BACK)) return false;
  connection->in_mode = MR_TCP_ONLY;
  mr_ring(connection);
  return true;
}

void mr_advance_in(struct mr_connection *connection) {
  struct mr_flow *flow = connection->in;
  if (connection->has_lane) return mr_advance_in_lane(connection);
  if (connection->in_mode == MR_TCP) {
    // Acquire: its partner is the writer's compare-and-exchange after it has set `written` and
    // `base`.
    uint64_t from = atomic_load_explicit(&flow->from, memory_order_acquire);
    if (from == 0) return;
    if ((from & (MR_SEEN | MR_RETRACTED)) == 0) {
      // Its partner is mr_stop_out, where the writer tries to retract.
      if (atomic_compare_exchange_strong(&flow->from, &from, from | MR_SEEN)) from |= MR_SEEN;
    }
    if ((from & MR_RETRACTED) != 0) {
      connection->in_mode = MR_TCP_ONLY;
      return;
    }
    connection->in_from = position_of(from);
    if (connection->in_from < connection->in_position) return mr_broken(connection);
    connection->in_mode = MR_TCP_LAST;
  }
  if (connection->in_mode == MR_TCP_LAST && connection->in_position == connection->in_from)
    connection->in_mode = MR_RING;
  if (connection->in_mode == MR_TCP || connection->in_mode == MR_TCP_ONLY) return;
  if (unlikely(atomic_load_explicit(&flow->wants_back, memory_order_acquire) != 0)) {
    if (atomic_load(&connection->has_peer_ended) == 0 && take_back(connection)) return;
  }
  // Acquire: its partner is mr_stop_out. The bytes after it are on TCP, those before in the ring.
  const uint64_t until = atomic_load_explicit(&flow->until, memory_order_acquire);
  if (until == 0) return;
  const uint64_t here = connection->in_mode == MR_RING ? connection->in_position : connection->in_from;
  if ((until & MR_TAKEN_BACK) != 0 || position_of(until) < here) return mr_broken(connection);
  // At the beginning of the ring already, when nothing came into it.
  if (position_of(until) == here) connection->in_mode = MR_TCP_ONLY;
}

uint64_t mr_readable(struct mr_connection *connection) {
  // Acquire: its partner is the writer's release in mr_put_end.
  const uint32_t written = atomic_load_explicit(&connection->in->written, memory_order_acquire);
  const uint32_t count = written - (uint32_t)connection->in_position;
  if (unlikely(connection->is_resumed)) return connection->in_end - connection->in_position;
  if (likely(count <= (uint64_t)connection->ring_mask + 1)) return count;
  mr_broken(connection);
  return 0;
}

size_t mr_take(struct mr_connection *connection, uint8_t *to, size_t size, uint64_t skip) {
  const uint64_t available = mr_readable(connection);
  if (available <= skip) return 0;
  if (size > available - skip) size = (size_t)(available - skip);
  const uint32_t base = atomic_load_explicit(&connection->in->base, memory_order_relaxed);
  const size_t offset = (size_t)(connection->in_position + skip - base) & connection->ring_mask;
  const size_t rest = (size_t)connection->ring_mask + 1 - offset;
  if (to == NULL) return size;
  memcpy(to, connection->in_ring + offset, size < rest ? size : rest);
  if (size > rest) memcpy(to + rest, connection->in_ring, size - rest);
  return size;
}

void mr_taken(struct mr_connection *connection, size_t size) {
  connection->in_position += size;
  // Sequentially consistent, as is the writer's pair in mr_room: it says that it wants room and
  // then looks at `read`; here `read` is set before that is looked at.
  atomic_store(&connection->in->read, (uint32_t)connection->in_position);
  if (likely(atomic_load(&connection->in->wants_room) == 0)) return;
  const uint32_t used =
      atomic_load_explicit(&connection->in->written, memory_order_relaxed) - (uint32_t)connection->in_position;
  if (used > ((uint64_t)connection->ring_mask + 1) / 2) return;
  atomic_store_explicit(&connection->in->wants_room, 0, memory_order_relaxed);
  mr_ring(connection);
}

bool mr_stop_in(struct mr_connection *connection) {
  struct mr_flow *flow = connection->in;
  atomic_store_explicit(&flow->looks, 0, memory_order_release);
  uint64_t none = 0;
  if (connection->in_mode == MR_TCP && atomic_compare_exchange_strong(&flow->from, &none, MR_RETRACTED | 1))
    connection->in_mode = MR_TCP_ONLY;
  mr_advance_in(connection);
  const bool is_ring = connection->in_mode == MR_TCP_LAST || connection->in_mode == MR_RING;
  if (is_ring && !take_back(connection)) mr_advance_in(connection);
  return connection->in_mode == MR_TCP_ONLY;
}

// The writer has not answered mr_stop_in: what is in the ring is read there after all. `mode` is
// that of before. Its partner is mr_advance_out.
void mr_keep_ring(struct mr_connection *connection, uint32_t mode) {
  uint64_t asked = (mode == MR_RING ? connection->in_position : connection->in_from) + 1;
  asked |= MR_TAKEN_BACK;
  if (atomic_compare_exchange_strong(&connection->in->until, &asked, 0)) connection->in_mode = mode;
}

// Writing

// Only where bytes follow at once: a ring that has begun is never empty when its writer is lost.
void mr_begin_out(struct mr_connection *connection) {
  struct mr_flow *flow = connection->out;
  if (connection->out_mode != MR_TCP || connection->is_shut || atomic_load(&connection->pinned) != 0) return;
  if (unlikely(connection->has_heard_all)) return;
  // Acquire: its partner is the reader's release in mr_promote.
  if (atomic_load_explicit(&flow->looks, memory_order_acquire) != 1 || atomic_load(&flow->until) != 0) return;
  const uint64_t position = connection->out_position;
  atomic_store_explicit(&flow->written, (uint32_t)position, memory_order_relaxed);
  atomic_store_explicit(&flow->base, (uint32_t)position, memory_order_relaxed);
  atomic_store_explicit(&flow->read, (uint32_t)position, memory_order_relaxed);
  connection->out_base = position;
  connection->out_from = position;
  uint64_t none = 0;
  connection->out_mode = atomic_compare_exchange_strong(&flow->from, &none, position + 1) ? MR_RING : MR_TCP_ONLY;
}

void mr_advance_out(struct mr_connection *connection) {
  struct mr_flow *flow = connection->out;
  if (connection->out_mode == MR_RING) {
    const uint64_t until = atomic_load_explicit(&flow->until, memory_order_acquire);
    const uint64_t from = atomic_load_explicit(&flow->from, memory_order_acquire);
    if (unlikely(connection->has_lane && (until != 0 || (from & MR_RETRACTED) != 0))) {
      // A header to somebody who has closed would be answered by a reset, and end what comes from
      // there.
      if (mr_has_closed(connection)) {
        connection->out_mode = MR_TCP_ONLY;
      } else {
        mr_resume_out(connection, 0);
      }
    } else if (unlikely(until != 0 || (from & MR_RETRACTED) != 0)) {
      // Its partner is mr_keep_ring, where a reader that was not answered goes on in the ring.
      uint64_t asked = until;
      if ((until & MR_TAKEN_BACK) != 0 && !atomic_compare_exchange_strong(&flow->until, &asked, until | MR_ANSWERED) &&
          asked == 0)
        return;
      const uint64_t back = (from & MR_RETRACTED) != 0 ? connection->out_from : position_of(until);
      if (back < connection->out_from || back > connection->out_position) return mr_broken(connection);
      connection->flush_position = back;
      connection->out_mode = MR_FLUSH;
    } else if (unlikely(atomic_load_explicit(&flow->is_gone, memory_order_acquire) != 0 ||
                        atomic_load_explicit(&connection->has_peer_ended, memory_order_relaxed) != 0)) {
      // Nobody reads any more, or only what has come already: that cannot be taken back. What TCP
      // has to say about that it says to who writes there.
      uint64_t none = 0;
      if (!connection->has_lane && !atomic_compare_exchange_strong(&flow->until, &none, connection->out_position + 1))
        return mr_advance_out(connection);
      connection->out_mode = MR_TCP_ONLY;
    }
  }
  // The reader does not wait for the ring any more.
  if (connection->out_mode == MR_TCP &&
      (connection->has_lane ? atomic_load(&flow->until) != 0 : (atomic_load(&flow->from) & MR_RETRACTED) != 0))
    connection->out_mode = MR_TCP_ONLY;
  if (connection->out_mode == MR_FLUSH && connection->header_left == 0 &&
      connection->flush_position == connection->out_position)
    connection->out_mode = MR_TCP_ONLY;
}

uint64_t mr_room(struct mr_connection *connection) {
  const uint32_t used = (uint32_t)connection->out_position - atomic_load(&connection->out->read);
  const uint64_t size = (uint64_t)connection->ring_mask + 1;
  if (likely(used <= size)) return size - used;
  mr_broken(connection);
  return 0;
}

// The bytes after what is written that are in one piece and free.
uint8_t *mr_put_begin(struct mr_connection *connection, size_t *size) {
  const uint64_t room = mr_room(connection);
  // An empty ring starts over at its beginning, so that few cache lines are used.
  if (room == (uint64_t)connection->ring_mask + 1 && connection->out_base != connection->out_position) {
    connection->out_base = connection->out_position;
    atomic_store_explicit(&connection->out->base, (uint32_t)connection->out_base, memory_order_relaxed);
  }
  const size_t offset = (size_t)(connection->out_position - connection->out_base) & connection->ring_mask;
  const size_t rest = (size_t)connection->ring_mask + 1 - offset;
  *size = room < rest ? (size_t)room : rest;
  return connection->out_ring + offset;
}

void mr_put_end(struct mr_connection *connection, size_t size) {
  connection->out_position += size;
  // Release: its partner is the reader's acquire in mr_readable. The bytes and `base` are before
  // it.
  atomic_store_explicit(&connection->out->written, (uint32_t)connection->out_position, memory_order_release);
}

size_t mr_put(struct mr_connection *connection, const uint8_t *from, size_t size) {
  size_t done = 0;
  while (done < size) {
    size_t piece;
    uint8_t *to = mr_put_begin(connection, &piece);
    if (piece == 0) break;
    if (piece > size - done) piece = size - done;
    memcpy(to, from + done, piece);
    mr_put_end(connection, piece);
    done += piece;
  }
  return done;
}

void mr_stop_out(struct mr_connection *connection) {
  struct mr_flow *flow = connection->out;
  if (connection->out_mode == MR_TCP) {
    // A ring that has not begun never will: without that word the reader would wait for it.
    uint64_t none = 0;
    if (!connection->has_lane) atomic_compare_exchange_strong(&flow->from, &none, MR_RETRACTED | 1);
    connection->out_mode = MR_TCP_ONLY;
  }
  mr_advance_out(connection);
  if (connection->out_mode != MR_RING) return;
  if (connection->has_lane) return mr_resume_out(connection, MR_RESUME_BOTH);
  uint64_t from = atomic_load(&flow->from);
  // A reader that has not noticed would take bytes on TCP for those that are in the ring.
  if ((from & MR_SEEN) == 0 && atomic_compare_exchange_strong(&flow->from, &from, from | MR_RETRACTED)) {
    connection->flush_position = connection->out_from;
    connection->out_mode = MR_FLUSH;
  } else if ((from & MR_RETRACTED) == 0) {
    uint64_t none = 0;
    if (atomic_compare_exchange_strong(&flow->until, &none, connection->out_position + 1))
      connection->out_mode = MR_TCP_ONLY;
  }
  mr_advance_out(connection);
}

// Before the writer leaves: the end of the ring is decided, and nothing can be taken back any more.
void mr_seal_out(struct mr_connection *connection) {
  mr_advance_out(connection);
  uint64_t none = 0;
  if (connection->out_mode == MR_RING)
    atomic_compare_exchange_strong(&connection->out->until, &none, connection->out_position + 1);
  const uint64_t until = atomic_load(&connection->out->until);
  // The reader was first: what it wants goes by TCP now.
  if (connection->out_mode == MR_RING && (until & MR_TAKEN_BACK) != 0) mr_advance_out(connection);
}

// An empty ring that was not written to since the last time gives its pages back. Its reader
// touches no byte of an empty ring, and whoever writes to it has the lock.
void mr_trim_out(struct mr_connection *connection) {
  if (!mr_try_acquire(&connection->out_lock)) return; // it is in use
  const size_t size = (size_t)connection->ring_mask + 1;
  if (connection->out_mode == MR_RING && mr_room(connection) == size) {
    const bool is_idle = connection->idle_position == connection->out_position;
    if (is_idle && !connection->is_trimmed) madvise(connection->out_ring, size, MADV_REMOVE);
    connection->idle_position = connection->out_position;
    connection->is_trimmed = is_idle;
  }
  mr_release(&connection->out_lock);
}
