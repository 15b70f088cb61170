// Waiting for a direct connection, and what poll would say of it.
#include "internal.h"
#include "real.h"

#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>

#define IN_EVENTS (POLLIN | POLLRDNORM)
#define OUT_EVENTS (POLLOUT | POLLWRNORM)

static bool is_taken_back(struct mr_connection *connection) {
  if (connection->out_mode != MR_RING) return false;
  return atomic_load(&connection->out->until) != 0 || (atomic_load(&connection->out->from) & MR_RETRACTED) != 0;
}

// Whether the ring, rather than the socket, has something for who waits.
static bool has_news(struct mr_connection *connection, short events) {
  if ((events & POLLIN) != 0 && connection->in_mode == MR_RING) {
    if (atomic_load(&connection->in->written) != (uint32_t)connection->in_position) return true;
    if (!connection->has_lane &&
        (atomic_load(&connection->in->until) != 0 || atomic_load(&connection->in->wants_back) != 0))
      return true;
  }
  if ((events & POLLIN) != 0 && connection->in_mode == MR_TCP && atomic_load(&connection->in->from) != 0) return true;
  if (is_taken_back(connection)) return true;
  if (connection->out_mode != MR_RING) return false;
  if ((events & POLLOUT) == 0) return false;
  return atomic_load(&connection->out->is_gone) != 0 || mr_room(connection) != 0;
}

static short socket_events(struct mr_connection *connection, short events) {
  short wanted = 0;
  if ((events & POLLIN) != 0 && !connection->awaits_word) wanted |= POLLIN | POLLRDHUP;
  if (connection->out_mode == MR_FLUSH || ((events & POLLOUT) != 0 && connection->out_mode != MR_RING))
    wanted |= POLLOUT;
  // A FIN of somebody who only sends no more stays readable; to wait for it again would be to spin.
  if ((events & POLLOUT) != 0 && connection->out_mode == MR_RING && !connection->has_lane &&
      !connection->is_read_shut && atomic_load(&connection->in->is_shut) == 0)
    wanted |= POLLRDHUP;
  return wanted;
}

