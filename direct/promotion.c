// A connection's way into its slot and out of it.
#include "internal.h"
#include "real.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static const int64_t answer_ns = INT64_C(200000000); // for the other program to go back to TCP

// struct tcp_info of the kernel, as far as it is needed; libc's header may be older.
struct info {
  uint8_t state, ca_state, retransmits, probes, backoff, options, wscale, limited;
  uint32_t words[24];
  uint64_t pacing_rate, max_pacing_rate, bytes_acked, bytes_received;
  uint32_t segs_out, segs_in, notsent_bytes, min_rtt, data_segs_in, data_segs_out;
  uint64_t delivery_rate, busy_time, rwnd_limited, sndbuf_limited;
  uint32_t delivered, delivered_ce;
  uint64_t bytes_sent, bytes_retrans;
};

static bool read_info(int fd, struct info *info) {
  socklen_t size = sizeof(*info);
  return real.getsockopt(fd, IPPROTO_TCP, TCP_INFO, info, &size) == 0 && size == sizeof(*info);
}

// How many bytes the program has written and read. Nobody does either meanwhile.
static bool positions(int fd, uint64_t *written, uint64_t *read) {
  struct info before, after;
  int unread;
  do {
    if (!read_info(fd, &before) || real.ioctl(fd, FIONREAD, &unread) != 0 || !read_info(fd, &after)) return false;
    if (after.state != TCP_ESTABLISHED) return false;
  } while (before.bytes_received != after.bytes_received);
  *read = after.bytes_received - (uint64_t)unread;
  *written = after.bytes_sent - after.bytes_retrans + after.notsent_bytes;
  return true;
}

static int64_t timeout_of(int fd, int option) {
  struct timeval value = {0};
  socklen_t size = sizeof(value);
  if (real.getsockopt(fd, SOL_SOCKET, option, &value, &size) != 0) return 0;
  return value.tv_sec * INT64_C(1000000000) + value.tv_usec * INT64_C(1000);
}

static void leave_slot(struct mr_connection *connection, bool is_alone) {
  struct mr_arena_map *arena = connection->arena;
  mr_withdraw(connection);
  connection->is_invited = false;
  if (arena == NULL) return;
  arena->connections[connection->slot] = NULL;
  connection->arena = NULL;
  // A thread that is still in a call may touch the memory, so then it stays.
  if (!is_alone) return;
  arena->used--;
  mr_drop_arena(arena);
}

