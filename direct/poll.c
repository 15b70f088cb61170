// poll and select where direct connections are among the descriptors.
#include "sets.h"
#include "real.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

// More are left to the kernel, and stay there.
enum { MOST_FDS = 4096 };

// While others are quiet, the kernel is asked this often.
static const int64_t kernel_every_ns = 50000;

#define ALWAYS (POLLERR | POLLHUP | POLLNVAL)

static bool is_direct(int fd) {
  const struct mr_connection *connection = mr_entry(fd, MR_CONNECTION);
  const uint32_t state = connection == NULL ? MR_PLAIN : atomic_load(&connection->state);
  return state == MR_DIRECT || state == MR_PROMOTING;
}

// Whether any of them has to be waited for here. A set of epoll with direct connections goes back
// to the kernel, which knows when it is readable.
static bool has_direct(struct pollfd *fds, nfds_t count) {
  mr_ensure_resolved();
  if (likely(atomic_load_explicit(&mr.direct_count, memory_order_relaxed) == 0 && mr.control < 0)) return false;
  mr_listen();
  bool is_found = false;
  for (nfds_t i = 0; i < count; i++) {
    const struct mr_set *set = mr_set_of(fds[i].fd);
    if (set != NULL && set->direct_count != 0) mr_pin_set(fds[i].fd);
    is_found = is_found || is_direct(fds[i].fd);
  }
  return is_found;
}

// The kernel is about to wait for these alone. A connection among them that another thread promoted
// meanwhile would not wake it, so they are in use until it is done: see enum mr_state.
static void begin_kernel_wait(const struct pollfd *fds, nfds_t count, struct mr_connection **used) {
  for (nfds_t i = 0; i < count; i++)
    used[i] = mr_enter(fds[i].fd);
}

static void end_kernel_wait(nfds_t count, struct mr_connection **used) {
  for (nfds_t i = 0; i < count; i++)
    if (used[i] != NULL) mr_leave(used[i]);
}

// What direct connections have now. The others are left in `others`, those that are not are out.
static int ask_direct(struct pollfd *fds, nfds_t count, struct pollfd *others, bool with_kernel) {
  int ready = 0;
  for (nfds_t i = 0; i < count; i++) {
    others[i] = fds[i];
    fds[i].revents = 0;
    struct mr_connection *connection = mr_enter(fds[i].fd);
    if (connection == NULL) continue;
    if (atomic_load(&connection->state) == MR_DIRECT) {
      others[i].fd = -1;
      if (with_kernel) atomic_store(&connection->kernel_news, 1);
      const uint32_t got = mr_events(connection, fds[i].fd, (uint16_t)fds[i].events);
      mr_settle(connection, fds[i].fd);
      fds[i].revents = (short)(got & ((uint16_t)fds[i].events | ALWAYS));
      if (fds[i].revents != 0) ready++;
    }
    mr_leave(connection);
  }
  return ready;
}

static int ask_others(struct pollfd *fds, nfds_t count, struct pollfd *others) {
  const int saved = errno;
  int ready = 0;
  if (real.poll(others, count, 0) > 0) {
    for (nfds_t i = 0; i < count; i++) {
      if (others[i].fd < 0 || others[i].revents == 0) continue;
      fds[i].revents = others[i].revents;
      ready++;
    }
  }
  errno = saved;
  return ready;
}

// The sockets of direct connections tell of their ends.
static void add_sockets(const struct pollfd *fds, nfds_t count, struct pollfd *others) {
  for (nfds_t i = 0; i < count; i++) {
    if (others[i].fd >= 0) continue;
    struct mr_connection *connection = mr_enter(fds[i].fd);
    if (connection == NULL) continue;
    others[i].fd = fds[i].fd;
    others[i].events = 0;
    if ((fds[i].events & (POLLIN | POLLRDNORM)) != 0 && !connection->awaits_word) others[i].events |= POLLIN;
    if ((fds[i].events & POLLRDHUP) != 0 && !connection->awaits_word) others[i].events |= POLLRDHUP;
    const bool wants_out = (fds[i].events & (POLLOUT | POLLWRNORM)) != 0;
    if (connection->out_mode == MR_FLUSH || (wants_out && connection->out_mode != MR_RING)) others[i].events |= POLLOUT;
    mr_leave(connection);
  }
}