// 1: try again, 0: the time is over, -1: EINTR.
int mr_wait(struct mr_connection *connection, int fd, short events, int64_t deadline_ns) {
  // The other end may wait for what it has taken back.
  if (connection->out_mode == MR_FLUSH || is_taken_back(connection)) mr_flush(connection, fd, false);
  while (mr_may_spin()) {
    if (has_news(connection, events)) {
      mr_found();
      return 1;
    }
    if (deadline_ns != 0 && mr_now_ns() >= deadline_ns) break;
    mr_spun();
  }
  const int alarm = mr_borrow_alarm();
  struct pollfd both[] = {{.fd = fd}, {.fd = alarm, .events = POLLIN}};
  if ((events & POLLOUT) != 0 && connection->out_mode == MR_RING) atomic_store(&connection->out->wants_room, 1);
  mr_falling_asleep();
  int result = 1;
  if (!has_news(connection, events)) {
    both[0].events = socket_events(connection, events);
    struct timespec left, *timeout = NULL;
    // Without an alarm (no descriptor was left) it looks again every millisecond. So it does where
    // some of the bytes that SO_RCVLOWAT wants are read already: the kernel waits for as many
    // again.
    const bool is_looking = alarm < 0 || (connection->low_water > 1 && connection->in_mode != MR_RING);
    if (deadline_ns != 0 || is_looking) {
      int64_t rest = deadline_ns == 0 ? 1000000 : deadline_ns - mr_now_ns();
      if (is_looking && rest > 1000000) rest = 1000000;
      if (rest < 0) rest = 0;
      left = (struct timespec){.tv_sec = rest / 1000000000, .tv_nsec = rest % 1000000000};
      timeout = &left;
    }
    const int count = real.ppoll(both, alarm < 0 ? 1 : 2, timeout, NULL);
    if (count < 0) result = -1;
    if (count == 0 && deadline_ns != 0 && mr_now_ns() >= deadline_ns) result = 0;
    if (count > 0 && both[0].revents != 0) {
      atomic_store(&connection->kernel_news, 1);
      if ((both[0].revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0) mr_check_peer(connection, fd);
    }
    if (count > 0 && both[1].revents != 0) mr_clear_alarm(alarm);
  }
  mr_return_alarm(alarm);
  mr_found();
  mr_listen();
  return result;
}

// Whether as many bytes wait as SO_RCVLOWAT wants, where some are in the ring and some on TCP. The
// kernel knows only of its own. With in_lock.
static bool is_enough(struct mr_connection *connection, int fd) {
  const bool is_before = connection->in_mode == MR_TCP_LAST;
  const bool is_after = connection->in_mode == MR_RING && atomic_load(&connection->in->until) != 0;
  int queued = 0;
  if (connection->low_water <= 1 || connection->has_lane || !(is_before || is_after)) return false;
  if (real.ioctl(fd, FIONREAD, &queued) != 0) return false;
  const uint32_t begin = (uint32_t)(is_before ? connection->in_from : connection->in_position);
  const uint32_t in_ring = atomic_load_explicit(&connection->in->written, memory_order_acquire) - begin;
  return (uint64_t)queued + in_ring >= (uint64_t)connection->low_water;
}

// Follows the writer back to TCP. The answer is what the socket's events do not say of the
// connection.
static uint32_t look(struct mr_connection *connection, int fd) {
  enum mr_outcome outcome = MR_NOTHING;
  const bool is_due = atomic_load(&connection->kernel_news) != 0 || atomic_load(&connection->in->is_lost) != 0;
  if (connection->in_mode == MR_RING && is_due) outcome = mr_look(connection, fd);
  if (connection->in_mode == MR_SKIP) mr_skip(connection, fd);
  const bool is_elsewhere = connection->in_mode == MR_RING || connection->in_mode == MR_SKIP;
  if (!is_elsewhere || outcome == MR_ENDED || outcome == MR_FAILED) return 0;
  // After the header the end on TCP is the program's own, whatever of the ring is not read yet.
  return connection->is_resumed ? IN_EVENTS : IN_EVENTS | POLLRDHUP | POLLHUP;
}

// The events of poll and epoll that hold now. `wanted` tells whether room matters.
uint32_t mr_events(struct mr_connection *connection, int fd, uint32_t wanted) {
  uint32_t got = 0;
  uint32_t hides = 0;
  bool asks_in = true, asks_out = true;
  if (mr_acquire(&connection->in_lock)) {
    mr_advance_in(connection);
    if (unlikely(connection->has_lane)) hides = look(connection, fd);
    if (connection->in_mode == MR_RING) {
      if (mr_readable(connection) >= (uint64_t)connection->low_water) got |= IN_EVENTS;
      asks_in = atomic_load(&connection->kernel_news) != 0;
    }
    if (is_enough(connection, fd)) got |= IN_EVENTS;
    mr_release(&connection->in_lock);
  }
  if (mr_acquire(&connection->out_lock)) {
    mr_advance_out(connection);
    if (connection->out_mode == MR_RING) {
      asks_out = false;
      const uint64_t enough = ((uint64_t)connection->ring_mask + 1) / 4;
      if ((wanted & OUT_EVENTS) != 0 && mr_room(connection) < enough) {
        atomic_store(&connection->out->wants_room, 1);
        if (mr_room(connection) >= enough) got |= OUT_EVENTS;
      } else {
        got |= OUT_EVENTS;
      }
    }
    mr_release(&connection->out_lock);
    if (connection->out_mode == MR_FLUSH) asks_out = mr_flush(connection, fd, false);
  }
  if (atomic_load(&connection->is_broken) != 0) return POLLERR | POLLHUP | IN_EVENTS | OUT_EVENTS;
  if (!asks_in && (!asks_out || (wanted & OUT_EVENTS) == 0)) return got;
  atomic_store(&connection->kernel_news, 0);
  struct pollfd socket = {.fd = fd, .events = (short)(IN_EVENTS | POLLRDHUP | POLLPRI | (asks_out ? OUT_EVENTS : 0))};
  if (real.poll(&socket, 1, 0) <= 0) return got;
  socket.revents &= (short)~hides;
  got |= (uint16_t)socket.revents;
  if ((socket.revents & ~OUT_EVENTS) == 0) return got;
  atomic_store(&connection->kernel_news, 1);
  if ((socket.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0 && atomic_load(&connection->has_peer_ended) == 0) {
    mr_check_peer(connection, fd);
    if (atomic_load(&connection->has_peer_ended) != 0) return mr_events(connection, fd, wanted);
  }
  return got;
}

// Whether a blocking call goes on after a signal. Which signal it was is not known; the call goes
// on if all handlers of the program say so.
bool mr_restarts(void) {
  bool has_handler = false;
  for (int number = 1; number < 65; number++) {
    struct sigaction action;
    if (sigaction(number, NULL, &action) != 0) continue;
    if (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN) continue;
    if ((action.sa_flags & SA_RESTART) == 0) return false;
    has_handler = true;
  }
  return has_handler;
}
