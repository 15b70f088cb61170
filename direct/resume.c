// Connections through a lane: from the ring back to TCP without the other party's help, which may
// be dead.
//
// The writer holds all bytes in its ring until the reader, on another host, has read them. To go
// back to TCP it sends a header there (struct mr_resume) that says which byte comes next, and then
// all bytes that it still holds. The reader finds the header where TCP had gone silent, reads what
// its ring has, and skips as much on TCP.
//
// A reader that has not confirmed the ring (MR_SEEN, brought by the lanes) would take a header for
// bytes of the program. So a writer that knows of no confirmation retracts: it sends its bytes
// without a header. A reader that had confirmed meanwhile finds something else than its token at
// the very position where the ring began, and knows.
#include "internal.h"
#include "real.h"

#include <poll.h>
#include <string.h>

static const int64_t header_ns = INT64_C(2000000000);  // for the rest of a header
static const int64_t answer_ns = INT64_C(30000000000); // for the other program to go back to TCP
static const int64_t soon_ns = INT64_C(200000000);     // where it need not

// Reading

void mr_advance_in_lane(struct mr_connection *connection) {
  struct mr_flow *flow = connection->in;
  if (connection->in_mode == MR_TCP) {
    // Acquire: its partner is the lane's compare-and-exchange after it has set the other words.
    uint64_t from = atomic_load_explicit(&flow->from, memory_order_acquire);
    if (from == 0) {
      if (likely(atomic_load_explicit(&flow->is_lost, memory_order_acquire) == 0)) return;
      // It is lost before it has begun. A lane that is about to begin it finds that.
      if (!atomic_compare_exchange_strong(&flow->from, &from, MR_RETRACTED | 1)) return;
      connection->in_mode = MR_TCP_ONLY;
      return;
    }
    connection->in_from = (from & MR_POSITION) - 1;
    // Bytes from there on have come by TCP already: the writer has retracted.
    const bool is_late = connection->in_from < connection->in_position;
    connection->in_mode = is_late || (from & MR_RETRACTED) != 0 ? MR_TCP_ONLY : MR_TCP_LAST;
  }
  if (connection->in_mode == MR_TCP_LAST && connection->in_position == connection->in_from) {
    // Not before all bytes of TCP are read: until then either side can still retract.
    const uint64_t from = atomic_fetch_or(&flow->from, MR_SEEN);
    connection->in_mode = MR_RING;
    if ((from & MR_SEEN) == 0) mr_ring(connection);
  }
  if (connection->in_mode != MR_RING || !connection->is_resumed) return;
  if (connection->in_position == connection->in_end)
    connection->in_mode = connection->in_skip > 0 ? MR_SKIP : MR_TCP_ONLY;
}

void mr_skip(struct mr_connection *connection, int fd) {
  while (connection->in_skip > 0) {
    const size_t most = connection->in_skip < (1 << 20) ? (size_t)connection->in_skip : 1 << 20;
    // TCP does not copy what is only cut off.
    const ssize_t got = real.recv(fd, NULL, most, MSG_TRUNC | MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got < 0) connection->pending_error = errno;
    connection->in_skip = got <= 0 ? 0 : connection->in_skip - (uint64_t)got;
  }
  connection->in_mode = MR_TCP_ONLY;
}

// Takes the header, if it is one. -1: its rest has not come.
static int take_header(struct mr_connection *connection, int fd, struct mr_resume *header) {
  const int64_t deadline = mr_now_ns() + header_ns;
  for (;;) {
    const ssize_t got = real.recv(fd, header, sizeof(*header), MSG_PEEK | MSG_DONTWAIT);
    if (got <= 0) return -1;
    const size_t known = (size_t)got < sizeof(header->token) ? (size_t)got : sizeof(header->token);
    if (memcmp(&header->token, &connection->token, known) != 0) return 0;
    if (got == (ssize_t)sizeof(*header)) return real.recv(fd, header, sizeof(*header), MSG_DONTWAIT) > 0;
    // It was sent in one piece, so the rest is about to come; bytes of a program that begin like
    // the token are all but impossible.
    if (mr_now_ns() > deadline) return 0;
    const struct timespec nap = {.tv_nsec = 50000};
    nanosleep(&nap, NULL);
  }
}

