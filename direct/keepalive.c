// The TCP connection of a direct one is silent, and NAT and filters forget silent connections. So
// the kernel's keepalive is on meanwhile, unless the program uses it itself, and the program sees
// the settings that it has made.
#include "internal.h"
#include "real.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>

// Often enough for NAT. A path that is down for less than two hours ends nothing, as without.
static const int idle_seconds = 60, interval_seconds = 60, probes = 127;

static bool get(int fd, int level, int option, int *value) {
  socklen_t size = sizeof(*value);
  return real.getsockopt(fd, level, option, value, &size) == 0;
}

static bool set(int fd, int level, int option, int value) {
  return real.setsockopt(fd, level, option, &value, sizeof(value)) == 0;
}

// With the process lock, as all of these but mr_kept_option.
void mr_keep_alive(struct mr_connection *connection, int fd) {
  int is_on = 1, user_timeout = 1;
  const int saved = errno;
  connection->is_kept = false;
  // With a limit of its own for bytes that nobody confirms, probes would end it by that.
  if (get(fd, SOL_SOCKET, SO_KEEPALIVE, &is_on) && is_on == 0 &&
      get(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &user_timeout) && user_timeout == 0 &&
      get(fd, IPPROTO_TCP, TCP_KEEPIDLE, &connection->keep_idle) &&
      get(fd, IPPROTO_TCP, TCP_KEEPINTVL, &connection->keep_interval) &&
      get(fd, IPPROTO_TCP, TCP_KEEPCNT, &connection->keep_probes)) {
    connection->is_kept = true;
    if (!set(fd, IPPROTO_TCP, TCP_KEEPIDLE, idle_seconds) || !set(fd, IPPROTO_TCP, TCP_KEEPINTVL, interval_seconds) ||
        !set(fd, IPPROTO_TCP, TCP_KEEPCNT, probes) || !set(fd, SOL_SOCKET, SO_KEEPALIVE, 1))
      mr_stop_keeping(connection, fd);
  }
  errno = saved;
}

// All is as the program has set it.
void mr_stop_keeping(struct mr_connection *connection, int fd) {
  if (!connection->is_kept) return;
  const int saved = errno;
  connection->is_kept = false;
  set(fd, SOL_SOCKET, SO_KEEPALIVE, 0);
  set(fd, IPPROTO_TCP, TCP_KEEPIDLE, connection->keep_idle);
  set(fd, IPPROTO_TCP, TCP_KEEPINTVL, connection->keep_interval);
  set(fd, IPPROTO_TCP, TCP_KEEPCNT, connection->keep_probes);
  errno = saved;
}

bool mr_is_keep_option(int level, int option) {
  if (level == SOL_SOCKET) return option == SO_KEEPALIVE;
  if (level != IPPROTO_TCP) return false;
  return option == TCP_KEEPIDLE || option == TCP_KEEPINTVL || option == TCP_KEEPCNT || option == TCP_USER_TIMEOUT;
}

// What the program has set, in place of what the kernel has answered.
void mr_kept_option(struct mr_connection *connection, int level, int option, void *value, socklen_t size) {
  if (!connection->is_kept || option == TCP_USER_TIMEOUT) return;
  const int set_value = level == SOL_SOCKET       ? 0
                        : option == TCP_KEEPIDLE  ? connection->keep_idle
                        : option == TCP_KEEPINTVL ? connection->keep_interval
                                                  : connection->keep_probes;
  memcpy(value, &set_value, size < sizeof(set_value) ? size : sizeof(set_value));
}
