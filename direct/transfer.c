// Bytes between the program's buffers, the rings and the socket.
#include "internal.h"
#include "real.h"

#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#ifndef MSG_FASTOPEN
#define MSG_FASTOPEN 0x20000000
#endif
#ifndef MSG_ZEROCOPY
#define MSG_ZEROCOPY 0x4000000
#endif

enum { PIECES = 64, BOUNCE_BYTES = 16384 };

static size_t total_of(const struct msghdr *message) {
  size_t total = 0;
  for (size_t i = 0; i < (size_t)message->msg_iovlen; i++)
    total += message->msg_iov[i].iov_len;
  return total > SSIZE_MAX ? SSIZE_MAX : total;
}

// What is left of the program's buffers after `done` bytes, at most `most` bytes.
static int rest_of(const struct msghdr *message, size_t done, uint64_t most, struct iovec *pieces) {
  int count = 0;
  for (size_t i = 0; i < (size_t)message->msg_iovlen && count < PIECES && most > 0; i++) {
    struct iovec piece = message->msg_iov[i];
    if (done >= piece.iov_len) {
      done -= piece.iov_len;
      continue;
    }
    piece.iov_base = (uint8_t *)piece.iov_base + done;
    piece.iov_len -= done;
    done = 0;
    if (piece.iov_len > most) piece.iov_len = (size_t)most;
    most -= piece.iov_len;
    pieces[count++] = piece;
  }
  return count;
}

static int64_t deadline_after(int64_t timeout_ns) {
  return timeout_ns == 0 ? 0 : mr_now_ns() + timeout_ns;
}

static ssize_t failed(size_t done, int error) {
  if (done > 0) return (ssize_t)done;
  errno = error;
  return -1;
}

// Receiving

// The kernel tells an error once. After bytes were taken it is left for the next call, as the
// kernel does.
static bool has_error(int fd) {
  struct pollfd socket = {.fd = fd};
  return real.poll(&socket, 1, 0) > 0 && (socket.revents & POLLERR) != 0;
}

static enum mr_outcome ask_rest(int fd) {
  int unread = 0;
  if (real.ioctl(fd, FIONREAD, &unread) == 0 && unread > 0) return MR_TAKEN;
  struct pollfd socket = {.fd = fd, .events = POLLRDHUP};
  return real.poll(&socket, 1, 0) > 0 ? MR_ENDED : MR_NOTHING;
}

// The ring is empty: whether the socket has an end or an error. With in_lock. `is_later`: the call
// has taken bytes.
static int ask_socket(struct mr_connection *connection, int fd, bool is_later, int *error) {
  char byte;
  if (connection->pending_error != 0) {
    *error = connection->pending_error;
    connection->pending_error = 0;
    return MR_FAILED;
  }
  if (connection->has_lane) {
    const enum mr_outcome outcome = mr_look(connection, fd);
    if (outcome != MR_FAILED) return outcome;
    *error = connection->pending_error;
    connection->pending_error = 0;
    return MR_FAILED;
  }
  atomic_store(&connection->kernel_news, 0);
  const ssize_t got = is_later && has_error(fd) ? 0 : real.recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return MR_NOTHING;
  atomic_store(&connection->kernel_news, 1);
  if (got < 0) {
    *error = errno;
    return MR_FAILED;
  }
  // What was written before the end is there by now, and so is `until` before bytes on TCP.
  mr_advance_in(connection);
  if (connection->in_mode != MR_RING || mr_readable(connection) > 0) return MR_TAKEN;
  if (got > 0) {
    mr_broken(connection);
    return MR_TAKEN;
  }
  mr_check_peer(connection, fd);
  // A program that was killed with bytes unread: the kernel would have answered with a reset.
  const bool is_killed = atomic_load(&connection->has_peer_ended) != 0 && atomic_load(&connection->out->is_gone) == 0;
  if (is_killed && !connection->is_reset_told && connection->out_mode != MR_TCP &&
      connection->out_position > connection->out_from &&
      atomic_load(&connection->out->read) != (uint32_t)connection->out_position &&
      atomic_load(&connection->out->until) == 0) {
    connection->is_reset_told = true;
    *error = ECONNRESET;
    return MR_FAILED;
  }
  return MR_ENDED;
}

