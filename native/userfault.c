// userfaultfd: page faults of this process, served by this process.
#include "addon.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static napi_value create(napi_env env, napi_callback_info info) {
  int32_t flags;
  if (!mr_int_args(env, info, 1, &flags)) return NULL;
  return mr_own_result(env, (int)syscall(SYS_userfaultfd, (unsigned)flags | O_CLOEXEC | O_NONBLOCK));
}

// The same by way of an open /dev/userfaultfd, whose file permissions then decide who may.
static napi_value create_by_device(napi_env env, napi_callback_info info) {
  int32_t arg[2]; // device, flags
  if (!mr_int_args(env, info, 2, arg)) return NULL;
  return mr_own_result(env, ioctl(arg[0], USERFAULTFD_IOC_NEW, (unsigned)arg[1] | O_CLOEXEC | O_NONBLOCK));
}

// Asks for features (0: none) and returns all that the kernel has, as bits; -EINVAL when one asked
// for is missing.
static napi_value handshake(napi_env env, napi_callback_info info) {
  napi_value argv[2];
  int32_t fd;
  size_t features;
  if (!mr_args(env, info, 2, argv) || !mr_int(env, argv[0], &fd) || !mr_size(env, argv[1], &features)) return NULL;
  struct uffdio_api api = {.api = UFFD_API, .features = features};
  if (ioctl(fd, UFFDIO_API, &api) < 0) return mr_return(env, -errno);
  return mr_return(env, (int64_t)api.features);
}

MR_EXPORTS(userfault) {
  const napi_property_descriptor functions[] = {
      MR_FUNCTION("userfaultCreate", create),
      MR_FUNCTION("userfaultCreateByDevice", create_by_device),
      MR_FUNCTION("userfaultHandshake", handshake),
  };
  return MR_DEFINE(env, exports, functions);
}