// `users`: calls that are known to be using it, and wait for this.
void mr_promote(struct mr_connection *connection, uint32_t users) {
  const int saved = errno;
  const int fd = mr_local_of(connection)->fd;
  struct mr_arena_map *arena = connection->arena;
  atomic_store(&connection->state, MR_PROMOTING);
  if (atomic_load(&connection->users) != users) {
    atomic_store(&connection->state, MR_OFFERED);
    errno = saved;
    return;
  }
  int lowest = 1;
  socklen_t size = sizeof(lowest);
  const int flags = real.fcntl(fd, F_GETFL);
  if (flags < 0 || atomic_load(&connection->pinned) != 0 || mr.has_uring || mr_is_shared(connection) ||
      connection->is_shut || !positions(fd, &connection->out_position, &connection->in_position) ||
      real.getsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &lowest, &size) != 0 || (lowest > 1 && arena->has_lane)) {
    leave_slot(connection, true);
    connection->offer_at = connection->messages + MR_OFFER_AGAIN;
    atomic_store(&connection->state, MR_PLAIN);
    errno = saved;
    return;
  }
  connection->is_nonblocking = (flags & O_NONBLOCK) != 0;
  connection->low_water = lowest < 1 ? 1 : lowest;
  connection->receive_timeout_ns = timeout_of(fd, SO_RCVTIMEO);
  connection->send_timeout_ns = timeout_of(fd, SO_SNDTIMEO);
  struct mr_slot *slot = &arena->shared->slot[connection->slot];
  uint8_t *rings = (uint8_t *)arena->shared + MR_RINGS_OFFSET;
  connection->out = &slot->flow[arena->party];
  connection->in = &slot->flow[1 - arena->party];
  connection->out_ring = rings + (2 * connection->slot + arena->party) * (size_t)arena->ring_bytes;
  connection->in_ring = rings + (2 * connection->slot + 1 - arena->party) * (size_t)arena->ring_bytes;
  connection->ring_mask = arena->ring_bytes - 1;
  connection->in_mode = MR_TCP;
  connection->out_mode = MR_TCP;
  connection->has_lane = arena->has_lane;
  connection->is_resumed = connection->wants_back = connection->awaits_word = false;
  connection->leaves_rest = connection->wants_fin = connection->is_bulk = connection->has_heard_all = false;
  connection->in_skip = 0;
  connection->header_left = 0;
  connection->idle_position = connection->out_position;
  connection->is_trimmed = false;
  connection->is_reset_told = false;
  connection->pending_error = 0;
  atomic_store(&connection->has_peer_ended, 0);
  atomic_store(&connection->is_broken, 0);
  atomic_store(&connection->kernel_news, 1);
  mr_keep_alive(connection, fd);
  mr_watch_connection(connection, fd);
  mr_members_direct(connection);
  atomic_fetch_add(&mr.direct_count, 1);
  // Release: its partner is the writer's acquire in mr_advance_out.
  atomic_store_explicit(&connection->in->looks, 1, memory_order_release);
  atomic_store(&connection->state, MR_DIRECT);
  mr_ring(connection);
  errno = saved;
}

// With the process lock: the connection is an ordinary one again.
static void become_plain(struct mr_connection *connection, int fd) {
  mr_stop_keeping(connection, fd);
  mr_unwatch_connection(fd);
  mr_members_kernel(connection);
  atomic_fetch_sub(&mr.direct_count, 1);
  connection->is_bulk = connection->has_lane && atomic_load(&connection->in->is_lost) == MR_LOST_BULK;
  // The call that this happens in is one of the users.
  leave_slot(connection, atomic_load(&connection->users) <= 1);
  connection->offer_at = connection->messages + (connection->is_bulk    ? MR_OFFER_LATE
                                                 : connection->has_lane ? MR_OFFER_SOON
                                                                        : MR_OFFER_AGAIN);
  atomic_store(&connection->state, MR_PLAIN);
}

static bool is_through(struct mr_connection *connection) {
  // The kernel tells an error once, so it is kept until the program knows.
  return connection->in_mode == MR_TCP_ONLY && connection->out_mode == MR_TCP_ONLY && connection->pending_error == 0;
}

void mr_settle(struct mr_connection *connection, int fd) {
  if (likely(!is_through(connection))) return;
  const int saved = errno;
  if (mr_acquire(&mr.lock)) {
    if (atomic_load(&connection->state) == MR_DIRECT && is_through(connection) && !atomic_load(&connection->is_broken))
      become_plain(connection, fd);
    mr_release(&mr.lock);
  }
  errno = saved;
}

// Bytes that were not read, if some of them are in the ring.
static uint64_t unread(struct mr_connection *connection) {
  if (connection->in_mode == MR_RING) return mr_readable(connection);
  if (connection->in_mode != MR_TCP_LAST) return 0;
  const uint32_t in_ring = atomic_load(&connection->in->written) - (uint32_t)connection->in_from;
  return in_ring == 0 ? 0 : connection->in_from - connection->in_position + in_ring;
}

static uint64_t unread_now(struct mr_connection *connection, uint32_t *mode) {
  if (!mr_acquire(&connection->in_lock)) return 0;
  mr_advance_in(connection);
  *mode = connection->in_mode;
  const uint64_t count = unread(connection);
  mr_release(&connection->in_lock);
  return count;
}