static ssize_t take_ring(struct mr_connection *connection, const struct msghdr *message, size_t done, int flags) {
  struct iovec pieces[PIECES];
  const int count = rest_of(message, done, UINT64_MAX, pieces);
  size_t taken = 0;
  for (int i = 0; i < count; i++) {
    uint8_t *to = (flags & MSG_TRUNC) != 0 ? NULL : pieces[i].iov_base;
    const size_t got = mr_take(connection, to, pieces[i].iov_len, taken);
    taken += got;
    if (got < pieces[i].iov_len) break;
  }
  if (taken > 0 && (flags & MSG_PEEK) == 0) mr_taken(connection, taken);
  return (ssize_t)taken;
}

static ssize_t take_socket(struct mr_connection *connection, int fd, struct msghdr *message, size_t done, int flags) {
  struct iovec pieces[PIECES];
  const uint64_t most = connection->in_mode == MR_TCP_LAST ? connection->in_from - connection->in_position : UINT64_MAX;
  struct msghdr part = *message;
  part.msg_iov = pieces;
  part.msg_iovlen = rest_of(message, done, most, pieces);
  const ssize_t got = real.recvmsg(fd, &part, (flags & ~MSG_WAITALL) | MSG_DONTWAIT);
  if (got > 0 && (flags & MSG_PEEK) == 0) connection->in_position += (uint64_t)got;
  if (got >= 0) {
    message->msg_flags = part.msg_flags;
    message->msg_controllen = part.msg_controllen;
  }
  return got;
}

// MSG_PEEK over the end of the ring, or of what is on TCP before it.
static ssize_t peek_beyond(struct mr_connection *connection, int fd, const struct msghdr *message, size_t done,
                           int flags) {
  const uint64_t until = atomic_load_explicit(&connection->in->until, memory_order_acquire);
  if (connection->has_lane || until == 0 || (until & MR_POSITION) - 1 != connection->in_position + done) return 0;
  struct iovec pieces[PIECES];
  struct msghdr part = {.msg_iov = pieces, .msg_iovlen = rest_of(message, done, UINT64_MAX, pieces)};
  if (part.msg_iovlen == 0 || ask_rest(fd) != MR_TAKEN) return 0;
  const ssize_t got = real.recvmsg(fd, &part, MSG_PEEK | MSG_DONTWAIT | (flags & MSG_TRUNC));
  return got > 0 ? got : 0;
}

static ssize_t peek_ring(struct mr_connection *connection, const struct msghdr *message, size_t done, int flags) {
  if (connection->in_position + done != connection->in_from) return 0;
  struct iovec pieces[PIECES];
  const int count = rest_of(message, done, UINT64_MAX, pieces);
  const uint64_t position = connection->in_position;
  size_t taken = 0;
  connection->in_position = connection->in_from;
  for (int i = 0; i < count; i++) {
    uint8_t *to = (flags & MSG_TRUNC) != 0 ? NULL : pieces[i].iov_base;
    taken += mr_take(connection, to, pieces[i].iov_len, taken);
  }
  connection->in_position = position;
  return (ssize_t)taken;
}

// A peek for more bytes than the ring has, while its writer goes on by TCP: once TCP has all of
// them, they are in one place.
static void gather(struct mr_connection *connection, int fd, size_t total) {
  int queued = 0;
  if (connection->in_mode == MR_TCP_LAST) {
    const uint64_t before = connection->in_from - connection->in_position;
    // Bytes from there on have come by TCP: the writer has retracted.
    if (real.ioctl(fd, FIONREAD, &queued) == 0 && (uint64_t)queued > before) connection->in_mode = MR_TCP_ONLY;
    return;
  }
  if (connection->in_mode != MR_RING || mr_readable(connection) >= total) return;
  if (atomic_load(&connection->kernel_news) != 0) mr_look(connection, fd);
  if (connection->in_mode != MR_RING || !connection->is_resumed) return;
  if (real.ioctl(fd, FIONREAD, &queued) == 0 && (uint64_t)queued >= connection->in_skip) mr_leave_ring(connection);
}

