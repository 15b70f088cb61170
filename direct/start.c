// The library's beginning, its end, and what happens to it at fork.
#include "internal.h"
#include "real.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

struct mr_process mr = {.control = -1, .watch = -1, .news = -1};
struct mr_reals real;
bool mr_is_resolved;
_Atomic uintptr_t *mr_table;

#define NEXT ((void *)-1L)
void *dlsym(void *, const char *);

static void *reserve(size_t size_bytes, int kind) {
  void *memory = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, kind | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? NULL : memory;
}

static void before_fork(void) {
  mr_acquire(&mr.lock);
  mr_table_forking();
}

static void after_fork_here(void) {
  mr_release(&mr.lock);
}

static void after_fork_child(void) {
  mr_forget_thread();
  atomic_store(&mr.pid, (int32_t)getpid());
  // The conversation with the daemon, the doorbells' epolls and the alarms stay the parent's.
  if (mr.control >= 0) mr_disown(mr.control);
  if (mr.watch >= 0) mr_disown(mr.watch);
  if (mr.news >= 0) mr_disown(mr.news);
  mr.control = -1;
  mr.watch = mr.news = -1;
  atomic_store(&mr.desk, NULL);
  mr.next_dial_ns = 0;
  for (uint32_t i = 0; i < mr.arena_count; i++)
    mr.arenas[i].is_inherited = true;
  mr_forget_alarms();
  mr_table_forked();
  mr_sets_forked();
  mr_release(&mr.lock);
}

void mr_forked_without_handlers(void) {
  mr_acquire(&mr.lock);
  mr_table_forking();
  after_fork_child();
}

// Weak: each libc has one of them, and a look-up that finds nothing allocates memory.
int __register_atfork(void (*)(void), void (*)(void), void (*)(void), void *) __attribute__((weak));
int pthread_atfork(void (*)(void), void (*)(void), void (*)(void)) __attribute__((weak));

static bool follow_forks(void) {
  if (__register_atfork != NULL) return __register_atfork(before_fork, after_fork_here, after_fork_child, NULL) == 0;
  return pthread_atfork != NULL && pthread_atfork(before_fork, after_fork_here, after_fork_child) == 0;
}

// The functions behind ours. Some allocators call them from within malloc, before any constructor,
// so nothing here may allocate.
void mr_resolve(void) {
#define MR_RESOLVE(name, result, parameters) real.name = dlsym(NEXT, #name);
  MR_REALS(MR_RESOLVE)
}

// Until this has run, no descriptor is tracked.
__attribute__((constructor)) static void start(void) {
  mr_ensure_resolved();
  MR_OPTIONAL_REALS(MR_RESOLVE)
  const char *wish = getenv("MILLRACE_DIRECT");
  mr.is_verbose = wish != NULL && strcmp(wish, "verbose") == 0;
  mr.is_off = wish != NULL && strcmp(wish, "off") == 0;
  atomic_store(&mr.pid, (int32_t)getpid());
  if (mr.is_off) return;
  mr_remember_daemon(getenv("MILLRACE_DIRECT_SOCKET"));
  const char *after = getenv("MILLRACE_DIRECT_AFTER");
  mr.offer_after =
      after == NULL || after[0] < '0' || after[0] > '9' ? MR_OFFER_AFTER : (uint32_t)strtoul(after, NULL, 10);
  mr_table = reserve(sizeof(uintptr_t) * MR_MAX_FDS, MAP_PRIVATE);
  mr.arenas = reserve(sizeof(struct mr_arena_map) * MR_MAX_ARENAS, MAP_PRIVATE);
  mr.locals = reserve(sizeof(struct mr_local) * MR_MAX_CONNECTIONS, MAP_PRIVATE);
  mr.connections = reserve(sizeof(struct mr_connection) * MR_MAX_CONNECTIONS, MAP_SHARED);
  mr.is_off = mr_table == NULL || mr.arenas == NULL || mr.locals == NULL || mr.connections == NULL || !follow_forks();
  mr.table_size = mr.is_off ? 0 : MR_MAX_FDS;
}

void mr_say(const char *text) {
  if (!mr.is_verbose) return;
  const int saved = errno;
  struct iovec parts[] = {{.iov_base = "millrace: ", .iov_len = 10},
                          {.iov_base = (void *)text, .iov_len = strlen(text)},
                          {.iov_base = "\n", .iov_len = 1}};
  real.writev(2, parts, 3);
  errno = saved;
}

__attribute__((destructor)) static void end(void) {
  mr_flush_all();
}
