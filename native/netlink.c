// Netlink: one request, and its answer: a datagram, or all of those of a dump. The kernel answers
// before send() returns, and goes on with a dump before recv() does.
#include "addon.h"

#include <linux/netlink.h>
#include <sys/socket.h>
#include <unistd.h>

// Whether no datagram follows: of those of a dump, the last one ends with NLMSG_DONE.
static bool is_whole(const uint8_t *datagram, size_t size) {
  const struct nlmsghdr *message = (const struct nlmsghdr *)datagram;
  for (; NLMSG_OK(message, size); message = NLMSG_NEXT(message, size)) {
    if (message->nlmsg_type == NLMSG_DONE || !(message->nlmsg_flags & NLM_F_MULTI)) return true;
  }
  return false;
}

static napi_value netlink_ask(napi_env env, napi_callback_info info) {
  napi_value argv[3];
  int32_t protocol;
  uint8_t *request, *answer;
  size_t size, room;
  if (!mr_args(env, info, 3, argv) || !mr_int(env, argv[0], &protocol) || !mr_bytes(env, argv[1], &request, &size) ||
      !mr_bytes(env, argv[2], &answer, &room)) {
    return NULL;
  }
  const int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol);
  if (fd < 0) return mr_return(env, -errno);
  ssize_t got = send(fd, request, size, MSG_DONTWAIT);
  size_t used = 0;
  int error = got < 0 ? errno : 0;
  for (bool is_over = false; !error && !is_over; used += error ? 0 : (size_t)got) {
    // MSG_TRUNC: what the datagram needs, should it need more than there is.
    got = recv(fd, answer + used, room - used, MSG_DONTWAIT | MSG_TRUNC);
    error = got < 0 ? errno : (size_t)got > room - used ? EMSGSIZE : 0;
    is_over = !error && is_whole(answer + used, (size_t)got);
  }
  close(fd);
  return mr_return(env, error ? -error : (int32_t)used);
}

MR_EXPORTS(netlink) {
  const napi_property_descriptor functions[] = {MR_FUNCTION("netlinkAsk", netlink_ask)};
  return MR_DEFINE(env, exports, functions);
}
