// Doorbells: how this process wakes the other party, and how it is woken.
//
// One epoll of the process watches the eventfds of all arenas and the sockets of all direct
// connections, edge-triggered, so that nobody has to empty anything. Whoever sleeps has this epoll
// in what it sleeps in: epoll sets of the program contain it, poll and blocking calls use an alarm.
// Nobody takes events from it: a thread that is about to sleep must not miss what another one has
// taken. Which sockets they came from is asked of a second one.
#include "internal.h"
#include "real.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

static struct mr_lock alarm_lock;
static int alarms[64];
static int alarm_count;

void mr_ring(struct mr_connection *connection) {
  struct mr_arena_map *arena = atomic_load_explicit(&connection->arena, memory_order_relaxed);
  if (unlikely(arena == NULL)) return;
  struct mr_doorbell *doorbell = &arena->shared->doorbell[1 - arena->party];
  // Sequentially consistent, as is the pair in mr_falling_asleep: there `asleep` is set and then
  // the slot is looked at; here the slot has been changed before `asleep` is looked at.
  atomic_fetch_or(&doorbell->ready, UINT64_C(1) << connection->slot);
  if (likely(atomic_load(&doorbell->asleep) == 0)) return;
  if (atomic_exchange(&doorbell->asleep, 0) == 0) return;
  const uint64_t one = 1;
  const int saved = errno;
  real.write(arena->theirs, &one, sizeof(one));
  errno = saved;
}

void mr_falling_asleep(void) {
  // Another thread may be leaving the last slot of an arena, and unmap it. Where this very thread
  // has the lock (a signal handler), nobody does.
  const bool is_taken = mr_acquire(&mr.lock);
  for (uint32_t i = 0; i < mr.arena_count; i++) {
    struct mr_arena_map *arena = &mr.arenas[i];
    if (arena->shared != NULL && arena->used != 0) atomic_store(&arena->shared->doorbell[arena->party].asleep, 1);
  }
  if (is_taken) mr_release(&mr.lock);
}

static void watch(int watcher, int fd, uint32_t events, uint64_t data) {
  struct epoll_event event = {.events = events | EPOLLET, .data.u64 = data};
  real.epoll_ctl(watcher, EPOLL_CTL_ADD, fd, &event);
}

// With the process lock.
int mr_watcher(void) {
  if (mr.watch >= 0) return mr.watch;
  mr.watch = mr_own(real.epoll_create1(EPOLL_CLOEXEC));
  if (mr.watch < 0) return -1;
  mr.news = mr_own(real.epoll_create1(EPOLL_CLOEXEC));
  mr_watch_control();
  for (uint32_t i = 0; i < mr.arena_count; i++)
    if (mr.arenas[i].shared != NULL) watch(mr.watch, mr.arenas[i].ours, EPOLLIN, 0);
  return mr.watch;
}

static void watch_by_both(int fd, uint32_t events, uint64_t data) {
  if (mr.watch >= 0) watch(mr.watch, fd, events, data);
  if (mr.news >= 0) watch(mr.news, fd, events, data);
}

void mr_watch_control(void) {
  if (mr.control >= 0) watch_by_both(mr.control, EPOLLIN | EPOLLRDHUP, 1);
}

void mr_watch_connection(struct mr_connection *connection, int fd) {
  mr_watcher();
  watch_by_both(fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP, 16 + (uint64_t)connection->index);
}

void mr_unwatch_connection(int fd) {
  if (mr.watch >= 0) real.epoll_ctl(mr.watch, EPOLL_CTL_DEL, fd, NULL);
  if (mr.news >= 0) real.epoll_ctl(mr.news, EPOLL_CTL_DEL, fd, NULL);
}

static void collect_kernel(void) {
  struct epoll_event events[32];
  int count;
  if (mr.news < 0) return;
  do {
    count = real.epoll_wait(mr.news, events, 32, 0);
    for (int i = 0; i < count; i++) {
      const uint64_t data = events[i].data.u64;
      if (data == 1) mr_hear_locked();
      if (data < 16 || data >= 16 + MR_MAX_CONNECTIONS) continue;
      struct mr_connection *connection = &mr.connections[data - 16];
      atomic_store(&connection->kernel_news, 1);
      mr_members_ready(connection);
    }
  } while (count == 32);
}