static void resumed(struct mr_connection *connection, const struct mr_resume *header) {
  const uint64_t position = header == NULL ? connection->in_from : header->position;
  if (position < connection->in_from || position > connection->in_position) return mr_broken(connection);
  const uint64_t unread = connection->wants_back ? 0 : mr_readable(connection);
  connection->in_end = connection->in_position + unread;
  connection->in_skip = connection->in_end - position;
  connection->is_resumed = true;
  if (header != NULL && (header->flags & MR_RESUME_CLOSED) != 0) atomic_store(&connection->has_peer_ended, 1);
  // As our lane would say, sooner or later.
  if (header != NULL && (header->flags & MR_RESUME_BOTH) != 0) mr_give_back(connection);
  mr_advance_in_lane(connection);
}

// TCP has ended without a header: the other program was killed. Its daemon sends what is in its
// ring, and then says so; without that daemon bytes may be missing.
static enum mr_outcome end_without_header(struct mr_connection *connection) {
  const uint64_t until = atomic_load_explicit(&connection->in->until, memory_order_acquire);
  const bool is_lost = atomic_load_explicit(&connection->in->is_lost, memory_order_acquire) != 0;
  if (mr_readable(connection) > 0) return MR_TAKEN;
  const bool is_whole = (until & MR_TAKEN_BACK) == 0 && (until & MR_POSITION) == connection->in_position + 1;
  // TCP would take nothing more either, once both ways are shut.
  const bool is_shut = connection->is_shut && connection->is_read_shut;
  if (is_whole || is_shut || connection->is_reset_told) return MR_ENDED;
  connection->awaits_word = !is_lost;
  if (!is_lost) return MR_NOTHING;
  connection->is_reset_told = true;
  connection->pending_error = ECONNRESET;
  return MR_FAILED;
}

