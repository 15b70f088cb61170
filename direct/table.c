// Which descriptors are tracked connections, epoll sets, or the library's own.
#include "internal.h"
#include "real.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

// In the first element of the connections, which forked children share.
struct pool {
  struct mr_lock lock;
  uint32_t free; // index of the first free one, 0: none
  uint32_t used; // those up to here were used once
};

_Static_assert(sizeof(struct pool) <= sizeof(struct mr_connection), "the pool has one element's place");

static struct pool *pool(void) {
  return (struct pool *)mr.connections;
}

enum mr_kind mr_kind_of(int fd) {
  if ((uint32_t)fd >= mr.table_size) return MR_NONE;
  return (enum mr_kind)(atomic_load_explicit(&mr_table[fd], memory_order_acquire) & 3);
}

void mr_set_entry(int fd, enum mr_kind kind, void *object) {
  if ((uint32_t)fd >= mr.table_size) return;
  atomic_store_explicit(&mr_table[fd], (uintptr_t)object | kind, memory_order_release);
  uint32_t highest = atomic_load_explicit(&mr.highest_fd, memory_order_relaxed);
  while (kind != MR_NONE && (uint32_t)fd > highest &&
         !atomic_compare_exchange_weak(&mr.highest_fd, &highest, (uint32_t)fd)) {
  }
}

void *mr_entry(int fd, enum mr_kind kind) {
  if ((uint32_t)fd >= mr.table_size) return NULL;
  const uintptr_t entry = atomic_load_explicit(&mr_table[fd], memory_order_acquire);
  return (entry & 3) == (uintptr_t)kind ? (void *)(entry & ~(uintptr_t)3) : NULL;
}

struct mr_connection *mr_enter(int fd) {
  for (;;) {
    struct mr_connection *connection = mr_entry(fd, MR_CONNECTION);
    if (connection == NULL) return NULL;
    atomic_fetch_add_explicit(&connection->users, 1, memory_order_acq_rel);
    // It may have been closed, and used again, in between.
    if (mr_entry(fd, MR_CONNECTION) == connection) return connection;
    mr_leave(connection);
  }
}

static void give_back(struct mr_connection *connection) {
  uint32_t closed = 1;
  if (!atomic_compare_exchange_strong(&connection->closed, &closed, 2)) return;
  if (!mr_acquire(&pool()->lock)) return; // a signal handler: this one is lost
  connection->id = pool()->free;
  pool()->free = connection->index;
  mr_release(&pool()->lock);
}

void mr_leave(struct mr_connection *connection) {
  if (atomic_fetch_sub_explicit(&connection->users, 1, memory_order_acq_rel) == 1 &&
      atomic_load_explicit(&connection->closed, memory_order_acquire) == 1)
    give_back(connection);
}

static bool is_alive(int32_t pid) {
  const int saved = errno;
  const bool is_there = kill(pid, 0) == 0 || errno != ESRCH;
  errno = saved;
  return is_there;
}

bool mr_is_shared(struct mr_connection *connection) {
  if (atomic_load(&connection->forks) != 0) return true;
  const int32_t self = atomic_load(&mr.pid);
  for (int i = 0; i < MR_HOLDERS; i++) {
    int32_t pid = atomic_load(&connection->holders[i]);
    if (pid == 0 || pid == self) continue;
    if (is_alive(pid)) return true;
    atomic_compare_exchange_strong(&connection->holders[i], &pid, 0);
  }
  return false;
}

// Connections of children that ended without closing them.
static void sweep(void) {
  for (uint32_t index = 1; index < pool()->used; index++) {
    struct mr_connection *connection = &mr.connections[index];
    if (atomic_load(&connection->closed) != 0 || mr.locals[index].fds != 0 || mr_is_shared(connection)) continue;
    atomic_store(&connection->closed, 2);
    connection->id = pool()->free;
    pool()->free = index;
  }
}

static struct mr_connection *take_one(void) {
  struct pool *all = pool();
  if (!mr_acquire(&all->lock)) return NULL;
  if (all->used == 0) all->used = 1;
  if (all->free == 0 && all->used == MR_MAX_CONNECTIONS) sweep();
  struct mr_connection *one = NULL;
  if (all->free != 0) {
    one = &mr.connections[all->free];
    all->free = one->id;
  } else if (all->used < MR_MAX_CONNECTIONS) {
    one = &mr.connections[all->used];
    one->index = all->used++;
  }
  if (one != NULL) {
    const uint32_t index = one->index;
    memset(one, 0, sizeof(*one));
    one->index = index;
  }
  mr_release(&all->lock);
  return one;
}

void mr_track(int fd, bool is_nonblocking) {
  if (mr.is_off || (uint32_t)fd >= mr.table_size) return;
  struct mr_connection *connection = take_one();
  if (connection == NULL) return;
  connection->is_nonblocking = is_nonblocking;
  connection->low_water = 1;
  connection->offer_at = mr.offer_after;
  atomic_store(&connection->holders[0], atomic_load(&mr.pid));
  *mr_local_of(connection) = (struct mr_local){.fds = 1, .fd = fd};
  mr_set_entry(fd, MR_CONNECTION, connection);
}

