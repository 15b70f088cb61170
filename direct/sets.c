// Epoll sets: which connections are in which, and who may be ready. All under the process lock.
#include "sets.h"
#include "real.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MR_CHUNK_BYTES = 1 << 20 };

static struct mr_member *free_members;
static struct mr_set *free_sets;

// Elements of one size, never given back to the kernel.
static void *more(size_t size, size_t *count) {
  uint8_t *chunk = mmap(NULL, MR_CHUNK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  *count = MR_CHUNK_BYTES / size;
  return chunk == MAP_FAILED ? NULL : chunk;
}

static struct mr_member *new_member(void) {
  size_t count;
  if (free_members == NULL) {
    struct mr_member *chunk = more(sizeof(*chunk), &count);
    if (chunk == NULL) return NULL;
    for (size_t i = 0; i < count; i++) {
      chunk[i].next_ready = free_members;
      free_members = &chunk[i];
    }
  }
  struct mr_member *member = free_members;
  free_members = member->next_ready;
  memset(member, 0, sizeof(*member));
  return member;
}

struct mr_set *mr_set_of(int fd) {
  return mr_entry(fd, MR_SET);
}

struct mr_set *mr_make_set(int fd) {
  if (mr.is_off || (uint32_t)fd >= mr.table_size) return NULL;
  size_t count;
  if (free_sets == NULL) {
    struct mr_set *chunk = more(sizeof(*chunk), &count);
    if (chunk == NULL) return NULL;
    for (size_t i = 0; i < count; i++) {
      chunk[i].next_free = free_sets;
      free_sets = &chunk[i];
    }
  }
  struct mr_set *set = free_sets;
  free_sets = set->next_free;
  memset(set, 0, sizeof(*set));
  set->fd = fd;
  set->refs = 1;
  set->ready.next_ready = set->ready.previous_ready = &set->ready;
  mr_set_entry(fd, MR_SET, set);
  return set;
}

static void unlist(struct mr_member *member) {
  if (!member->is_listed) return;
  member->previous_ready->next_ready = member->next_ready;
  member->next_ready->previous_ready = member->previous_ready;
  member->is_listed = false;
}

void mr_list_member(struct mr_member *member) {
  if (member->is_listed || member->is_disabled) return;
  struct mr_member *head = &member->set->ready;
  member->next_ready = head;
  member->previous_ready = head->previous_ready;
  head->previous_ready->next_ready = member;
  head->previous_ready = member;
  member->is_listed = true;
}

struct mr_member *mr_member_of(struct mr_set *set, struct mr_connection *connection, int fd) {
  struct mr_member *member = mr_local_of(connection)->members;
  while (member != NULL && (member->set != set || member->fd != fd))
    member = member->next_of_connection;
  return member;
}

void mr_make_direct(struct mr_member *member) {
  struct mr_set *set = member->set;
  const int32_t self = atomic_load(&mr.pid);
  if (!set->has_watch || set->watched_by != self) {
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u64 = MR_WATCH_DATA};
    const int watcher = mr_watcher();
    set->has_watch = watcher >= 0 && real.epoll_ctl(set->fd, EPOLL_CTL_ADD, watcher, &event) == 0;
    set->watched_by = self;
    mr.has_watched = mr.has_watched || set->has_watch;
  }
  member->is_direct = true;
  set->direct_count++;
  mr_list_member(member);
}

bool mr_add_member(struct mr_set *set, struct mr_connection *connection, int fd, const struct epoll_event *event) {
  struct mr_member *member = new_member();
  if (member == NULL) return false;
  struct mr_local *local = mr_local_of(connection);
  member->set = set;
  member->connection = connection;
  member->fd = fd;
  member->events = event->events;
  member->data = event->data.u64;
  member->next_of_connection = local->members;
  local->members = member;
  return true;
}

void mr_remove_member(struct mr_member *member) {
  struct mr_member **link = &mr_local_of(member->connection)->members;
  while (*link != member)
    link = &(*link)->next_of_connection;
  *link = member->next_of_connection;
  unlist(member);
  if (member->is_direct) member->set->direct_count--;
  member->next_ready = free_members;
  free_members = member;
}

