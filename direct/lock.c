// The library's lock: a word with its owner's thread id, in private or shared memory.
#include "internal.h"

#include <sched.h>
#include <unistd.h>
#include <sys/syscall.h>

#include "real.h"

static __thread int32_t thread_id;

int32_t mr_thread_id(void) {
  if (unlikely(thread_id == 0)) thread_id = (int32_t)real.syscall(SYS_gettid);
  return thread_id;
}

void mr_forget_thread(void) {
  thread_id = 0;
}

static bool is_dead(uint32_t owner) {
  const int saved = errno;
  const bool is_gone = real.syscall(SYS_tkill, owner, 0) != 0 && errno == ESRCH;
  errno = saved;
  return is_gone;
}

bool mr_try_acquire(struct mr_lock *lock) {
  uint32_t nobody = 0;
  return atomic_compare_exchange_strong_explicit(&lock->owner, &nobody, (uint32_t)mr_thread_id(), memory_order_acquire,
                                                 memory_order_relaxed);
}

bool mr_acquire(struct mr_lock *lock) {
  const uint32_t self = (uint32_t)mr_thread_id();
  for (uint32_t tries = 1;; tries++) {
    uint32_t owner = 0;
    // Acquire: its partner is the release of the owner before.
    if (atomic_compare_exchange_weak_explicit(&lock->owner, &owner, self, memory_order_acquire, memory_order_relaxed))
      return true;
    if (owner == self) return false;
    if (owner == 0) continue;
    if (tries < 64) {
      __builtin_ia32_pause();
    } else if (tries < 512) {
      sched_yield();
    } else {
      const struct timespec nap = {.tv_nsec = 50000};
      nanosleep(&nap, NULL);
      if (tries % 64 != 0 || !is_dead(owner)) continue;
      if (atomic_compare_exchange_strong_explicit(&lock->owner, &owner, self, memory_order_acquire,
                                                  memory_order_relaxed))
        return true;
    }
  }
}

void mr_release(struct mr_lock *lock) {
  // Release: its partner is the acquire of the next owner.
  atomic_store_explicit(&lock->owner, 0, memory_order_release);
}
