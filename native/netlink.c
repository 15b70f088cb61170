// rtnetlink: one request, and the first datagram of its answer. The kernel answers before send()
// returns.
#include "addon.h"

#include <linux/netlink.h>
#include <sys/socket.h>
#include <unistd.h>

static napi_value netlink_ask(napi_env env, napi_callback_info info) {
  napi_value argv[2];
  uint8_t *request, *answer;
  size_t size, room;
  if (!mr_args(env, info, 2, argv) || !mr_bytes(env, argv[0], &request, &size) ||
      !mr_bytes(env, argv[1], &answer, &room)) {
    return NULL;
  }
  const int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
  if (fd < 0) return mr_return(env, -errno);
  ssize_t got = send(fd, request, size, MSG_DONTWAIT);
  // MSG_TRUNC: what the answer needs, should it need more than there is.
  if (got >= 0) got = recv(fd, answer, room, MSG_DONTWAIT | MSG_TRUNC);
  const int error = got < 0 ? errno : (size_t)got > room ? EMSGSIZE : 0;
  close(fd);
  return mr_return(env, error ? -error : (int32_t)got);
}

MR_EXPORTS(netlink) {
  const napi_property_descriptor functions[] = {MR_FUNCTION("netlinkAsk", netlink_ask)};
  return MR_DEFINE(env, exports, functions);
}
