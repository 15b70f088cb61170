// Descriptors over unix sockets (SCM_RIGHTS), with the bytes they travel with.
#include "addon.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
  MR_FDS_MAX = 64,
  MR_FDS_RECEIVED_MAX = 253, // SCM_MAX_FD: no message has more
};

static napi_value send_fds(napi_env env, napi_callback_info info) {
  napi_value argv[3];
  int32_t socket;
  uint8_t *bytes;
  size_t size;
  uint32_t count = 0;
  if (!mr_args(env, info, 3, argv) || !mr_int(env, argv[0], &socket) || !mr_bytes(env, argv[1], &bytes, &size))
    return NULL;
  if (napi_get_array_length(env, argv[2], &count) != napi_ok || count > MR_FDS_MAX || size == 0) {
    return mr_throw_range(env, "expected at least one byte and an array of at most 64 descriptors");
  }
  int fds[MR_FDS_MAX];
  for (uint32_t i = 0; i < count; i++) {
    napi_value element;
    napi_get_element(env, argv[2], i, &element);
    if (!mr_int(env, element, &fds[i])) return NULL;
  }
  union {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(fds))];
  } control = {0};
  struct iovec vector = {.iov_base = bytes, .iov_len = size};
  struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
  if (count > 0) {
    message.msg_control = &control;
    message.msg_controllen = CMSG_SPACE(count * sizeof(int));
    control.header =
        (struct cmsghdr){.cmsg_len = CMSG_LEN(count * sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(&control.header), fds, count * sizeof(int));
  }
  return mr_result(env, sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL));
}

// Returns [bytes received, fd, fd …] or -errno. Every descriptor that came is owned before anything
// else can fail; -EMSGSIZE when this process may not have so many more: then none is kept.
static napi_value recv_fds(napi_env env, napi_callback_info info) {
  napi_value argv[2], result;
  int32_t socket;
  uint8_t *bytes;
  size_t size;
  if (!mr_args(env, info, 2, argv) || !mr_int(env, argv[0], &socket) || !mr_bytes(env, argv[1], &bytes, &size))
    return NULL;
  union {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(MR_FDS_RECEIVED_MAX * sizeof(int))];
  } control;
  struct iovec vector = {.iov_base = bytes, .iov_len = size};
  struct msghdr message = {
      .msg_iov = &vector, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
  ssize_t got = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0) return mr_return(env, -errno);
  napi_create_array(env, &result);
  napi_set_element(env, result, 0, mr_return(env, got));
  bool is_cut = (message.msg_flags & MSG_CTRUNC) != 0;
  uint32_t index = 1;
  for (struct cmsghdr *header = CMSG_FIRSTHDR(&message); header != NULL; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; i++) {
      int fd;
      memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(fd));
      if (is_cut)
        close(fd);
      else
        napi_set_element(env, result, index++, mr_own_result(env, fd));
    }
  }
  return is_cut ? mr_return(env, -EMSGSIZE) : result;
}

MR_EXPORTS(fdpass) {
  const napi_property_descriptor functions[] = {
      MR_FUNCTION("sendFds", send_fds),
      MR_FUNCTION("recvFds", recv_fds),
  };
  return MR_DEFINE(env, exports, functions);
}
