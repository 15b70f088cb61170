// ioctl, getsockopt and setsockopt of connections: what concerns bytes and waiting is the library's
// as well, the rest is the kernel's, and what is not known goes back to TCP first.
#include "calls.h"
#include "real.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/time.h>

#ifndef SIOCOUTQ
#define SIOCOUTQ 0x5411
#endif

// What FIONREAD says; `queued` is what the socket has.
static uint64_t unread(struct mr_connection *connection, uint64_t queued) {
  uint64_t count = 0;
  if (!mr_acquire(&connection->in_lock)) return queued;
  mr_advance_in(connection);
  if (connection->in_mode == MR_RING) count = mr_readable(connection);
  // Through a lane, what TCP has beside the ring is a header, and bytes that the ring has, too.
  if (connection->has_lane && connection->in_mode == MR_RING && !connection->is_resumed) queued = 0;
  if (connection->has_lane && connection->in_skip > 0)
    queued = queued > connection->in_skip ? queued - connection->in_skip : 0;
  if (connection->in_mode == MR_TCP_LAST) {
    const uint64_t before = connection->in_from - connection->in_position;
    count = atomic_load_explicit(&connection->in->written, memory_order_acquire) - (uint32_t)connection->in_from;
    // More than the bytes before the ring: the writer has retracted, and they are all on TCP.
    if (connection->has_lane && queued > before) count = before + count > queued ? before + count - queued : 0;
  }
  mr_release(&connection->in_lock);
  return queued + count;
}

static uint64_t unsent(struct mr_connection *connection) {
  uint64_t count = 0;
  if (!mr_acquire(&connection->out_lock)) return 0;
  if (connection->out_mode == MR_RING) count = (uint64_t)connection->ring_mask + 1 - mr_room(connection);
  if (connection->out_mode == MR_FLUSH) count = connection->out_position - connection->flush_position;
  mr_release(&connection->out_lock);
  return count;
}

MR_EXPORT int ioctl(int fd, unsigned long request, ...) {
  va_list arguments;
  va_start(arguments, request);
  void *argument = va_arg(arguments, void *);
  va_end(arguments);
  // musl has an int there, so the upper half may be anything.
  request = (uint32_t)request;
  mr_ensure_resolved();
  struct mr_connection *connection = mr_enter(fd);
  if (likely(connection == NULL)) return real.ioctl(fd, request, argument);
  const bool is_known = request == FIONBIO || request == FIONREAD || request == SIOCOUTQ || request == FIOCLEX ||
                        request == FIONCLEX ||
                        (request >= 0x8900 && request < 0x8a00 && request != 0x8901 && request != 0x8902);
  if (!is_known) mr_demote(connection, fd, true);
  // A header on TCP, if there is one, is none of the program's bytes.
  if (request == FIONREAD && mr_is_direct(connection) && connection->has_lane) mr_events(connection, fd, POLLIN);
  int result = real.ioctl(fd, request, argument);
  if (result == 0 && request == FIONBIO) connection->is_nonblocking = *(const int *)argument != 0;
  if (result == 0 && mr_is_direct(connection) && (request == FIONREAD || request == SIOCOUTQ)) {
    int *count = argument;
    const uint64_t queued = (uint64_t)*count;
    *count = (int)(request == FIONREAD ? unread(connection, queued) : queued + unsent(connection));
    mr_settle(connection, fd);
  }
  mr_leave(connection);
  return result;
}

static bool is_known_socket_option(int option) {
  switch (option) {
  case SO_REUSEADDR:
  case SO_REUSEPORT:
  case SO_KEEPALIVE:
  case SO_LINGER:
  case SO_SNDBUF:
  case SO_RCVBUF:
  case SO_SNDBUFFORCE:
  case SO_RCVBUFFORCE:
  case SO_PRIORITY:
  case SO_MARK:
  case SO_DEBUG:
  case SO_DONTROUTE:
  case SO_BINDTODEVICE:
  case SO_BUSY_POLL:
  case SO_INCOMING_CPU:
  case SO_MAX_PACING_RATE:
  case SO_RCVTIMEO:
  case SO_SNDTIMEO:
  case SO_RCVLOWAT:
    return true;
  default:
    return false;
  }
}