// How many bytes that have come already are asked for again, on TCP.
static uint64_t stop_in(struct mr_connection *connection, int fd) {
  mr_check_peer(connection, fd);
  if (!mr_acquire(&connection->in_lock)) return 0;
  mr_advance_in(connection);
  // Who has ended sends nothing again. What it has written is in the ring, and is read from there.
  if (atomic_load(&connection->has_peer_ended) != 0 && connection->in_mode != MR_TCP) {
    mr_release(&connection->in_lock);
    return 0;
  }
  uint64_t back = unread(connection);
  if (!mr_stop_in(connection)) back = 0;
  mr_release(&connection->in_lock);
  return back;
}

// Bytes that the other program has not read yet go by TCP, if it takes them back: it does at its
// next call, or when it waits for anything. If it does neither, it finds them in the ring later.
static void ask_back(struct mr_connection *connection) {
  const int64_t deadline = mr_now_ns() + answer_ns;
  struct mr_flow *flow = connection->out;
  if (connection->out_mode != MR_RING || atomic_load(&flow->read) == (uint32_t)connection->out_position) return;
  if (atomic_load(&flow->is_gone) != 0 || atomic_load(&connection->has_peer_ended) != 0) return;
  atomic_store(&flow->wants_back, 1);
  mr_ring(connection);
  while (atomic_load(&flow->until) == 0 && atomic_load(&flow->read) != (uint32_t)connection->out_position &&
         atomic_load(&flow->is_gone) == 0 && mr_now_ns() < deadline) {
    const struct timespec nap = {.tv_nsec = 20000};
    nanosleep(&nap, NULL);
  }
}

// Who demotes finds on TCP what it could have read from the ring: the other program sends it when
// it makes its next call, or waits for anything. If it does neither, the bytes come later.
static void await_back(struct mr_connection *connection, int fd, uint64_t back) {
  const int64_t deadline = mr_now_ns() + answer_ns;
  int unread = 0;
  if (back == 0) return;
  mr_ring(connection);
  const uint64_t most = (uint64_t)connection->ring_mask + 1;
  if (back > most) back = most;
  while (real.ioctl(fd, FIONREAD, &unread) == 0 && (uint64_t)unread < back && mr_now_ns() < deadline) {
    // After SHUT_RD there always seems to be an end.
    struct pollfd socket = {.fd = connection->is_read_shut ? -1 : fd, .events = unread == 0 ? POLLIN : POLLRDHUP};
    real.poll(&socket, 1, 1);
    if ((socket.revents & (POLLHUP | POLLERR | POLLRDHUP)) != 0) break;
  }
}

void mr_bring_back(struct mr_connection *connection, int fd) {
  uint32_t mode;
  mr_check_peer(connection, fd);
  uint64_t back = unread_now(connection, &mode);
  if (back == 0 || atomic_load(&connection->has_peer_ended) != 0) return;
  if (connection->has_lane) {
    if (mr_bring_back_in_lane(connection, fd)) await_back(connection, fd, back);
    return;
  }
  back = stop_in(connection, fd);
  await_back(connection, fd, back);
  if (back == 0 || !mr_acquire(&mr.lock)) return;
  if (atomic_load(&connection->state) == MR_DIRECT && mr_acquire(&connection->in_lock)) {
    mr_keep_ring(connection, mode);
    mr_release(&connection->in_lock);
  }
  mr_release(&mr.lock);
}

static void stop_out(struct mr_connection *connection) {
  if (mr_acquire(&connection->out_lock)) {
    mr_stop_out(connection);
    mr_release(&connection->out_lock);
  }
  mr_ring(connection);
}

