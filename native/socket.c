// Sockets on raw descriptors, always non-blocking and close-on-exec. Data moves between the kernel
// and mapped memory directly; addresses are the kernel's own sockaddr bytes, which TypeScript
// encodes and decodes.
#include "addon.h"

#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum { MR_RANGES_MAX = 256 };

// A row of a range list in mapped memory, as TypeScript writes it: three doubles.
struct range_row {
  double id, offset, length;
};

static bool fd_and_bytes(napi_env env, napi_callback_info info, int32_t *fd, uint8_t **bytes, size_t *size) {
  napi_value argv[2];
  return mr_args(env, info, 2, argv) && mr_int(env, argv[0], fd) && mr_bytes(env, argv[1], bytes, size);
}

static napi_value socket_(napi_env env, napi_callback_info info) {
  int32_t arg[2]; // domain, type
  if (!mr_int_args(env, info, 2, arg)) return NULL;
  return mr_own_result(env, socket(arg[0], arg[1] | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

// Returns [fd, fd], or -errno.
static napi_value socketpair_(napi_env env, napi_callback_info info) {
  int32_t arg[2]; // domain, type
  if (!mr_int_args(env, info, 2, arg)) return NULL;
  int fds[2];
  if (socketpair(arg[0], arg[1] | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) < 0) return mr_return(env, -errno);
  napi_value result;
  napi_create_array_with_length(env, 2, &result);
  for (uint32_t i = 0; i < 2; i++)
    napi_set_element(env, result, i, mr_own_result(env, fds[i]));
  return result;
}

static napi_value bind_(napi_env env, napi_callback_info info) {
  int32_t fd;
  uint8_t *address;
  size_t size;
  if (!fd_and_bytes(env, info, &fd, &address, &size)) return NULL;
  return mr_result(env, bind(fd, (struct sockaddr *)address, (socklen_t)size));
}

static napi_value connect_(napi_env env, napi_callback_info info) {
  int32_t fd;
  uint8_t *address;
  size_t size;
  if (!fd_and_bytes(env, info, &fd, &address, &size)) return NULL;
  return mr_result(env, connect(fd, (struct sockaddr *)address, (socklen_t)size));
}

static napi_value listen_(napi_env env, napi_callback_info info) {
  int32_t arg[2]; // fd, backlog
  if (!mr_int_args(env, info, 2, arg)) return NULL;
  return mr_result(env, listen(arg[0], arg[1]));
}

static napi_value accept_(napi_env env, napi_callback_info info) {
  int32_t fd;
  if (!mr_int_args(env, info, 1, &fd)) return NULL;
  return mr_own_result(env, accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC));
}

static napi_value shutdown_(napi_env env, napi_callback_info info) {
  int32_t arg[2]; // fd, how
  if (!mr_int_args(env, info, 2, arg)) return NULL;
  return mr_result(env, shutdown(arg[0], arg[1]));
}

typedef int (*name_call)(int, struct sockaddr *, socklen_t *);

// Writes the address and returns its size.
static napi_value name(napi_env env, napi_callback_info info, name_call call) {
  int32_t fd;
  uint8_t *out;
  size_t capacity;
  if (!fd_and_bytes(env, info, &fd, &out, &capacity)) return NULL;
  socklen_t size = (socklen_t)capacity;
  if (call(fd, (struct sockaddr *)out, &size) < 0) return mr_return(env, -errno);
  return mr_return(env, size);
}

static napi_value getsockname_(napi_env env, napi_callback_info info) {
  return name(env, info, getsockname);
}

static napi_value getpeername_(napi_env env, napi_callback_info info) {
  return name(env, info, getpeername);
}

static bool option_args(napi_env env, napi_callback_info info, int32_t *fd, int32_t *level, int32_t *option,
                        uint8_t **value, size_t *size) {
  napi_value argv[4];
  return mr_args(env, info, 4, argv) && mr_int(env, argv[0], fd) && mr_int(env, argv[1], level) &&
         mr_int(env, argv[2], option) && mr_bytes(env, argv[3], value, size);
}

static napi_value setsockopt_(napi_env env, napi_callback_info info) {
  int32_t fd, level, option;
  uint8_t *value;
  size_t size;
  if (!option_args(env, info, &fd, &level, &option, &value, &size)) return NULL;
  return mr_result(env, setsockopt(fd, level, option, value, (socklen_t)size));
}

// Fills the array and returns how many bytes the kernel wrote.
static napi_value getsockopt_(napi_env env, napi_callback_info info) {
  int32_t fd, level, option;
  uint8_t *value;
  size_t capacity;
  if (!option_args(env, info, &fd, &level, &option, &value, &capacity)) return NULL;
  socklen_t size = (socklen_t)capacity;
  if (getsockopt(fd, level, option, value, &size) < 0) return mr_return(env, -errno);
  return mr_return(env, size);
}

static napi_value recv_(napi_env env, napi_callback_info info) {
  napi_value argv[5];
  int32_t fd, flags;
  uint8_t *to;
  size_t length;
  if (!mr_args(env, info, 5, argv) || !mr_int(env, argv[0], &fd) || !mr_range_args(env, argv + 1, &to, &length) ||
      !mr_int(env, argv[4], &flags)) {
    return NULL;
  }
  return mr_result(env, recv(fd, to, length, flags | MSG_DONTWAIT));
}

static napi_value send_(napi_env env, napi_callback_info info) {
  napi_value argv[5];
  int32_t fd, flags;
  uint8_t *from;
  size_t length;
  if (!mr_args(env, info, 5, argv) || !mr_int(env, argv[0], &fd) || !mr_range_args(env, argv + 1, &from, &length) ||
      !mr_int(env, argv[4], &flags)) {
    return NULL;
  }
  return mr_result(env, send(fd, from, length, flags | MSG_DONTWAIT | MSG_NOSIGNAL));
}

// As recv, and the sender's address to a Uint8Array.
static napi_value recv_from(napi_env env, napi_callback_info info) {
  napi_value argv[5];
  int32_t fd;
  uint8_t *to, *address;
  size_t length, capacity;
  if (!mr_args(env, info, 5, argv) || !mr_int(env, argv[0], &fd) || !mr_range_args(env, argv + 1, &to, &length) ||
      !mr_bytes(env, argv[4], &address, &capacity)) {
    return NULL;
  }
  socklen_t size = (socklen_t)capacity;
  // MSG_TRUNC: the true size of a datagram, so that a cut one is seen.
  return mr_result(env, recvfrom(fd, to, length, MSG_DONTWAIT | MSG_TRUNC, (struct sockaddr *)address, &size));
}

static napi_value send_to(napi_env env, napi_callback_info info) {
  napi_value argv[5];
  int32_t fd;
  uint8_t *from, *address;
  size_t length, size;
  if (!mr_args(env, info, 5, argv) || !mr_int(env, argv[0], &fd) || !mr_range_args(env, argv + 1, &from, &length) ||
      !mr_bytes(env, argv[4], &address, &size)) {
    return NULL;
  }
  return mr_result(env,
                   sendto(fd, from, length, MSG_DONTWAIT | MSG_NOSIGNAL, (struct sockaddr *)address, (socklen_t)size));
}

// Reads `count` rows of a range list; every row is checked before the call is made.
static bool iovecs(napi_env env, napi_value list, napi_value count_value, struct iovec *out, int32_t *count) {
  int32_t id;
  uint8_t *start;
  if (!mr_int(env, list, &id) || !mr_int(env, count_value, count)) return false;
  if (*count < 1 || *count > MR_RANGES_MAX) {
    mr_throw_range(env, "a range list has 1 to 256 rows");
    return false;
  }
  if (!mr_range(env, id, 0, (size_t)*count * sizeof(struct range_row), &start)) return false;
  const struct range_row *rows = (const struct range_row *)start;
  for (int32_t i = 0; i < *count; i++) {
    uint8_t *base;
    const struct range_row row = rows[i];
    if (!(row.id >= 0 && row.id <= INT32_MAX && row.offset >= 0 && row.offset <= 0x1p53 && row.length >= 0 &&
          row.length <= 0x1p53)) {
      mr_throw_range(env, "a range list holds a row that is no range");
      return false;
    }
    if (!mr_range(env, (int32_t)row.id, (size_t)row.offset, (size_t)row.length, &base)) return false;
    out[i] = (struct iovec){.iov_base = base, .iov_len = (size_t)row.length};
  }
  return true;
}

static napi_value send_ranges(napi_env env, napi_callback_info info) {
  napi_value argv[3];
  int32_t fd, count;
  struct iovec vectors[MR_RANGES_MAX];
  if (!mr_args(env, info, 3, argv) || !mr_int(env, argv[0], &fd) || !iovecs(env, argv[1], argv[2], vectors, &count)) {
    return NULL;
  }
  struct msghdr message = {.msg_iov = vectors, .msg_iovlen = (size_t)count};
  return mr_result(env, sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL));
}

// Bytes waiting in a socket's queue: FIONREAD to read, SIOCOUTQ not yet acknowledged by the peer.
static napi_value queued(napi_env env, napi_callback_info info) {
  int32_t arg[2]; // fd, request
  if (!mr_int_args(env, info, 2, arg)) return NULL;
  int bytes = 0;
  if (ioctl(arg[0], (unsigned long)arg[1], &bytes) < 0) return mr_return(env, -errno);
  return mr_return(env, bytes);
}

MR_EXPORTS(socket) {
  const napi_property_descriptor functions[] = {
      MR_FUNCTION("socket", socket_),
      MR_FUNCTION("socketpair", socketpair_),
      MR_FUNCTION("bind", bind_),
      MR_FUNCTION("connect", connect_),
      MR_FUNCTION("listen", listen_),
      MR_FUNCTION("accept", accept_),
      MR_FUNCTION("shutdown", shutdown_),
      MR_FUNCTION("getsockname", getsockname_),
      MR_FUNCTION("getpeername", getpeername_),
      MR_FUNCTION("setsockopt", setsockopt_),
      MR_FUNCTION("getsockopt", getsockopt_),
      MR_FUNCTION("recv", recv_),
      MR_FUNCTION("send", send_),
      MR_FUNCTION("recvFrom", recv_from),
      MR_FUNCTION("sendTo", send_to),
      MR_FUNCTION("sendRanges", send_ranges),
      MR_FUNCTION("queued", queued),
  };
  return MR_DEFINE(env, exports, functions);
}