ssize_t mr_receive(struct mr_connection *connection, int fd, struct msghdr *message, int flags) {
  const size_t total = total_of(message);
  const bool is_waiting = !connection->is_nonblocking && (flags & MSG_DONTWAIT) == 0;
  const bool is_peek = (flags & MSG_PEEK) != 0;
  const int64_t deadline = is_waiting ? deadline_after(connection->receive_timeout_ns) : 0;
  size_t wanted = (flags & MSG_WAITALL) != 0 ? total : (size_t)connection->low_water;
  if (wanted > total) wanted = total;
  size_t done = 0;
  const socklen_t control_bytes = (socklen_t)message->msg_controllen;
  message->msg_namelen = 0;
  message->msg_flags = 0;
  message->msg_controllen = 0;
  for (;;) {
    if (!mr_acquire(&connection->in_lock)) return failed(done, is_waiting ? EINTR : EAGAIN);
    if (atomic_load(&connection->is_broken) != 0) {
      mr_release(&connection->in_lock);
      return failed(done, ECONNRESET);
    }
    mr_advance_in(connection);
    if (unlikely(is_peek && connection->has_lane)) gather(connection, fd, total);
    if (unlikely(connection->in_mode == MR_SKIP)) mr_skip(connection, fd);
    int error = EAGAIN, outcome = MR_NOTHING;
    ssize_t got;
    const uint32_t mode = connection->in_mode;
    if (mode == MR_RING) {
      got = take_ring(connection, message, is_peek ? 0 : done, flags);
      if (got > 0 || (total == 0 && mr_readable(connection) > 0)) {
        outcome = MR_TAKEN;
      } else if (!is_waiting || atomic_load(&connection->kernel_news) != 0) {
        outcome = ask_socket(connection, fd, done > 0, &error);
      }
      if (got > 0 && is_peek) got += peek_beyond(connection, fd, message, (size_t)got, flags);
      // The writer may have gone on by TCP: what has come there as well belongs to this call.
      if (connection->has_lane && got > 0 && !is_peek && done + (size_t)got < total && mr_readable(connection) == 0 &&
          atomic_load(&connection->kernel_news) != 0)
        mr_look(connection, fd);
    } else if (mode == MR_SKIP) {
      got = 0;
    } else if (connection->pending_error != 0) {
      got = 0;
      outcome = MR_FAILED;
      error = connection->pending_error;
      connection->pending_error = 0;
    } else if (done > 0 && !is_peek && (outcome = ask_rest(fd)) != MR_TAKEN) {
      got = 0;
    } else {
      message->msg_controllen = control_bytes;
      got = take_socket(connection, fd, message, is_peek ? 0 : done, flags);
      outcome = got > 0 ? MR_TAKEN : got == 0 ? MR_ENDED : errno == EAGAIN ? MR_NOTHING : MR_FAILED;
      error = errno;
      if (got < 0) message->msg_controllen = 0;
      if (got > 0 && is_peek && mode == MR_TCP_LAST) got += peek_ring(connection, message, (size_t)got, flags);
    }
    // What follows is elsewhere, and may have come as well: the kernel would give it, too.
    mr_advance_in(connection);
    const bool is_boundary = outcome == MR_TAKEN && connection->in_mode != mode && !is_peek;
    if (outcome == MR_FAILED && done > 0 && error != EINTR) connection->pending_error = error;
    mr_release(&connection->in_lock);
    mr_settle(connection, fd);
    if (got > 0) done = is_peek ? (size_t)got : done + (size_t)got;
    if (outcome == MR_ENDED && connection->has_lane) mr_check_peer(connection, fd);
    if (outcome == MR_ENDED) return (ssize_t)done;
    if (outcome == MR_FAILED) return failed(done, error);
    const bool is_full = total == 0 ? outcome == MR_TAKEN : done == total;
    if (is_full || (done >= wanted && done > 0 && !is_boundary)) return (ssize_t)done;
    if (outcome == MR_TAKEN && !is_peek) continue;
    if (!is_waiting || (done >= wanted && done > 0)) return failed(done, EAGAIN);
    if (is_peek && done > 0) {
      // Too few, and they stay: a wait for more would see these. No more come after the end.
      struct pollfd socket = {.fd = fd, .events = POLLRDHUP};
      if (real.poll(&socket, 1, 1) > 0 || (deadline != 0 && mr_now_ns() >= deadline)) return (ssize_t)done;
      continue;
    }
    const int waited = mr_wait(connection, fd, POLLIN, deadline);
    // A read of no bytes waits for the first one, and says 0 where that has not come either.
    if (total == 0 && waited <= 0) return 0;
    if (waited == 0) return failed(done, EAGAIN);
    if (waited > 0 || (deadline == 0 && done == 0 && mr_restarts())) continue;
    return failed(done, EINTR);
  }
}