void mr_close_set(int fd) {
  struct mr_set *set = mr_set_of(fd);
  if (set == NULL) return;
  mr_set_entry(fd, MR_NONE, NULL);
  const uint32_t highest = atomic_load(&mr.highest_fd);
  if (--set->refs > 0) {
    for (uint32_t other = 0; set->fd == fd && other <= highest && other < mr.table_size; other++)
      if (mr_set_of((int)other) == set) set->fd = (int)other;
    return;
  }
  for (uint32_t other = 0; other <= highest && other < mr.table_size; other++) {
    struct mr_connection *connection = mr_entry((int)other, MR_CONNECTION);
    struct mr_member *member = connection == NULL ? NULL : mr_local_of(connection)->members;
    while (member != NULL) {
      struct mr_member *next = member->next_of_connection;
      if (member->set == set) mr_remove_member(member);
      member = next;
    }
  }
  set->next_free = free_sets;
  free_sets = set;
}

void mr_pin_set(int fd) {
  struct mr_set *set = mr_set_of(fd);
  if (set == NULL) return;
  set->is_pinned = true;
  const uint32_t highest = atomic_load(&mr.highest_fd);
  for (uint32_t other = 0; other <= highest && other < mr.table_size; other++) {
    struct mr_connection *connection = mr_enter((int)other);
    if (connection == NULL) continue;
    bool is_in = false;
    for (struct mr_member *member = mr_local_of(connection)->members; member != NULL && !is_in;
         member = member->next_of_connection)
      is_in = member->set == set;
    if (is_in) mr_demote(connection, (int)other, true);
    mr_leave(connection);
  }
  mr_members_present(set);
  // Who waits for the set itself would be told of doorbells.
  if (!set->has_watch || set->watched_by != atomic_load(&mr.pid) || !mr_acquire(&mr.lock)) return;
  if (set->direct_count == 0 && real.epoll_ctl(set->fd, EPOLL_CTL_DEL, mr.watch, NULL) == 0) set->has_watch = false;
  mr_release(&mr.lock);
}

// What connections tell

void mr_members_ready(struct mr_connection *connection) {
  struct mr_member *member = mr_local_of(connection)->members;
  for (; member != NULL; member = member->next_of_connection)
    if (member->is_direct) mr_list_member(member);
}

static bool is_shot_line(const char *line, int fd) {
  if (strncmp(line, "tfd:", 4) != 0) return false;
  char *rest;
  if (strtol(line + 4, &rest, 10) != fd) return false;
  const char *events = strstr(rest, "events:");
  if (events == NULL) return false;
  // The kernel keeps EPOLLERR and EPOLLHUP in all that are armed.
  return (strtoul(events + 7, NULL, 16) & (EPOLLERR | EPOLLHUP)) == 0;
}

// Whether the kernel has told of a one-shot member already; only it knows.
static bool is_shot(int poller, int fd) {
  char path[] = "/proc/self/fdinfo/0000000000";
  char *digit = path + sizeof(path) - 1;
  for (int rest = poller, i = 0; i < 10; i++, rest /= 10)
    *--digit = (char)('0' + rest % 10);
  while (digit[0] == '0' && digit[1] != 0)
    digit++;
  memmove(path + 18, digit, strlen(digit) + 1);
  const int file = (int)real.syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  char line[256];
  size_t length = 0;
  bool is_found = false;
  char bytes[1024];
  for (ssize_t got; !is_found && (got = real.read(file, bytes, sizeof(bytes))) > 0;) {
    for (ssize_t i = 0; i < got && !is_found; i++) {
      if (bytes[i] != '\n') {
        if (length < sizeof(line) - 1) line[length++] = bytes[i];
        continue;
      }
      line[length] = 0;
      length = 0;
      is_found = is_shot_line(line, fd);
    }
  }
  real.close(file);
  return is_found;
}

void mr_members_direct(struct mr_connection *connection) {
  struct mr_member *member = mr_local_of(connection)->members;
  for (; member != NULL; member = member->next_of_connection) {
    if ((member->events & EPOLLONESHOT) != 0)
      member->is_disabled = member->is_disabled || is_shot(member->set->fd, member->fd);
    real.epoll_ctl(member->set->fd, EPOLL_CTL_DEL, member->fd, NULL);
    member->is_absent = false;
    mr_make_direct(member);
  }
}

void mr_make_kernel(struct mr_member *member) {
  unlist(member);
  member->is_direct = false;
  member->set->direct_count--;
  struct epoll_event event = {.events = member->events, .data.u64 = member->data};
  // The kernel knows no way to add one that was shot already: it would tell of errors.
  member->is_absent = member->is_disabled;
  if (!member->is_absent) real.epoll_ctl(member->set->fd, EPOLL_CTL_ADD, member->fd, &event);
}

