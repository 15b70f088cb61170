// futex(2) on mapped memory, shared between processes. Waiting blocks the calling thread: for
// lanes, not for event loops.
#include "addon.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool word(napi_env env, napi_value id_value, napi_value offset_value, uint8_t **out) {
  int32_t id;
  size_t offset;
  if (!mr_int(env, id_value, &id) || !mr_size(env, offset_value, &offset) ||
      !mr_range(env, id, offset, sizeof(uint32_t), out)) {
    return false;
  }
  if (offset % sizeof(uint32_t) == 0) return true;
  mr_throw_range(env, "a futex word must be aligned to 4 bytes");
  return false;
}

// 0 when woken, -EAGAIN when the word is not `expected`, -ETIMEDOUT, -EINTR. A negative timeout
// waits for ever.
static napi_value futex_wait(napi_env env, napi_callback_info info) {
  napi_value argv[4];
  uint8_t *address;
  int32_t expected;
  double timeout_ns;
  if (!mr_args(env, info, 4, argv) || !word(env, argv[0], argv[1], &address) || !mr_int(env, argv[2], &expected) ||
      !mr_double(env, argv[3], &timeout_ns)) {
    return NULL;
  }
  struct timespec timeout = mr_timespec(timeout_ns);
  return mr_result(env, syscall(SYS_futex, address, FUTEX_WAIT, expected, timeout_ns < 0 ? NULL : &timeout, NULL, 0));
}

static napi_value futex_wake(napi_env env, napi_callback_info info) {
  napi_value argv[3];
  uint8_t *address;
  int32_t count;
  if (!mr_args(env, info, 3, argv) || !word(env, argv[0], argv[1], &address) || !mr_int(env, argv[2], &count)) {
    return NULL;
  }
  return mr_result(env, syscall(SYS_futex, address, FUTEX_WAKE, count, NULL, NULL, 0));
}

MR_EXPORTS(futex) {
  const napi_property_descriptor functions[] = {
      MR_FUNCTION("futexWait", futex_wait),
      MR_FUNCTION("futexWake", futex_wake),
  };
  return MR_DEFINE(env, exports, functions);
}