// Sending

bool mr_flush(struct mr_connection *connection, int fd, bool is_waiting) {
  const int64_t deadline = is_waiting ? mr_now_ns() + INT64_C(10000000000) : 0;
  for (;;) {
    if (!mr_acquire(&connection->out_lock)) return false;
    mr_advance_out(connection);
    ssize_t sent = 0;
    const uint64_t left = connection->out_position - connection->flush_position;
    if (connection->out_mode == MR_FLUSH) {
      const size_t offset = (size_t)(connection->flush_position - connection->out_base) & connection->ring_mask;
      const size_t rest = (size_t)connection->ring_mask + 1 - offset;
      if (connection->header_left > 0) {
        const uint8_t *end = (const uint8_t *)(&connection->header + 1);
        sent = real.send(fd, end - connection->header_left, connection->header_left,
                         MSG_DONTWAIT | MSG_NOSIGNAL | (left > 0 ? MSG_MORE : 0));
        if (sent > 0) connection->header_left -= (uint32_t)sent;
      } else {
        sent = real.send(fd, connection->out_ring + offset, left < rest ? (size_t)left : rest,
                         MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent > 0) connection->flush_position += (uint64_t)sent;
      }
      // Who cannot be reached any more gets nothing, as from TCP.
      if (sent < 0 && errno != EAGAIN && errno != EINTR) {
        connection->flush_position = connection->out_position;
        connection->header_left = 0;
        if (errno != EPIPE) connection->pending_error = errno;
      }
    }
    mr_advance_out(connection);
    const bool is_done = connection->out_mode != MR_FLUSH;
    const bool is_end = is_done && connection->wants_fin;
    if (is_end) connection->wants_fin = false;
    mr_release(&connection->out_lock);
    if (is_end) real.shutdown(fd, SHUT_WR);
    if (is_done) return true;
    if (sent > 0) continue;
    if (!is_waiting || mr_now_ns() > deadline) return false;
    struct pollfd socket = {.fd = fd, .events = POLLOUT};
    real.poll(&socket, 1, 100);
  }
}

static bool is_for_tcp(const struct msghdr *message, int flags) {
  return (flags & (MSG_OOB | MSG_ZEROCOPY | MSG_FASTOPEN)) != 0 || message->msg_controllen != 0;
}