static int wait_for(struct pollfd *fds, nfds_t count, int64_t deadline, const sigset_t *mask) {
  struct pollfd others[count + 1];
  int64_t asked = 0;
  for (;;) {
    const int64_t now = mr_now_ns();
    const bool is_due = now - asked >= kernel_every_ns;
    int ready = ask_direct(fds, count, others, is_due);
    if (is_due || ready > 0 || deadline == 0) ready += ask_others(fds, count, others);
    if (is_due) asked = now;
    if (ready > 0 || deadline == 0) {
      mr_found();
      return ready;
    }
    if (mask == NULL && mr_may_spin() && (deadline < 0 || now < deadline)) {
      mr_spun();
      continue;
    }
    const int alarm = mr_borrow_alarm();
    mr_falling_asleep();
    ready = ask_direct(fds, count, others, false);
    int result = 0;
    if (ready == 0) {
      add_sockets(fds, count, others);
      others[count] = (struct pollfd){.fd = alarm, .events = POLLIN};
      int64_t rest = deadline < 0 ? -1 : deadline > now ? deadline - now : 0;
      if (alarm < 0 && (rest < 0 || rest > 1000000)) rest = 1000000;
      const struct timespec left = {.tv_sec = rest / 1000000000, .tv_nsec = rest % 1000000000};
      result = real.ppoll(others, count + 1, rest < 0 ? NULL : &left, mask);
      if (result > 0 && others[count].revents != 0) mr_clear_alarm(alarm);
      for (nfds_t i = 0; result > 0 && i < count; i++) {
        struct mr_connection *connection = others[i].revents == 0 ? NULL : mr_enter(fds[i].fd);
        if (connection == NULL) continue;
        atomic_store(&connection->kernel_news, 1);
        mr_leave(connection);
      }
    }
    mr_return_alarm(alarm);
    mr_listen();
    if (result < 0) return result;
    asked = 0;
    if (deadline > 0 && mr_now_ns() >= deadline) deadline = 0;
  }
}

static int64_t deadline_of(const struct timespec *timeout) {
  if (timeout == NULL) return -1;
  const int64_t rest = timeout->tv_sec * INT64_C(1000000000) + timeout->tv_nsec;
  return rest <= 0 ? 0 : mr_now_ns() + rest;
}

static void pin_these(const struct pollfd *fds, nfds_t count) {
  for (nfds_t i = 0; i < count; i++)
    mr_pin(fds[i].fd);
}

static int wait_any(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask) {
  mr_ensure_resolved();
  if (fds == NULL || count == 0 || count > MOST_FDS || mr.table_size == 0) {
    if (fds != NULL && count <= MR_MAX_FDS) pin_these(fds, count);
    return real.ppoll(fds, count, timeout, mask);
  }
  struct mr_connection *used[count];
  begin_kernel_wait(fds, count, used);
  const bool is_direct = has_direct(fds, count);
  const int result = is_direct ? 0 : real.ppoll(fds, count, timeout, mask);
  end_kernel_wait(count, used);
  return is_direct ? wait_for(fds, count, deadline_of(timeout), mask) : result;
}

MR_EXPORT int ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask) {
  return wait_any(fds, count, timeout, mask);
}

MR_EXPORT int poll(struct pollfd *fds, nfds_t count, int timeout_ms) {
  const struct timespec timeout = {.tv_sec = timeout_ms / 1000, .tv_nsec = timeout_ms % 1000 * 1000000L};
  return wait_any(fds, count, timeout_ms < 0 ? NULL : &timeout, NULL);
}

// select

static int as_poll(int count, fd_set *in, fd_set *out, fd_set *except, struct pollfd *fds) {
  int used = 0;
  for (int fd = 0; fd < count; fd++) {
    short events = 0;
    if (in != NULL && FD_ISSET(fd, in)) events |= POLLIN;
    if (out != NULL && FD_ISSET(fd, out)) events |= POLLOUT;
    if (except != NULL && FD_ISSET(fd, except)) events |= POLLPRI;
    if (events != 0) fds[used++] = (struct pollfd){.fd = fd, .events = events};
  }
  return used;
}