void mr_demote_locked(struct mr_connection *connection, int fd) {
  const uint32_t state = atomic_load(&connection->state);
  if (state == MR_OFFERED) {
    leave_slot(connection, true);
    atomic_store(&connection->state, MR_PLAIN);
    connection->offer_at = connection->messages + MR_OFFER_AGAIN;
  }
  if (state != MR_DIRECT) return;
  // The other end gets the same message, or has left or ended: what it has written is read.
  uint64_t none = 0;
  if (connection->has_lane) atomic_compare_exchange_strong(&connection->in->until, &none, 1 | MR_TAKEN_BACK);
  stop_out(connection);
  mr_flush(connection, fd, false);
  if (is_through(connection) && !atomic_load(&connection->is_broken)) become_plain(connection, fd);
}

void mr_demote(struct mr_connection *connection, int fd, bool is_for_good) {
  const int saved = errno;
  if (is_for_good) atomic_store(&connection->pinned, 1);
  if (atomic_load(&connection->state) == MR_DIRECT && connection->has_lane) {
    uint32_t mode;
    const uint64_t back = unread_now(connection, &mode);
    stop_out(connection);
    mr_flush(connection, fd, true);
    mr_stop_in_lane(connection, fd);
    await_back(connection, fd, back);
    mr_settle(connection, fd);
  } else if (atomic_load(&connection->state) == MR_DIRECT) {
    const uint64_t back = stop_in(connection, fd);
    ask_back(connection);
    stop_out(connection);
    mr_flush(connection, fd, true);
    await_back(connection, fd, back);
    mr_settle(connection, fd);
  } else if (is_for_good && atomic_load(&connection->state) == MR_OFFERED && mr_acquire(&mr.lock)) {
    mr_demote_locked(connection, fd);
    mr_release(&mr.lock);
  }
  errno = saved;
}

void mr_pin(int fd) {
  struct mr_connection *connection = mr_enter(fd);
  if (connection == NULL) return;
  mr_demote(connection, fd, true);
  mr_leave(connection);
}

static void pin_where(bool is_all) {
  const int saved = errno;
  const uint32_t highest = atomic_load(&mr.highest_fd);
  for (uint32_t fd = 0; fd <= highest && fd < mr.table_size; fd++) {
    if (mr_kind_of((int)fd) != MR_CONNECTION) continue;
    const int flags = is_all ? 0 : real.fcntl((int)fd, F_GETFD);
    if (flags >= 0 && (flags & FD_CLOEXEC) == 0) mr_pin((int)fd);
  }
  mr_members_present(NULL);
  errno = saved;
}

void mr_pin_inherited(void) {
  pin_where(false);
}
void mr_pin_all(void) {
  pin_where(true);
}

// The kernel closes these by itself. What was not read has to be on TCP by then, so that it answers
// with a reset. A child of vfork, and one that shares them with its parent, only lets go of them.
void mr_part_from_closed(void) {
  const int saved = errno;
  const uint32_t highest = atomic_load(&mr.highest_fd);
  if (atomic_load(&mr.direct_count) == 0 || (int32_t)getpid() != atomic_load(&mr.pid)) return;
  for (uint32_t fd = 0; fd <= highest && fd < mr.table_size; fd++) {
    struct mr_connection *connection = mr_enter((int)fd);
    if (connection == NULL) continue;
    const int flags = real.fcntl((int)fd, F_GETFD);
    if (flags >= 0 && (flags & FD_CLOEXEC) != 0 && !mr_is_shared(connection)) mr_demote(connection, (int)fd, false);
    mr_leave(connection);
  }
  errno = saved;
}

// The connection has ended without the library.
void mr_leave_slot_of(struct mr_connection *connection) {
  if (atomic_load(&connection->state) == MR_PLAIN || !mr_acquire(&mr.lock)) return;
  if (atomic_load(&connection->state) == MR_DIRECT) {
    connection->leaves_rest = connection->has_lane && connection->out_mode == MR_RING;
    atomic_store(&connection->in->is_gone, 1);
    mr_ring(connection);
    atomic_fetch_sub(&mr.direct_count, 1);
  }
  leave_slot(connection, atomic_load(&connection->users) <= 1);
  atomic_store(&connection->state, MR_PLAIN);
  mr_release(&mr.lock);
}