ssize_t mr_transmit(struct mr_connection *connection, int fd, const struct msghdr *message, int flags) {
  const bool is_waiting = !connection->is_nonblocking && (flags & MSG_DONTWAIT) == 0;
  const int64_t deadline = is_waiting ? deadline_after(connection->send_timeout_ns) : 0;
  const size_t total = total_of(message);
  size_t done = 0;
  if (unlikely(connection->wants_fin)) {
    if ((flags & MSG_NOSIGNAL) == 0) raise(SIGPIPE);
    return failed(0, EPIPE);
  }
  if (unlikely(connection->pending_error != 0)) {
    const int error = connection->pending_error;
    connection->pending_error = 0;
    if (error == EPIPE && (flags & MSG_NOSIGNAL) == 0) raise(SIGPIPE);
    return failed(0, error);
  }
  if (is_for_tcp(message, flags)) {
    mr_demote(connection, fd, true);
    return real.sendmsg(fd, message, flags);
  }
  for (;;) {
    struct iovec pieces[PIECES];
    if (!mr_acquire(&connection->out_lock)) return failed(done, is_waiting ? EINTR : EAGAIN);
    if (total > 0) mr_begin_out(connection);
    // The other program may have closed, and its lane has not said so yet: TCP answers who writes.
    if (unlikely(connection->has_heard_all && total > 0 && connection->out_mode == MR_RING))
      mr_resume_out(connection, 0);
    mr_advance_out(connection);
    int error = EAGAIN;
    const int count = rest_of(message, done, UINT64_MAX, pieces);
    if (connection->is_shut || connection->out_mode == MR_TCP || connection->out_mode == MR_TCP_ONLY) {
      struct msghdr part = {.msg_iov = pieces, .msg_iovlen = count};
      const ssize_t sent = real.sendmsg(fd, &part, flags | MSG_DONTWAIT);
      error = errno;
      if (sent > 0) {
        connection->out_position += (uint64_t)sent;
        done += (size_t)sent;
      }
      mr_release(&connection->out_lock);
      if (sent < 0 && error != EAGAIN) return failed(done, error);
    } else if (connection->out_mode == MR_RING) {
      size_t put = 0;
      for (int i = 0; i < count; i++) {
        const size_t piece = mr_put(connection, pieces[i].iov_base, pieces[i].iov_len);
        put += piece;
        if (piece < pieces[i].iov_len) break;
      }
      done += put;
      // Sequentially consistent, with mr_taken: either it sees this, or its `read` is seen here.
      if (done < total) atomic_store(&connection->out->wants_room, 1);
      const bool has_room = done < total && mr_room(connection) > 0;
      mr_release(&connection->out_lock);
      if (put > 0) mr_ring(connection);
      if (has_room) continue;
      if (done < total) mr_check_peer(connection, fd);
      if (atomic_load(&connection->has_peer_ended) != 0 && done < total) continue;
      if (done < total && connection->has_lane) mr_look_aside(connection);
    } else {
      mr_release(&connection->out_lock);
      if (mr_flush(connection, fd, false)) continue;
    }
    mr_settle(connection, fd);
    if (atomic_load(&connection->is_broken) != 0) return failed(done, ECONNRESET);
    if (done == total) return (ssize_t)done;
    if (!is_waiting) return failed(done, EAGAIN);
    const int waited = mr_wait(connection, fd, POLLOUT, deadline);
    if (waited == 0) return failed(done, EAGAIN);
    if (waited > 0 || (deadline == 0 && done == 0 && mr_restarts())) continue;
    return failed(done, EINTR);
  }
}

ssize_t mr_send_file(struct mr_connection *connection, int fd, int file, off_t *offset, size_t count) {
  uint8_t bounce[BOUNCE_BYTES];
  off_t position = offset != NULL ? *offset : lseek(file, 0, SEEK_CUR);
  if (position < 0) {
    mr_demote(connection, fd, false);
    return real.sendfile(fd, file, offset, count);
  }
  size_t done = 0;
  ssize_t result = 0;
  while (done < count) {
    const size_t piece = count - done < sizeof(bounce) ? count - done : sizeof(bounce);
    const ssize_t got = pread(file, bounce, piece, position);
    if (got <= 0) {
      result = got;
      break;
    }
    struct iovec bytes = {.iov_base = bounce, .iov_len = (size_t)got};
    const struct msghdr message = {.msg_iov = &bytes, .msg_iovlen = 1};
    result = mr_transmit(connection, fd, &message, 0);
    if (result <= 0) break;
    done += (size_t)result;
    position += result;
    if (result < got) break;
  }
  const int saved = errno;
  if (offset != NULL) {
    *offset = position;
  } else {
    lseek(file, position, SEEK_SET);
  }
  errno = saved;
  return done > 0 ? (ssize_t)done : result;
}
