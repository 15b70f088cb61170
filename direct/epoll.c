// epoll_ctl and epoll_wait for sets that have direct connections in them.
#include "sets.h"
#include "real.h"

#include <stdlib.h>
#include <string.h>

// While rings keep a set busy, the kernel is asked this often.
static const int64_t kernel_every_ns = 50000;

MR_EXPORT int epoll_create1(int flags) {
  mr_ensure_resolved();
  const int fd = real.epoll_create1(flags);
  if (fd >= 0 && mr_acquire(&mr.lock)) {
    mr_make_set(fd);
    mr_release(&mr.lock);
  }
  return fd;
}

MR_EXPORT int epoll_create(int size) {
  mr_ensure_resolved();
  if (size <= 0) return real.epoll_create(size);
  return epoll_create1(0);
}

// As the kernel has it for EPOLLEXCLUSIVE.
static bool is_refused(const struct mr_member *member, int operation, const struct epoll_event *event) {
  if (operation == EPOLL_CTL_DEL) return false;
  const uint32_t allowed = EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP | EPOLLWAKEUP | (uint32_t)EPOLLET | EPOLLEXCLUSIVE;
  const bool is_exclusive = (event->events & EPOLLEXCLUSIVE) != 0;
  if (operation == EPOLL_CTL_ADD) return is_exclusive && (event->events & ~allowed) != 0;
  return is_exclusive || (member != NULL && (member->events & EPOLLEXCLUSIVE) != 0);
}

static int change(struct mr_set *set, struct mr_connection *connection, int operation, int fd,
                  struct epoll_event *event) {
  struct mr_member *member = mr_member_of(set, connection, fd);
  // A child has taken it back to TCP.
  if (unlikely(member != NULL && member->is_direct && atomic_load(&connection->state) == MR_PLAIN))
    mr_make_kernel(member);
  const bool is_ours =
      member != NULL ? member->is_direct || member->is_absent : atomic_load(&connection->state) == MR_DIRECT;
  if (is_ours && is_refused(member, operation, event)) {
    errno = EINVAL;
    return -1;
  }
  if (member != NULL && member->is_direct) {
    if (operation == EPOLL_CTL_DEL) {
      mr_remove_member(member);
      return 0;
    }
    if (operation == EPOLL_CTL_ADD) {
      errno = EEXIST;
      return -1;
    }
    member->events = event->events;
    member->data = event->data.u64;
    member->is_disabled = false;
    mr_list_member(member);
    return 0;
  }
  if (operation == EPOLL_CTL_ADD && atomic_load(&connection->state) == MR_DIRECT &&
      mr_add_member(set, connection, fd, event)) {
    mr_make_direct(mr_member_of(set, connection, fd));
    return 0;
  }
  const int result =
      member != NULL ? mr_change_kernel(member, operation, event) : real.epoll_ctl(set->fd, operation, fd, event);
  if (result != 0) return result;
  if (operation == EPOLL_CTL_DEL && member != NULL) mr_remove_member(member);
  if (operation == EPOLL_CTL_MOD && member != NULL) {
    member->events = event->events;
    member->data = event->data.u64;
    member->is_disabled = false;
  }
  if (operation == EPOLL_CTL_ADD && !mr_add_member(set, connection, fd, event)) atomic_store(&connection->pinned, 1);
  return 0;
}

// As far as the set is concerned: bytes of a program that has ended stay in the ring.
static void leave_to_kernel(struct mr_set *set, struct mr_connection *connection, int fd) {
  if (mr_acquire(&mr.lock)) {
    struct mr_member *member = mr_member_of(set, connection, fd);
    if (member != NULL && member->is_direct) mr_make_kernel(member);
    mr_release(&mr.lock);
  }
  mr_members_present(set);
}

MR_EXPORT int epoll_ctl(int poller, int operation, int fd, struct epoll_event *event) {
  mr_ensure_resolved();
  mr_listen();
  // A set within a set: its direct connections would not be seen from outside.
  if (unlikely(mr_kind_of(fd) == MR_SET && operation == EPOLL_CTL_ADD)) mr_pin_set(fd);
  struct mr_connection *connection = mr_enter(fd);
  if (connection == NULL) return real.epoll_ctl(poller, operation, fd, event);
  int result;
  struct mr_set *set = mr_set_of(poller);
  const struct mr_arena_map *arena = connection->arena;
  const bool is_inherited = arena != NULL && arena->is_inherited;
  const bool is_wrong = event == NULL && operation != EPOLL_CTL_DEL;
  if (set == NULL || set->is_pinned || is_inherited || is_wrong || !mr_acquire(&mr.lock)) {
    // A set that is not known (it was passed here) is the kernel's alone. So are connections of the
    // parent.
    if (!is_wrong && (operation == EPOLL_CTL_ADD || is_inherited)) mr_demote(connection, fd, true);
    if (set != NULL) leave_to_kernel(set, connection, fd);
    result = real.epoll_ctl(poller, operation, fd, event);
  } else {
    result = change(set, connection, operation, fd, event);
    mr_release(&mr.lock);
  }
  mr_leave(connection);
  return result;
}

static int without_watch(struct epoll_event *events, int count) {
  int kept = 0;
  for (int i = 0; i < count; i++)
    if (events[i].data.u64 != MR_WATCH_DATA) events[kept++] = events[i];
  return kept;
}

// Events of the kernel, without waiting.
static int ask_kernel(struct mr_set *set, struct epoll_event *events, int most) {
  if (most <= 0) return 0;
  const int saved = errno;
  const int count = real.epoll_wait(set->fd, events, most, 0);
  errno = saved;
  return count <= 0 ? 0 : without_watch(events, count);
}