void mr_collect(bool with_kernel) {
  const int saved = errno;
  for (uint32_t i = 0; i < mr.arena_count; i++) {
    struct mr_arena_map *arena = &mr.arenas[i];
    if (arena->used == 0 || arena->is_inherited) continue;
    _Atomic uint64_t *ready = &arena->shared->doorbell[arena->party].ready;
    if (atomic_load_explicit(ready, memory_order_relaxed) == 0) continue;
    // Its partner is the other party's fetch_or after it has changed the slot.
    uint64_t bits = atomic_exchange(ready, 0);
    for (; bits != 0; bits &= bits - 1) {
      struct mr_connection *connection = arena->connections[__builtin_ctzll(bits)];
      if (connection != NULL) mr_members_ready(connection);
    }
  }
  if (with_kernel) collect_kernel();
  errno = saved;
}

// Alarms: as many as there are threads that wait at once.

int mr_borrow_alarm(void) {
  int alarm = -1;
  if (!mr_acquire(&alarm_lock)) return -1;
  if (alarm_count > 0) alarm = alarms[--alarm_count];
  mr_release(&alarm_lock);
  if (alarm >= 0) return alarm;
  if (!mr_acquire(&mr.lock)) return -1;
  const int watcher = mr_watcher();
  if (watcher >= 0) alarm = mr_own(real.epoll_create1(EPOLL_CLOEXEC));
  if (alarm >= 0) watch(alarm, watcher, EPOLLIN, 0);
  mr_release(&mr.lock);
  return alarm;
}

void mr_return_alarm(int alarm) {
  if (alarm < 0) return;
  if (mr_acquire(&alarm_lock)) {
    const bool has_room = alarm_count < 64;
    if (has_room) alarms[alarm_count++] = alarm;
    mr_release(&alarm_lock);
    if (has_room) return;
  }
  mr_disown(alarm);
}

void mr_clear_alarm(int alarm) {
  struct epoll_event event;
  const int saved = errno;
  real.epoll_wait(alarm, &event, 1, 0);
  // It may have been the daemon, which has something to say or has ended.
  if (mr_acquire(&mr.lock)) {
    mr_collect(true);
    mr_release(&mr.lock);
  }
  errno = saved;
}

void mr_forget_alarms(void) {
  alarm_lock.owner = 0;
  while (alarm_count > 0)
    mr_disown(alarms[--alarm_count]);
}

void mr_renumber_alarm(int fd, int moved) {
  if (!mr_acquire(&alarm_lock)) return;
  for (int i = 0; i < alarm_count; i++)
    if (alarms[i] == fd) alarms[i] = moved;
  mr_release(&alarm_lock);
}

// After SHUT_RD the socket says that the other end has sent its FIN, whether it has or not.
bool mr_has_fin(struct mr_connection *connection, int fd) {
  if (likely(!connection->is_read_shut)) return true;
  struct tcp_info info = {0};
  socklen_t size = sizeof(info);
  if (real.getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return true;
  return info.tcpi_state != TCP_ESTABLISHED && info.tcpi_state != TCP_FIN_WAIT1 && info.tcpi_state != TCP_FIN_WAIT2;
}

// The other end's FIN says that it has ended, unless it has said that it only sends no more.
void mr_check_peer(struct mr_connection *connection, int fd) {
  // Once it is plain again, the slot is none of its business.
  if (atomic_load(&connection->state) != MR_DIRECT) return;
  struct pollfd socket = {.fd = fd, .events = POLLRDHUP};
  const int saved = errno;
  const int count = real.poll(&socket, 1, 0);
  errno = saved;
  if (count <= 0 || (socket.revents & (POLLRDHUP | POLLHUP | POLLERR)) == 0) return;
  if ((socket.revents & POLLERR) == 0 && !mr_has_fin(connection, fd)) return;
  // Through a lane, only a reset says so by itself: an end may come before what was sent before it.
  if (connection->has_lane) {
    const bool is_reset = (socket.revents & POLLERR) != 0 || ((socket.revents & POLLHUP) != 0 && !connection->is_shut);
    if (is_reset) atomic_store(&connection->has_peer_ended, 1);
    if (connection->in_mode != MR_RING || connection->is_resumed) connection->has_heard_all = true;
    return;
  }
  if (atomic_load(&connection->in->is_shut) == 0 || (socket.revents & POLLERR) != 0)
    atomic_store(&connection->has_peer_ended, 1);
}
