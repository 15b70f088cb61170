// epoll: the kernel writes a batch of events straight into mapped memory, where TypeScript reads it
// as a typed array.
#include "addon.h"

#include <sys/epoll.h>

static napi_value epoll_create_(napi_env env, napi_callback_info info) {
  return mr_own_result(env, epoll_create1(EPOLL_CLOEXEC));
}

static napi_value epoll_ctl_(napi_env env, napi_callback_info info) {
  int32_t arg[5]; // epoll, operation, descriptor, events, token
  if (!mr_int_args(env, info, 5, arg)) return NULL;
  struct epoll_event event = {.events = (uint32_t)arg[3], .data.u64 = (uint32_t)arg[4]};
  return mr_result(env, epoll_ctl(arg[0], arg[1], arg[2], &event));
}

// Events go to the start of the mapping. A negative timeout waits for ever; it is in ns because
// lanes wait for less than the millisecond that epoll_wait counts in. Without one, epoll_wait is
// the cheaper of the two.
static napi_value epoll_wait_(napi_env env, napi_callback_info info) {
  napi_value argv[4];
  int32_t epoll, id, capacity;
  double timeout_ns;
  uint8_t *events;
  if (!mr_args(env, info, 4, argv) || !mr_int(env, argv[0], &epoll) || !mr_int(env, argv[1], &id) ||
      !mr_int(env, argv[2], &capacity) || !mr_double(env, argv[3], &timeout_ns)) {
    return NULL;
  }
  if (capacity < 1) return mr_throw_range(env, "an epoll batch must hold at least one event");
  if (!mr_range(env, id, 0, (size_t)capacity * sizeof(struct epoll_event), &events)) return NULL;
  struct epoll_event *batch = (struct epoll_event *)events;
  if (timeout_ns <= 0) return mr_result(env, epoll_wait(epoll, batch, capacity, timeout_ns < 0 ? -1 : 0));
  struct timespec timeout = mr_timespec(timeout_ns);
  return mr_result(env, epoll_pwait2(epoll, batch, capacity, &timeout, NULL));
}

MR_EXPORTS(epoll) {
  napi_value stride;
  napi_create_uint32(env, sizeof(struct epoll_event), &stride);
  const napi_property_descriptor functions[] = {
      MR_FUNCTION("epollCreate", epoll_create_),
      MR_FUNCTION("epollCtl", epoll_ctl_),
      MR_FUNCTION("epollWait", epoll_wait_),
      {"epollEventBytes", NULL, NULL, NULL, NULL, stride, napi_enumerable, NULL},
  };
  return MR_DEFINE(env, exports, functions);
}