static int take(struct mr_set *set, struct epoll_event *events, int most, bool with_kernel) {
  if (!mr_acquire(&mr.lock)) return 0;
  mr_collect(with_kernel);
  const int count = mr_take_ready(set, events, most);
  mr_release(&mr.lock);
  return count;
}

static int sleep_in(struct mr_set *set, struct epoll_event *events, int most, int64_t deadline, const sigset_t *mask) {
  int64_t rest = -1;
  if (deadline >= 0) {
    rest = deadline - mr_now_ns();
    if (rest < 0) rest = 0;
  }
  if (real.epoll_pwait2 != NULL) {
    const struct timespec left = {.tv_sec = rest / 1000000000, .tv_nsec = rest % 1000000000};
    const int count = real.epoll_pwait2(set->fd, events, most, rest < 0 ? NULL : &left, mask);
    if (count >= 0 || errno != ENOSYS) return count;
  }
  return real.epoll_pwait(set->fd, events, most, rest < 0 ? -1 : (int)((rest + 999999) / 1000000), mask);
}

static int wait_in(struct mr_set *set, struct epoll_event *events, int most, int64_t deadline, const sigset_t *mask) {
  for (bool is_first = true;; is_first = false) {
    const int64_t now = mr_now_ns();
    const bool is_due = now - set->asked_ns >= kernel_every_ns;
    int count = take(set, events, most, is_due);
    if (is_due || (count == 0 && deadline == 0)) {
      set->asked_ns = now;
      count += ask_kernel(set, events + count, most - count);
    }
    if (count == 0 && deadline == 0 && !is_due) count = take(set, events, most, true);
    if (count > 0 || deadline == 0 || (deadline > 0 && now >= deadline && !is_first)) {
      if (count > 0) mr_found();
      return count;
    }
    if (mask == NULL && set->direct_count != 0 && mr_may_spin()) {
      mr_spun();
      continue;
    }
    mr_falling_asleep();
    count = take(set, events, most, true);
    if (count > 0) return count;
    count = sleep_in(set, events, most, deadline, mask);
    mr_listen();
    if (count < 0) return count;
    const int kept = without_watch(events, count);
    if (kept > 0) {
      // No more of the rings now: a connection of these may have been promoted meanwhile, and would
      // be told of twice.
      mr_found();
      return kept;
    }
    set->asked_ns = 0;
    if (count == 0 && deadline >= 0 && mr_now_ns() >= deadline) {
      mr_found();
      return take(set, events, most, true);
    }
  }
}

// The set, when it has to be waited for here.
static struct mr_set *direct_set(int poller, const struct epoll_event *events, int most) {
  mr_ensure_resolved();
  if (likely(!mr.has_watched && mr.control < 0)) return NULL;
  mr_listen();
  struct mr_set *set = mr_set_of(poller);
  // The parent waits for these connections; here they go back to the kernel.
  if (unlikely(set != NULL && set->is_inherited && set->direct_count != 0)) mr_pin_set(poller);
  // A set that once had one still has the watcher in it, whose events are not the program's.
  return set == NULL || !set->has_watch || events == NULL || most <= 0 ? NULL : set;
}

// After the kernel has waited alone: a thread may have promoted a connection of the set meanwhile,
// and woken this one. Then the wait goes on here, whatever the set's own words say so far.
static struct mr_set *promoted_set(int poller, struct epoll_event *events, int *count) {
  struct mr_set *set = *count <= 0 ? NULL : mr_set_of(poller);
  if (set == NULL) return NULL;
  *count = without_watch(events, *count);
  return *count == 0 ? set : NULL;
}

static int64_t deadline_of_ms(int timeout_ms) {
  return timeout_ms < 0 ? -1 : timeout_ms == 0 ? 0 : mr_now_ns() + timeout_ms * INT64_C(1000000);
}

static int64_t deadline_of(const struct timespec *timeout) {
  if (timeout == NULL) return -1;
  const int64_t rest = timeout->tv_sec * INT64_C(1000000000) + timeout->tv_nsec;
  return rest == 0 ? 0 : mr_now_ns() + rest;
}

MR_EXPORT int epoll_wait(int poller, struct epoll_event *events, int most, int timeout_ms) {
  struct mr_set *set = direct_set(poller, events, most);
  const int64_t deadline = deadline_of_ms(timeout_ms);
  int count = 0;
  if (set == NULL) {
    count = real.epoll_wait(poller, events, most, timeout_ms);
    set = promoted_set(poller, events, &count);
  }
  return set == NULL ? count : wait_in(set, events, most, deadline, NULL);
}

MR_EXPORT int epoll_pwait(int poller, struct epoll_event *events, int most, int timeout_ms, const sigset_t *mask) {
  struct mr_set *set = direct_set(poller, events, most);
  const int64_t deadline = deadline_of_ms(timeout_ms);
  int count = 0;
  if (set == NULL) {
    count = real.epoll_pwait(poller, events, most, timeout_ms, mask);
    set = promoted_set(poller, events, &count);
  }
  return set == NULL ? count : wait_in(set, events, most, deadline, mask);
}

MR_EXPORT int epoll_pwait2(int poller, struct epoll_event *events, int most, const struct timespec *timeout,
                           const sigset_t *mask) {
  struct mr_set *set = direct_set(poller, events, most);
  const int64_t deadline = deadline_of(timeout);
  int count = 0;
  if (set == NULL) {
    count = real.epoll_pwait2(poller, events, most, timeout, mask);
    set = promoted_set(poller, events, &count);
  }
  return set == NULL ? count : wait_in(set, events, most, deadline, mask);
}