// Whether TCP takes so much at once, so that nobody waits for a reader.
static bool fits(int fd, uint32_t size_bytes) {
  int room = 0;
  socklen_t size = sizeof(room);
  if (real.getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, &size) != 0) return false;
  // The kernel counts twice.
  if ((uint32_t)room / 2 >= size_bytes) return true;
  room = (int)size_bytes;
  if (real.setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof(room)) == 0) return true;
  real.setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
  return real.getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, &size) == 0 && (uint32_t)room / 2 >= size_bytes;
}

void mr_shut_out(struct mr_connection *connection, int fd, bool is_closing) {
  const bool is_waiting = is_closing || !connection->has_lane;
  mr_flush(connection, fd, is_waiting);
  if (mr_acquire(&connection->out_lock)) {
    mr_advance_out(connection);
    if (connection->has_lane && connection->out_mode == MR_RING && mr_has_closed(connection)) {
      // A header would be answered by a reset.
      connection->out_mode = MR_TCP_ONLY;
    } else if (connection->has_lane && connection->out_mode == MR_RING) {
      const uint32_t unread = (uint32_t)connection->out_position - atomic_load(&connection->out->read);
      // A program that stays can send the rest later, one that closes cannot.
      connection->leaves_rest = !fits(fd, unread + (uint32_t)sizeof(struct mr_resume)) && is_closing;
      if (!connection->leaves_rest) mr_resume_out(connection, is_closing ? MR_RESUME_CLOSED : 0);
    } else if (!connection->has_lane) {
      mr_seal_out(connection);
    }
    mr_release(&connection->out_lock);
  }
  connection->wants_fin = !mr_flush(connection, fd, is_waiting) && !is_closing;
}

// Before the last descriptor of this process is closed.
void mr_depart(struct mr_connection *connection, int fd) {
  const int saved = errno;
  const uint32_t state = atomic_load(&connection->state);
  if (state == MR_PLAIN || mr_is_shared(connection)) return;
  if (state == MR_DIRECT) {
    mr_shut_out(connection, fd, true);
    bool is_unread = false;
    if (mr_acquire(&connection->in_lock)) {
      mr_advance_in(connection);
      // A header, and bytes that were read from the ring, are nothing that the program has not
      // read.
      if (connection->has_lane) mr_look(connection, fd);
      if (connection->in_mode == MR_SKIP) mr_skip(connection, fd);
      is_unread = connection->in_mode == MR_RING && mr_readable(connection) > 0;
      mr_release(&connection->in_lock);
    }
    // As the kernel does when a program closes a socket without having read all.
    const struct linger reset = {.l_onoff = 1, .l_linger = 0};
    if (is_unread) real.setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    atomic_store(&connection->in->is_gone, 1);
    mr_ring(connection);
  }
  if (mr_acquire(&mr.lock)) {
    if (state == MR_DIRECT) {
      mr_unwatch_connection(fd);
      atomic_fetch_sub(&mr.direct_count, 1);
    }
    leave_slot(connection, atomic_load(&connection->users) <= 1);
    atomic_store(&connection->state, MR_PLAIN);
    mr_release(&mr.lock);
  }
  errno = saved;
}

// At the end of the program: what was taken back goes by TCP, and readers know that nobody reads.
void mr_flush_all(void) {
  const uint32_t highest = atomic_load(&mr.highest_fd);
  if (atomic_load(&mr.direct_count) == 0) return;
  for (uint32_t fd = 0; fd <= highest && fd < mr.table_size; fd++) {
    struct mr_connection *connection = mr_enter((int)fd);
    if (connection == NULL) continue;
    if (atomic_load(&connection->state) == MR_DIRECT && !mr_is_shared(connection)) {
      if (connection->has_lane) mr_shut_out(connection, (int)fd, true);
      mr_flush(connection, (int)fd, true);
    }
    mr_leave(connection);
  }
}