// Of one that the kernel watches, or would if it were armed.
int mr_change_kernel(struct mr_member *member, int operation, struct epoll_event *event) {
  const int set = member->set->fd, fd = member->fd;
  const bool was_absent = member->is_absent;
  if (!was_absent) return real.epoll_ctl(set, operation, fd, event);
  if (operation == EPOLL_CTL_ADD) {
    errno = EEXIST;
    return -1;
  }
  member->is_absent = false;
  if (operation == EPOLL_CTL_MOD && real.epoll_ctl(set, EPOLL_CTL_ADD, fd, event) == 0) return 0;
  // A process that shares the set may have armed it.
  const int result = real.epoll_ctl(set, operation, fd, event);
  return operation == EPOLL_CTL_DEL ? 0 : result;
}

// For somebody who knows of the kernel's set alone: there they tell of errors, and of nothing else.
void mr_members_present(const struct mr_set *set) {
  const uint32_t highest = atomic_load(&mr.highest_fd);
  if (!mr_acquire(&mr.lock)) return;
  for (uint32_t fd = 0; fd <= highest && fd < mr.table_size; fd++) {
    struct mr_connection *connection = mr_entry((int)fd, MR_CONNECTION);
    struct mr_member *member = connection == NULL ? NULL : mr_local_of(connection)->members;
    for (; member != NULL; member = member->next_of_connection) {
      if (!member->is_absent || (set != NULL && member->set != set)) continue;
      struct epoll_event event = {.events = member->events & (EPOLLONESHOT | EPOLLET), .data.u64 = member->data};
      member->is_absent = false;
      real.epoll_ctl(member->set->fd, EPOLL_CTL_ADD, member->fd, &event);
    }
  }
  mr_release(&mr.lock);
}

void mr_members_kernel(struct mr_connection *connection) {
  struct mr_member *member = mr_local_of(connection)->members;
  for (; member != NULL; member = member->next_of_connection)
    if (member->is_direct) mr_make_kernel(member);
}

// Before the last descriptor is closed of a connection that was offered. The daemon may not have
// closed its copy of the socket yet, and until then the kernel would tell of it.
void mr_members_unwatched(struct mr_connection *connection) {
  if (mr_local_of(connection)->members == NULL || !mr_acquire(&mr.lock)) return;
  struct mr_member *member = mr_local_of(connection)->members;
  for (; member != NULL; member = member->next_of_connection)
    if (!member->is_direct) real.epoll_ctl(member->set->fd, EPOLL_CTL_DEL, member->fd, NULL);
  mr_release(&mr.lock);
}

// `fd` is closed; -1: all descriptors of the connection.
void mr_members_closed(struct mr_connection *connection, int fd) {
  if (mr_local_of(connection)->members == NULL || !mr_acquire(&mr.lock)) return;
  struct mr_member *member = mr_local_of(connection)->members;
  while (fd < 0 && member != NULL) {
    struct mr_member *next = member->next_of_connection;
    mr_remove_member(member);
    member = next;
  }
  mr_release(&mr.lock);
}

// In a child the sets are the parent's, as far as direct connections are concerned.
void mr_sets_forked(void) {
  const uint32_t highest = atomic_load(&mr.highest_fd);
  for (uint32_t fd = 0; fd <= highest && fd < mr.table_size; fd++) {
    struct mr_set *set = mr_set_of((int)fd);
    if (set != NULL) set->is_inherited = true;
  }
}

int mr_take_ready(struct mr_set *set, struct epoll_event *events, int most) {
  int count = 0;
  struct mr_member *member = set->ready.next_ready;
  // Those that stay ready are moved to the end, so that the last one of now is known.
  struct mr_member *last = set->ready.previous_ready;
  while (member != &set->ready && count < most) {
    struct mr_member *next = member->next_ready;
    const bool is_last = member == last;
    // A child has taken it back to TCP.
    if (unlikely(atomic_load(&member->connection->state) == MR_PLAIN)) {
      mr_make_kernel(member);
      if (is_last) break;
      member = next;
      continue;
    }
    const uint32_t got = mr_events(member->connection, member->fd, member->events) &
                         (member->events | EPOLLERR | EPOLLHUP) & ~(uint32_t)(EPOLLET | EPOLLONESHOT | EPOLLEXCLUSIVE);
    unlist(member);
    if (got != 0) {
      events[count++] = (struct epoll_event){.events = got, .data.u64 = member->data};
      if ((member->events & EPOLLONESHOT) != 0) {
        member->is_disabled = true;
      } else if ((member->events & EPOLLET) == 0) {
        mr_list_member(member);
      }
    }
    if (is_last) break;
    member = next;
  }
  return count;
}