static int as_select(int used, struct pollfd *fds, fd_set *in, fd_set *out, fd_set *except) {
  int ready = 0;
  for (int i = 0; i < used; i++) {
    struct pollfd *one = &fds[i];
    const bool is_in = (one->revents & (POLLIN | POLLHUP | POLLERR)) != 0 && (one->events & POLLIN) != 0;
    const bool is_out = (one->revents & (POLLOUT | POLLERR)) != 0 && (one->events & POLLOUT) != 0;
    const bool is_except = (one->revents & POLLPRI) != 0 && (one->events & POLLPRI) != 0;
    if (in != NULL && !is_in) FD_CLR(one->fd, in);
    if (out != NULL && !is_out) FD_CLR(one->fd, out);
    if (except != NULL && !is_except) FD_CLR(one->fd, except);
    ready += is_in + is_out + is_except;
  }
  return ready;
}

static int wait_select(fd_set *in, fd_set *out, fd_set *except, struct pollfd *fds, int used,
                       const struct timespec *timeout, const sigset_t *mask) {
  for (int i = 0; i < used; i++) {
    if (real.fcntl(fds[i].fd, 1 /* F_GETFD */) >= 0) continue;
    errno = EBADF;
    return -1;
  }
  const int result = wait_for(fds, (nfds_t)used, deadline_of(timeout), mask);
  return result < 0 ? result : as_select(used, fds, in, out, except);
}

// `left` is what select has in place of `timeout`; NULL for pselect.
static int select_any(int count, fd_set *in, fd_set *out, fd_set *except, const struct timespec *timeout,
                      const sigset_t *mask, struct timeval *left) {
  mr_ensure_resolved();
  struct pollfd fds[FD_SETSIZE];
  struct mr_connection *in_use[FD_SETSIZE];
  fds[0].fd = -1; // the compiler does not see that as_poll fills what is used
  const bool is_ours = mr.table_size != 0 && count >= 0 && count <= FD_SETSIZE;
  const int used = is_ours ? as_poll(count, in, out, except, fds) : 0;
  begin_kernel_wait(fds, (nfds_t)used, in_use);
  const bool is_direct = has_direct(fds, (nfds_t)used);
  const bool is_select = left != NULL || (timeout == NULL && mask == NULL);
  int result = is_direct   ? 0
               : is_select ? real.select(count, in, out, except, left)
                           : real.pselect(count, in, out, except, timeout, mask);
  end_kernel_wait((nfds_t)used, in_use);
  if (!is_direct) return result;
  const int64_t began = left == NULL ? 0 : mr_now_ns();
  result = wait_select(in, out, except, fds, used, timeout, mask);
  if (left != NULL) {
    // Linux tells how much time was left.
    int64_t rest = left->tv_sec * INT64_C(1000000) + left->tv_usec - (mr_now_ns() - began) / 1000;
    if (rest < 0) rest = 0;
    *left = (struct timeval){.tv_sec = rest / 1000000, .tv_usec = rest % 1000000};
  }
  return result;
}

MR_EXPORT int select(int count, fd_set *in, fd_set *out, fd_set *except, struct timeval *timeout) {
  struct timespec whole = {0};
  if (timeout != NULL) whole = (struct timespec){.tv_sec = timeout->tv_sec, .tv_nsec = timeout->tv_usec * 1000};
  return select_any(count, in, out, except, timeout == NULL ? NULL : &whole, NULL, timeout);
}

MR_EXPORT int pselect(int count, fd_set *in, fd_set *out, fd_set *except, const struct timespec *timeout,
                      const sigset_t *mask) {
  return select_any(count, in, out, except, timeout, mask, NULL);
}

// Other names of the same

#define ALIAS(name, target) MR_EXPORT extern __typeof__(target) name __attribute__((alias(#target), copy(target)))
ALIAS(__poll, poll);
ALIAS(__select, select);

MR_EXPORT int __poll_chk(struct pollfd *fds, nfds_t count, int timeout_ms, size_t room) {
  if (room / sizeof(*fds) < count) abort();
  return poll(fds, count, timeout_ms);
}

MR_EXPORT int __ppoll_chk(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask,
                          size_t room) {
  if (room / sizeof(*fds) < count) abort();
  return ppoll(fds, count, timeout, mask);
}