static bool is_known_tcp_option(int option) {
  switch (option) {
  case TCP_NODELAY:
  case TCP_CORK:
  case TCP_MAXSEG:
  case TCP_KEEPIDLE:
  case TCP_KEEPINTVL:
  case TCP_KEEPCNT:
  case TCP_SYNCNT:
  case TCP_LINGER2:
  case TCP_DEFER_ACCEPT:
  case TCP_WINDOW_CLAMP:
  case TCP_QUICKACK:
  case TCP_CONGESTION:
  case TCP_USER_TIMEOUT:
  case TCP_NOTSENT_LOWAT:
    return true;
  default:
    return false;
  }
}

static int64_t as_ns(const void *value, socklen_t size) {
  struct timeval time;
  if (size < sizeof(time)) return 0;
  memcpy(&time, value, sizeof(time));
  return time.tv_sec * INT64_C(1000000000) + time.tv_usec * INT64_C(1000);
}

MR_EXPORT int setsockopt(int fd, int level, int option, const void *value, socklen_t size) {
  mr_ensure_resolved();
  struct mr_connection *connection = mr_enter(fd);
  if (likely(connection == NULL)) return real.setsockopt(fd, level, option, value, size);
  const bool is_known = level == SOL_SOCKET    ? is_known_socket_option(option)
                        : level == IPPROTO_TCP ? is_known_tcp_option(option)
                                               : level == IPPROTO_IP || level == IPPROTO_IPV6;
  if (!is_known) mr_demote(connection, fd, true);
  const bool is_keep = mr_is_keep_option(level, option) && mr_is_direct(connection) && mr_acquire(&mr.lock);
  if (is_keep) mr_stop_keeping(connection, fd);
  const int result = real.setsockopt(fd, level, option, value, size);
  if (is_keep) {
    if (mr_is_direct(connection)) mr_keep_alive(connection, fd);
    mr_release(&mr.lock);
  }
  if (result == 0 && level == SOL_SOCKET) {
    if (option == SO_RCVTIMEO) connection->receive_timeout_ns = as_ns(value, size);
    if (option == SO_SNDTIMEO) connection->send_timeout_ns = as_ns(value, size);
    if (option == SO_RCVLOWAT) connection->low_water = *(const int *)value < 1 ? 1 : *(const int *)value;
    // The kernel would keep a header of the other end from us until as many bytes have come.
    if (option == SO_RCVLOWAT && connection->low_water > 1 && mr_is_direct(connection) && connection->has_lane)
      mr_demote(connection, fd, false);
  }
  mr_leave(connection);
  return result;
}

MR_EXPORT int getsockopt(int fd, int level, int option, void *value, socklen_t *size) {
  mr_ensure_resolved();
  if (unlikely(level == IPPROTO_TCP && option == 35 /* TCP_ZEROCOPY_RECEIVE */)) mr_pin(fd);
  const int result = real.getsockopt(fd, level, option, value, size);
  const bool is_error =
      result == 0 && level == SOL_SOCKET && option == SO_ERROR && *size >= sizeof(int) && *(int *)value == 0;
  if (likely(result != 0 || (!is_error && !mr_is_keep_option(level, option)))) return result;
  struct mr_connection *connection = mr_enter(fd);
  if (connection == NULL) return result;
  if (is_error) {
    // One that the kernel has told to the library, and the program does not know yet.
    *(int *)value = connection->pending_error;
    connection->pending_error = 0;
  } else {
    mr_kept_option(connection, level, option, value, *size);
  }
  mr_leave(connection);
  return result;
}
