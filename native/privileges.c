// What threads of this process may do. Capabilities, the bounding set and no_new_privs belong to a
// thread, and only the thread itself can change them, so others are told to by a signal, as glibc
// does for setuid(2).
#include "addon.h"

#include <linux/capability.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// glibc's signal for setuid(2). It takes it out of every mask that a program sets, so it reaches
// threads that block all signals, as one of Node's does.
static const int internal_signal = 33;
static const int kernel_sigset_bytes = 8;

enum { IDLE, WANTED, DONE };

static struct {
  atomic_int state; // a futex
  pid_t thread;
  uint64_t keep;
  int result;
} request;

// The kernel's struct sigaction, opaque: its layout differs between processors.
struct kernel_action {
  uint64_t words[8];
};

// Only makes system calls: it runs in a signal handler, too. 0, or -errno of the first that failed.
static int limit_this_thread(uint64_t keep) {
  int failed = 0;
  if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0) failed = -errno;
  for (int number = 0; number < 64; number++) {
    const int has = prctl(PR_CAPBSET_READ, number, 0, 0, 0);
    if (has < 0) break; // past the last one that this kernel knows
    const bool is_kept = (keep >> number & 1) != 0;
    if (has == 1 && !is_kept && prctl(PR_CAPBSET_DROP, number, 0, 0, 0) < 0 && failed == 0) failed = -errno;
  }
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 && failed == 0) failed = -errno;
  struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  struct __user_cap_data_struct data[2] = {0};
  if (syscall(SYS_capget, &header, data) < 0) return -errno;
  for (int half = 0; half < 2; half++) {
    const uint32_t kept = (uint32_t)(keep >> (32 * half));
    data[half].permitted &= kept;
    data[half].effective &= kept;
    data[half].inheritable = 0;
  }
  if (syscall(SYS_capset, &header, data) < 0 && failed == 0) failed = -errno;
  return failed;
}

static void hear(int signal, siginfo_t *info, void *context) {
  const int saved = errno;
  if (atomic_load(&request.state) == WANTED && request.thread == gettid()) {
    request.result = limit_this_thread(request.keep);
    atomic_store(&request.state, DONE);
    syscall(SYS_futex, &request.state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
  }
  errno = saved;
}

// sigaction(2) of glibc refuses its own signals, so the kernel's call is made here. What it needs
// in addition (how a handler returns) is taken from a signal that glibc has set up.
static int take_over(struct kernel_action *before) {
  const struct sigaction ours = {.sa_sigaction = hear, .sa_flags = SA_SIGINFO | SA_RESTART};
  struct sigaction other;
  struct kernel_action action;
  if (sigaction(SIGRTMAX, &ours, &other) < 0) return -errno;
  const long got = syscall(SYS_rt_sigaction, SIGRTMAX, NULL, &action, kernel_sigset_bytes);
  sigaction(SIGRTMAX, &other, NULL);
  if (got < 0) return -errno;
  return syscall(SYS_rt_sigaction, internal_signal, &action, before, kernel_sigset_bytes) < 0 ? -errno : 0;
}

static int await_answer(double timeout_ns) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  const double end_ns = (double)now.tv_sec * 1e9 + (double)now.tv_nsec + timeout_ns;
  const struct timespec end = mr_timespec(end_ns);
  while (atomic_load(&request.state) != DONE) {
    // FUTEX_WAIT_BITSET takes the time at which to stop, so that interruptions do not matter.
    const long woken =
        syscall(SYS_futex, &request.state, FUTEX_WAIT_BITSET_PRIVATE, WANTED, &end, NULL, FUTEX_BITSET_MATCH_ANY);
    if (woken < 0 && errno == ETIMEDOUT) return -ETIMEDOUT;
  }
  return request.result;
}

static int limit_other_thread(pid_t thread, uint64_t keep, double timeout_ns) {
  struct kernel_action before;
  const int taken = take_over(&before);
  if (taken < 0) return taken;
  request.thread = thread;
  request.keep = keep;
  atomic_store(&request.state, WANTED);
  const long sent = syscall(SYS_tgkill, getpid(), thread, internal_signal);
  const int result = sent < 0 ? -errno : await_answer(timeout_ns);
  atomic_store(&request.state, IDLE);
  // A signal that is still on its way must not meet glibc's handler, which expects a request of its
  // own.
  if (result != -ETIMEDOUT) syscall(SYS_rt_sigaction, internal_signal, &before, NULL, kernel_sigset_bytes);
  return result;
}

// (thread id, capabilities to keep: numbers 0 to 31, 32 to 63, timeout in ns) -> 0, or -errno of
// what failed in that thread; -ESRCH when it has ended, -ETIMEDOUT when it did not answer. One
// thread may call it at a time.
static napi_value limit_thread(napi_env env, napi_callback_info info) {
  napi_value argv[4];
  int32_t thread, low, high;
  double timeout_ns;
  if (!mr_args(env, info, 4, argv) || !mr_int(env, argv[0], &thread) || !mr_int(env, argv[1], &low) ||
      !mr_int(env, argv[2], &high) || !mr_double(env, argv[3], &timeout_ns)) {
    return NULL;
  }
  const uint64_t keep = (uint64_t)(uint32_t)high << 32 | (uint32_t)low;
  if (thread == gettid()) return mr_return(env, limit_this_thread(keep));
  return mr_return(env, limit_other_thread(thread, keep, timeout_ns));
}

// Of the whole process: no core dumps, and no ptrace by processes without CAP_SYS_PTRACE.
static napi_value forbid_dumps(napi_env env, napi_callback_info info) {
  return mr_result(env, prctl(PR_SET_DUMPABLE, 0, 0, 0, 0));
}

MR_EXPORTS(privileges) {
  const napi_property_descriptor functions[] = {
      MR_FUNCTION("limitThread", limit_thread),
      MR_FUNCTION("forbidDumps", forbid_dumps),
  };
  return MR_DEFINE(env, exports, functions);
}