void mr_alias(int fd, int copy) {
  struct mr_connection *connection = mr_entry(fd, MR_CONNECTION);
  if (connection == NULL || (uint32_t)copy >= mr.table_size) return;
  mr_local_of(connection)->fds++;
  mr_set_entry(copy, MR_CONNECTION, connection);
}

static void remove_holder(struct mr_connection *connection) {
  for (int i = 0; i < MR_HOLDERS; i++) {
    int32_t self = atomic_load(&mr.pid);
    atomic_compare_exchange_strong(&connection->holders[i], &self, 0);
  }
}

void mr_untrack(int fd) {
  struct mr_connection *connection = mr_enter(fd);
  if (connection == NULL) return;
  struct mr_local *local = mr_local_of(connection);
  const bool is_last = local->fds <= 1;
  if (is_last && connection->id != 0 && !mr_is_shared(connection)) mr_members_unwatched(connection);
  mr_members_closed(connection, is_last ? -1 : fd);
  if (is_last) mr_depart(connection, fd);
  mr_set_entry(fd, MR_NONE, NULL);
  if (!is_last) {
    local->fds--;
    // Another descriptor of it: there are few, and this is rare.
    for (uint32_t other = 0; local->fd == fd && other <= atomic_load(&mr.highest_fd); other++)
      if (mr_entry((int)other, MR_CONNECTION) == connection) local->fd = (int)other;
  } else {
    local->fds = 0;
    const bool is_shared = mr_is_shared(connection);
    remove_holder(connection);
    if (!is_shared) atomic_store_explicit(&connection->closed, 1, memory_order_release);
  }
  mr_leave(connection);
}

// Before a fork: until the child has entered itself, it may be anywhere.
void mr_table_forking(void) {
  const uint32_t highest = atomic_load(&mr.highest_fd);
  for (uint32_t fd = 0; fd <= highest && fd < mr.table_size; fd++) {
    struct mr_connection *connection = mr_entry((int)fd, MR_CONNECTION);
    if (connection != NULL && mr_local_of(connection)->fd == (int)fd) atomic_fetch_add(&connection->forks, 1);
  }
}

void mr_table_forked(void) {
  const uint32_t highest = atomic_load(&mr.highest_fd);
  for (uint32_t fd = 0; fd <= highest && fd < mr.table_size; fd++) {
    struct mr_connection *connection = mr_entry((int)fd, MR_CONNECTION);
    if (connection == NULL || mr_local_of(connection)->fd != (int)fd) continue;
    bool is_entered = false;
    for (int i = 0; i < MR_HOLDERS && !is_entered; i++) {
      int32_t none = 0;
      is_entered = atomic_compare_exchange_strong(&connection->holders[i], &none, (int32_t)getpid());
    }
    // Too many share it: from now on it counts as shared for good.
    if (is_entered) atomic_fetch_sub(&connection->forks, 1);
  }
}

int mr_own(int fd) {
  if (fd < 0) return fd;
  struct rlimit limit;
  uint64_t lowest = 768;
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) lowest = limit.rlim_cur > 16384 ? 8192 : limit.rlim_cur * 3 / 4;
  const int moved = real.fcntl(fd, F_DUPFD_CLOEXEC, (int)lowest);
  real.close(fd);
  if (moved >= 0 && (uint32_t)moved >= mr.table_size) {
    real.close(moved);
    return -1;
  }
  if (moved >= 0) mr_set_entry(moved, MR_OWN, NULL);
  return moved;
}

void mr_disown(int fd) {
  mr_set_entry(fd, MR_NONE, NULL);
  real.close(fd);
}

void mr_relocate(int fd) {
  if (!mr_acquire(&mr.lock)) return;
  // The copy keeps what epoll sets have under the old number alive.
  const int moved = real.fcntl(fd, F_DUPFD_CLOEXEC, fd + 1);
  mr_set_entry(fd, MR_NONE, NULL);
  if (moved >= 0) mr_set_entry(moved, MR_OWN, NULL);
  if (mr.control == fd) mr.control = moved;
  if (mr.watch == fd) mr.watch = moved;
  if (mr.news == fd) mr.news = moved;
  for (uint32_t i = 0; i < mr.arena_count; i++) {
    if (mr.arenas[i].ours == fd) mr.arenas[i].ours = moved;
    if (mr.arenas[i].theirs == fd) mr.arenas[i].theirs = moved;
  }
  mr_release(&mr.lock);
  mr_renumber_alarm(fd, moved);
}

// The number does not stand for what the table says any more. Nothing is done to the socket that it
// stands for now.
void mr_mistaken(int fd) {
  struct mr_connection *connection = mr_enter(fd);
  if (connection == NULL) {
    mr_set_entry(fd, MR_NONE, NULL);
    return;
  }
  struct mr_local *local = mr_local_of(connection);
  const bool is_last = local->fds <= 1;
  mr_members_closed(connection, is_last ? -1 : fd);
  mr_set_entry(fd, MR_NONE, NULL);
  local->fds = is_last ? 0 : local->fds - 1;
  if (is_last) {
    mr_leave_slot_of(connection);
    const bool is_shared = mr_is_shared(connection);
    remove_holder(connection);
    if (!is_shared) atomic_store_explicit(&connection->closed, 1, memory_order_release);
  }
  mr_leave(connection);
}
