// A preloaded library, for the bench only: plain TCP whose epoll_ctl calls are put off until
// epoll_wait and made only where the kernel's interest differs by then. It is the rival `ctl` of
// direct.redis.*: a part of what direct connections save is these calls. It is for programs that
// wait for each epoll in epoll_wait and not in poll or in another epoll.
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <time.h>

// Descriptors above are left to the kernel.
enum { MAX_FDS = 1 << 16 };

struct interest {
  bool is_in; // of the epoll
  struct epoll_event event;
};

// Of one descriptor in the first epoll that it was added to; in others it is left to the kernel.
struct entry {
  int epoll; // plus 1; 0: in none
  struct interest wanted, kernels;
  bool is_late;
  int next_late; // of the same epoll, plus 1
};

static struct entry entries[MAX_FDS];
static int first_late[MAX_FDS]; // of each epoll, plus 1
static bool is_epoll[MAX_FDS];
static int waiting[MAX_FDS]; // threads that are in epoll_wait, of each epoll
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int (*next_ctl)(int, int, int, struct epoll_event *);
static int (*next_wait)(int, struct epoll_event *, int, int);
static int (*next_pwait)(int, struct epoll_event *, int, int, const sigset_t *);
static int (*next_pwait2)(int, struct epoll_event *, int, const struct timespec *, const sigset_t *);
static int (*next_close)(int);

__attribute__((constructor)) static void start(void) {
  next_ctl = (int (*)(int, int, int, struct epoll_event *))dlsym(RTLD_NEXT, "epoll_ctl");
  next_wait = (int (*)(int, struct epoll_event *, int, int))dlsym(RTLD_NEXT, "epoll_wait");
  next_pwait = (int (*)(int, struct epoll_event *, int, int, const sigset_t *))dlsym(RTLD_NEXT, "epoll_pwait");
  next_pwait2 = (int (*)(int, struct epoll_event *, int, const struct timespec *, const sigset_t *))dlsym(
      RTLD_NEXT, "epoll_pwait2");
  next_close = (int (*)(int))dlsym(RTLD_NEXT, "close");
}

static bool is_kept(int fd) {
  return fd >= 0 && fd < MAX_FDS;
}

static bool is_same(const struct interest *a, const struct interest *b) {
  if (!a->is_in || !b->is_in) return a->is_in == b->is_in;
  return a->event.events == b->event.events && a->event.data.u64 == b->event.data.u64;
}

// Makes the kernel's interest what is wanted.
static int apply(int fd) {
  struct entry *entry = &entries[fd];
  if (is_same(&entry->wanted, &entry->kernels)) return 0;
  int operation = !entry->wanted.is_in ? EPOLL_CTL_DEL : entry->kernels.is_in ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
  int result = next_ctl(entry->epoll - 1, operation, fd, &entry->wanted.event);
  // What the kernel refused is not in the epoll.
  if (result != 0 && operation == EPOLL_CTL_ADD) entry->wanted.is_in = false;
  entry->kernels = entry->wanted;
  return result;
}

static void apply_late(int epoll) {
  while (first_late[epoll] > 0) {
    int fd = first_late[epoll] - 1;
    first_late[epoll] = entries[fd].next_late;
    entries[fd].is_late = false;
    apply(fd);
  }
}

static int put_off(int epoll, int fd) {
  struct entry *entry = &entries[fd];
  if (!entry->is_late) {
    entry->is_late = true;
    entry->next_late = first_late[epoll];
    first_late[epoll] = fd + 1;
  }
  return 0;
}

// What the kernel would have answered. Whether a new descriptor can be watched at all only the
// kernel knows, so the first one is added at once.
static int change(int epoll, int operation, int fd, struct epoll_event *event) {
  struct entry *entry = &entries[fd];
  bool is_add = operation == EPOLL_CTL_ADD, is_delete = operation == EPOLL_CTL_DEL;
  if (is_add == entry->wanted.is_in) {
    errno = is_add ? EEXIST : ENOENT;
    return -1;
  }
  entry->wanted.is_in = !is_delete;
  if (!is_delete) entry->wanted.event = *event;
  bool is_new = is_add && !entry->kernels.is_in;
  // The same interest once more means something with these flags; a thread that already sleeps
  // does not hear of what comes later.
  bool is_special = !is_delete && event->events & (EPOLLET | EPOLLONESHOT | EPOLLEXCLUSIVE | EPOLLWAKEUP);
  if (is_special && entry->kernels.is_in) entry->kernels.event.events = ~event->events;
  if (is_new || is_special || waiting[epoll] > 0) return apply(fd);
  return put_off(epoll, fd);
}

int epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event) {
  bool is_known = operation == EPOLL_CTL_ADD || operation == EPOLL_CTL_MOD || operation == EPOLL_CTL_DEL;
  if (!is_kept(epoll) || !is_kept(fd) || !is_known || (operation != EPOLL_CTL_DEL && event == NULL))
    return next_ctl(epoll, operation, fd, event);
  pthread_mutex_lock(&lock);
  struct entry *entry = &entries[fd];
  bool is_free = !entry->is_late && !entry->wanted.is_in;
  if (is_free && operation == EPOLL_CTL_ADD) *entry = (struct entry){.epoll = epoll + 1};
  bool is_ours = entry->epoll == epoll + 1;
  is_epoll[epoll] |= is_ours;
  int result = is_ours ? change(epoll, operation, fd, event) : 0;
  pthread_mutex_unlock(&lock);
  return is_ours ? result : next_ctl(epoll, operation, fd, event);
}

static void before_wait(int epoll) {
  if (!is_kept(epoll)) return;
  pthread_mutex_lock(&lock);
  apply_late(epoll);
  waiting[epoll]++;
  pthread_mutex_unlock(&lock);
}

static int after_wait(int epoll, int result) {
  int error = errno;
  if (!is_kept(epoll)) return result;
  pthread_mutex_lock(&lock);
  waiting[epoll]--;
  pthread_mutex_unlock(&lock);
  errno = error;
  return result;
}

int epoll_wait(int epoll, struct epoll_event *events, int count, int timeout) {
  before_wait(epoll);
  return after_wait(epoll, next_wait(epoll, events, count, timeout));
}

int epoll_pwait(int epoll, struct epoll_event *events, int count, int timeout, const sigset_t *mask) {
  before_wait(epoll);
  return after_wait(epoll, next_pwait(epoll, events, count, timeout, mask));
}

int epoll_pwait2(int epoll, struct epoll_event *events, int count, const struct timespec *timeout,
                 const sigset_t *mask) {
  before_wait(epoll);
  return after_wait(epoll, next_pwait2(epoll, events, count, timeout, mask));
}

// The kernel forgets what is closed, and all descriptors of an epoll that is.
static void forget(int fd) {
  struct entry *entry = &entries[fd];
  if (entry->is_late) {
    int *link = &first_late[entry->epoll - 1];
    while (*link != fd + 1)
      link = &entries[*link - 1].next_late;
    *link = entry->next_late;
  }
  *entry = (struct entry){0};
}

int close(int fd) {
  if (is_kept(fd)) {
    pthread_mutex_lock(&lock);
    forget(fd);
    for (int each = 0; is_epoll[fd] && each < MAX_FDS; each++)
      if (entries[each].epoll == fd + 1) forget(each);
    is_epoll[fd] = false;
    pthread_mutex_unlock(&lock);
  }
  if (next_close == NULL) start(); // another library's constructor came first
  return next_close(fd);
}
