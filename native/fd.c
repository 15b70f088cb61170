// Descriptors that are neither memory nor sockets: eventfd, timerfd, pidfd; and closing,
// duplicating and handing over.
#include "addon.h"

#include <fcntl.h>
#include <linux/nsfs.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

// Closes only what this environment owns, so that a stale number never closes a descriptor of
// Node's.
static napi_value close_(napi_env env, napi_callback_info info) {
  int32_t fd;
  if (!mr_int_args(env, info, 1, &fd)) return NULL;
  if (!mr_disown(mr_state(env), fd)) return mr_return(env, -EBADF);
  return mr_result(env, close(fd));
}

// Takes a descriptor over: from now on this environment closes it.
static napi_value adopt(napi_env env, napi_callback_info info) {
  int32_t fd;
  if (!mr_int_args(env, info, 1, &fd)) return NULL;
  if (fcntl(fd, F_GETFD) < 0) return mr_return(env, -errno);
  return mr_own_result(env, fd);
}

// The opposite: the calling code hands the descriptor to another thread or to Node.
static napi_value disown(napi_env env, napi_callback_info info) {
  int32_t fd;
  if (!mr_int_args(env, info, 1, &fd)) return NULL;
  return mr_return(env, mr_disown(mr_state(env), fd) ? 0 : -EBADF);
}

static napi_value dup_(napi_env env, napi_callback_info info) {
  int32_t fd;
  if (!mr_int_args(env, info, 1, &fd)) return NULL;
  return mr_own_result(env, fcntl(fd, F_DUPFD_CLOEXEC, 0));
}

static napi_value open_(napi_env env, napi_callback_info info) {
  napi_value argv[2];
  char path[4096];
  int32_t flags;
  if (!mr_args(env, info, 2, argv) || !mr_string(env, argv[0], path, sizeof(path)) || !mr_int(env, argv[1], &flags)) {
    return NULL;
  }
  return mr_own_result(env, open(path, flags | O_CLOEXEC, 0600));
}

static napi_value eventfd_(napi_env env, napi_callback_info info) {
  int32_t initial;
  if (!mr_int_args(env, info, 1, &initial)) return NULL;
  return mr_own_result(env, eventfd((unsigned)initial, EFD_CLOEXEC | EFD_NONBLOCK));
}

static napi_value event_write(napi_env env, napi_callback_info info) {
  int32_t arg[2]; // descriptor, count
  if (!mr_int_args(env, info, 2, arg)) return NULL;
  uint64_t value = (uint32_t)arg[1];
  return mr_result(env, write(arg[0], &value, sizeof(value)));
}

// The count of an eventfd or the expirations of a timerfd; -EAGAIN when there are none.
static napi_value event_read(napi_env env, napi_callback_info info) {
  int32_t fd;
  if (!mr_int_args(env, info, 1, &fd)) return NULL;
  uint64_t value = 0;
  if (read(fd, &value, sizeof(value)) < 0) return mr_return(env, -errno);
  return mr_return(env, (int64_t)value);
}

static napi_value timerfd_create_(napi_env env, napi_callback_info info) {
  return mr_own_result(env, timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
}

static napi_value timerfd_set(napi_env env, napi_callback_info info) {
  napi_value argv[3];
  int32_t fd;
  double first_ns, interval_ns;
  if (!mr_args(env, info, 3, argv) || !mr_int(env, argv[0], &fd) || !mr_double(env, argv[1], &first_ns) ||
      !mr_double(env, argv[2], &interval_ns)) {
    return NULL;
  }
  struct itimerspec spec = {.it_value = mr_timespec(first_ns), .it_interval = mr_timespec(interval_ns)};
  return mr_result(env, timerfd_settime(fd, 0, &spec, NULL));
}

static napi_value pidfd_open_(napi_env env, napi_callback_info info) {
  int32_t pid;
  if (!mr_int_args(env, info, 1, &pid)) return NULL;
  return mr_own_result(env, (int)syscall(SYS_pidfd_open, pid, 0));
}

// A descriptor of the user namespace that owns a namespace.
static napi_value owner_namespace(napi_env env, napi_callback_info info) {
  int32_t fd;
  if (!mr_int_args(env, info, 1, &fd)) return NULL;
  return mr_own_result(env, ioctl(fd, NS_GET_USERNS));
}

static napi_value pidfd_signal(napi_env env, napi_callback_info info) {
  int32_t arg[2]; // descriptor, signal
  if (!mr_int_args(env, info, 2, arg)) return NULL;
  return mr_result(env, syscall(SYS_pidfd_send_signal, arg[0], arg[1], NULL, 0));
}

MR_EXPORTS(fd) {
  const napi_property_descriptor functions[] = {
      MR_FUNCTION("close", close_),
      MR_FUNCTION("adopt", adopt),
      MR_FUNCTION("disown", disown),
      MR_FUNCTION("dup", dup_),
      MR_FUNCTION("open", open_),
      MR_FUNCTION("eventfd", eventfd_),
      MR_FUNCTION("eventWrite", event_write),
      MR_FUNCTION("eventRead", event_read),
      MR_FUNCTION("timerfdCreate", timerfd_create_),
      MR_FUNCTION("timerfdSet", timerfd_set),
      MR_FUNCTION("pidfdOpen", pidfd_open_),
      MR_FUNCTION("pidfdSignal", pidfd_signal),
      MR_FUNCTION("ownerNamespace", owner_namespace),
  };
  return MR_DEFINE(env, exports, functions);
}