// What TCP has, while bytes come by the ring.
enum mr_outcome mr_look(struct mr_connection *connection, int fd) {
  struct mr_resume header;
  if (connection->in_mode != MR_RING || connection->is_resumed) return MR_NOTHING;
  if (connection->pending_error != 0) return mr_readable(connection) > 0 ? MR_TAKEN : MR_FAILED;
  atomic_store(&connection->kernel_news, 0);
  connection->awaits_word = false;
  const ssize_t got = real.recv(fd, &header, 1, MSG_PEEK | MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return MR_NOTHING;
  atomic_store(&connection->kernel_news, 1);
  if (got == 0) return mr_has_fin(connection, fd) ? end_without_header(connection) : MR_ENDED;
  if (got < 0) {
    connection->pending_error = errno;
    connection->is_reset_told = true;
    return mr_readable(connection) > 0 ? MR_TAKEN : MR_FAILED;
  }
  const int is_header = take_header(connection, fd, &header);
  if (is_header < 0) return MR_NOTHING;
  resumed(connection, is_header ? &header : NULL);
  return MR_TAKEN;
}

// Other connections whose ends want theirs back: two programs that wait for each other would wait
// for ever.
static void serve_others(void) {
  const uint32_t highest = atomic_load(&mr.highest_fd);
  for (uint32_t fd = 0; fd <= highest && fd < mr.table_size; fd++) {
    struct mr_connection *connection = mr_enter((int)fd);
    if (connection == NULL) continue;
    if (atomic_load(&connection->state) == MR_DIRECT && connection->has_lane && connection->out_mode != MR_TCP_ONLY)
      mr_flush(connection, (int)fd, false);
    mr_leave(connection);
  }
}

// The writer has gone on by TCP, which has the rest of the ring as well: it is read from there.
void mr_leave_ring(struct mr_connection *connection) {
  connection->in_skip -= connection->in_end - connection->in_position;
  connection->in_end = connection->in_position;
  mr_advance_in_lane(connection);
}

// Asks the other program to go back to TCP, and waits until it has: then the socket has the bytes
// that are not read, and nothing else. False: it has not, for so long.
static bool ask_back_in_lane(struct mr_connection *connection, int fd, int64_t wait_ns) {
  const int64_t deadline = mr_now_ns() + wait_ns;
  for (bool is_first = true;; is_first = false) {
    if (!mr_acquire(&connection->in_lock)) return true;
    struct mr_flow *flow = connection->in;
    atomic_store_explicit(&flow->looks, 0, memory_order_release);
    uint64_t from = atomic_load(&flow->from);
    // Not confirmed yet: whatever the writer has put into its ring it sends without a header.
    while (is_first && connection->in_mode < MR_RING && (from & MR_SEEN) == 0 &&
           !atomic_compare_exchange_weak(&flow->from, &from, from | MR_RETRACTED | (from == 0))) {
    }
    if (is_first && connection->in_mode < MR_RING) connection->in_mode = MR_TCP_ONLY;
    uint64_t none = 0;
    if (connection->in_mode == MR_RING && connection->is_resumed) {
      mr_leave_ring(connection);
    } else if (connection->in_mode == MR_RING) {
      connection->wants_back = true;
      atomic_compare_exchange_strong(&flow->until, &none, (connection->in_position + 1) | MR_TAKEN_BACK);
    }
    const enum mr_outcome outcome = mr_look(connection, fd);
    if (connection->in_mode == MR_SKIP) mr_skip(connection, fd);
    // After SHUT_RD alone there seems to be an end, and a header comes all the same. TCP takes none
    // where both ways are shut.
    const bool is_end = outcome == MR_ENDED && (connection->is_shut || mr_has_fin(connection, fd));
    if (connection->in_mode == MR_RING && is_end) connection->in_mode = MR_TCP_ONLY;
    const bool is_done = connection->in_mode == MR_TCP_ONLY;
    mr_release(&connection->in_lock);
    if (is_first) mr_ring(connection);
    if (is_done) return true;
    if (outcome == MR_FAILED || mr_now_ns() > deadline) return false;
    serve_others();
    struct pollfd socket = {.fd = connection->awaits_word || connection->is_read_shut ? -1 : fd, .events = POLLIN};
    real.poll(&socket, 1, 1);
    mr_hear();
  }
}

void mr_stop_in_lane(struct mr_connection *connection, int fd) {
  if (ask_back_in_lane(connection, fd, answer_ns) || !mr_acquire(&connection->in_lock)) return;
  if (connection->in_mode != MR_TCP_ONLY) mr_broken(connection);
  mr_release(&connection->in_lock);
}

bool mr_bring_back_in_lane(struct mr_connection *connection, int fd) {
  if (ask_back_in_lane(connection, fd, soon_ns)) return true;
  if (!mr_acquire(&connection->in_lock)) return false;
  // What is in the ring is read there after all.
  connection->wants_back = false;
  mr_release(&connection->in_lock);
  return false;
}

// Writing

// Nobody reads the ring any more: the next call, or wait, goes back to TCP.
void mr_give_back(struct mr_connection *connection) {
  uint64_t none = 0;
  atomic_compare_exchange_strong(&connection->out->until, &none, 1 | MR_TAKEN_BACK);
}

// Who only writes finds a header as well: it may say that nobody reads the ring any more.
void mr_look_aside(struct mr_connection *connection) {
  const int saved = errno;
  if (mr_acquire(&connection->in_lock)) {
    mr_advance_in_lane(connection);
    mr_look(connection, mr_local_of(connection)->fd);
    mr_release(&connection->in_lock);
  }
  errno = saved;
}

// Whether the other program has closed the connection, as its lane or its header says.
bool mr_has_closed(struct mr_connection *connection) {
  if (atomic_load(&connection->out->is_gone) != 0) return true;
  mr_look_aside(connection);
  return atomic_load(&connection->has_peer_ended) != 0;
}

void mr_resume_out(struct mr_connection *connection, uint64_t flags) {
  struct mr_flow *flow = connection->out;
  uint64_t from = atomic_load(&flow->from), none = 0;
  // The other program need not wait until its own daemon has found out.
  if (atomic_load(&connection->in->is_lost) != 0) flags |= MR_RESUME_BOTH;
  while ((from & (MR_SEEN | MR_RETRACTED)) == 0 &&
         !atomic_compare_exchange_weak(&flow->from, &from, from | MR_RETRACTED)) {
  }
  if ((from & MR_SEEN) == 0) {
    connection->flush_position = connection->out_from;
  } else {
    const uint32_t unread = (uint32_t)connection->out_position - atomic_load(&flow->read);
    if (unread > connection->ring_mask + 1) return mr_broken(connection);
    connection->flush_position = connection->out_position - unread;
    connection->header =
        (struct mr_resume){.token = connection->token, .position = connection->flush_position, .flags = flags};
    connection->header_left = sizeof(connection->header);
  }
  connection->out_mode = MR_FLUSH;
  // For the lane, which tells the other end that it has to look at TCP.
  atomic_compare_exchange_strong(&flow->until, &none, connection->out_position + 1);
  mr_ring(connection);
}

// The daemon has ended. As its lane would have said, so that processes that share the connection
// know it, too.
void mr_lose(struct mr_connection *connection) {
  if (atomic_load(&connection->state) != MR_DIRECT) return;
  atomic_store(&connection->in->is_lost, MR_LOST);
  mr_give_back(connection);
  atomic_store(&connection->kernel_news, 1);
  mr_members_ready(connection);
}
