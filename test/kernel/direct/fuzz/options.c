// Making and ending a connection, options, and what can be asked of a socket.
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "fuzz.h"

static void set_no_delay(int fd) {
  int one = 1;
  if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) != 0) die("TCP_NODELAY");
}

// `other` is the port, `by` 0 for AF_INET and 1 for AF_INET6, `length` the connection; `flags` 1:
// without blocking.
void make_connect(struct end *end, const struct order *order, struct answer *answer) {
  struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)order->other)};
  struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)order->other)};
  bool is_v6 = order->by == 1;
  other_address(is_v6, order->position, is_v6 ? (void *)&v6.sin6_addr : (void *)&v4.sin_addr);
  int fd = socket(is_v6 ? AF_INET6 : AF_INET, SOCK_STREAM | (order->flags == 1 ? SOCK_NONBLOCK : 0), 0);
  if (fd < 0) die("socket");
  int result = connect(fd, is_v6 ? (void *)&v6 : (void *)&v4, is_v6 ? sizeof(v6) : sizeof(v4));
  say(answer, "connect(%s)", is_v6 ? "v6" : "v4");
  say_result(answer, result);
  if (result != 0 && errno == EINPROGRESS) {
    struct pollfd one = {.fd = fd, .events = POLLOUT};
    int ready = poll(&one, 1, DEADLINE_MS);
    int error = -1;
    socklen_t size = sizeof(error);
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
    say(answer, " poll = %d SO_ERROR = %d", ready, error);
  }
  set_no_delay(fd);
  end->handle[order->handle] = fd;
  end->connection[order->handle] = (int)order->length;
}

void make_accept(struct end *end, const struct order *order, struct answer *answer) {
  struct sockaddr_storage address;
  socklen_t size = sizeof(address);
  int listener = end->listener[order->by];
  int fd = order->other == 0 ? accept(listener, (struct sockaddr *)&address, &size)
                             : accept4(listener, NULL, NULL, order->flags == 1 ? SOCK_NONBLOCK : 0);
  say(answer, "accept(%u, %d)", order->other, order->flags);
  say_result(answer, fd < 0 ? -1 : 0);
  if (order->other == 0) say(answer, " family %d", address.ss_family);
  set_no_delay(fd);
  end->handle[order->handle] = fd;
  end->connection[order->handle] = (int)order->length;
}

static void make_dup(struct end *end, const struct order *order, struct answer *answer) {
  static const char *const names[] = {"dup", "dup2", "dup3", "F_DUPFD", "F_DUPFD_CLOEXEC"};
  int fd = end->handle[order->handle];
  int result = -1;
  switch (order->by) {
  case 0:
    result = dup(fd);
    break;
  case 1:
    result = dup2(fd, dup(end->pipe[1]));
    break;
  case 2:
    result = dup3(fd, dup(end->pipe[1]), O_CLOEXEC);
    break;
  case 3:
    result = fcntl(fd, F_DUPFD, 100);
    break;
  default:
    result = fcntl(fd, F_DUPFD_CLOEXEC, 10);
  }
  say(answer, "%s(%u, %u)", names[order->by], order->handle, order->other);
  say_result(answer, result < 0 ? -1 : 0);
  end->handle[order->other] = result;
  end->connection[order->other] = end->connection[order->handle];
}

static const struct {
  const char *name;
  int level;
  int option;
} options[] = {
    {"SO_ERROR", SOL_SOCKET, SO_ERROR},           {"SO_TYPE", SOL_SOCKET, SO_TYPE},
    {"SO_KEEPALIVE", SOL_SOCKET, SO_KEEPALIVE},   {"SO_REUSEADDR", SOL_SOCKET, SO_REUSEADDR},
    {"TCP_NODELAY", IPPROTO_TCP, TCP_NODELAY},    {"TCP_KEEPIDLE", IPPROTO_TCP, TCP_KEEPIDLE},
    {"SO_RCVLOWAT", SOL_SOCKET, SO_RCVLOWAT},     {"SO_DOMAIN", SOL_SOCKET, SO_DOMAIN},
    {"SO_RCVTIMEO", SOL_SOCKET, SO_RCVTIMEO},     {"SO_LINGER", SOL_SOCKET, SO_LINGER},
    {"SO_ACCEPTCONN", SOL_SOCKET, SO_ACCEPTCONN},
};

static void make_get_option(int fd, const struct order *order, struct answer *answer) {
  long value[4] = {0};
  socklen_t size = sizeof(value);
  uint32_t which = order->other % (sizeof(options) / sizeof(options[0]));
  int result = getsockopt(fd, options[which].level, options[which].option, value, &size);
  say(answer, "getsockopt(%u, %s)", order->handle, options[which].name);
  say_result(answer, result);
  say(answer, " size %u: %lx %lx", size, value[0], value[1]);
}

static void make_set_option(int fd, const struct order *order, struct answer *answer) {
  int value = (int)order->length;
  struct linger linger = {1, 0};
  struct timeval time = {.tv_usec = (int)order->length * 1000};
  const void *from = order->other == 8 ? (void *)&time : order->other == 9 ? (void *)&linger : (void *)&value;
  socklen_t size = order->other == 8 ? sizeof(time) : order->other == 9 ? sizeof(linger) : sizeof(value);
  int result = setsockopt(fd, options[order->other].level, options[order->other].option, from, size);
  say(answer, "setsockopt(%u, %s, %d)", order->handle, options[order->other].name, value);
  say_result(answer, result);
}

static void make_names(int fd, const struct order *order, struct answer *answer) {
  struct sockaddr_storage address = {0};
  socklen_t size = sizeof(address);
  int result = order->by == 0 ? getpeername(fd, (void *)&address, &size) : getsockname(fd, (void *)&address, &size);
  say(answer, "%s(%u)", order->by == 0 ? "getpeername" : "getsockname", order->handle);
  say_result(answer, result);
  if (result == 0) say(answer, " family %d size %u", address.ss_family, size);
}

static void make_nonblocking(int fd, const struct order *order, struct answer *answer) {
  int value = (int)order->other;
  int result = 0;
  if (order->by == 0) {
    int flags = fcntl(fd, F_GETFL);
    result = fcntl(fd, F_SETFL, value != 0 ? flags | O_NONBLOCK : flags & ~O_NONBLOCK);
  } else {
    result = ioctl(fd, FIONBIO, &value);
  }
  say(answer, "%s(%u, %d)", order->by == 0 ? "F_SETFL" : "FIONBIO", order->handle, value);
  say_result(answer, result);
  say(answer, " flags %#x", fcntl(fd, F_GETFL));
}

static void make_pipe(const struct end *end, const struct order *order, struct answer *answer) {
  char bytes[16] = "x";
  bool is_write = order->by == 0;
  ssize_t result = is_write ? write(end->pipe[1], bytes, 1) : read(end->pipe[0], bytes, sizeof(bytes));
  say(answer, "pipe %s()", is_write ? "write" : "read");
  say_result(answer, result);
}

static void make_close(struct end *end, const struct order *order, struct answer *answer) {
  int fd = end->handle[order->handle];
  int result = order->by == 0 ? close(fd) : close_range((unsigned)fd, (unsigned)fd, 0);
  end->handle[order->handle] = -1;
  say(answer, "%s(%u)", order->by == 0 ? "close" : "close_range", order->handle);
  say_result(answer, result);
}

void make_other(struct end *end, const struct order *order, struct answer *answer) {
  int fd = order->handle < HANDLES ? end->handle[order->handle] : -1;
  int bytes = -1;
  switch (order->op) {
  case OP_SHUTDOWN: {
    int result = shutdown(fd, (int)order->other);
    say(answer, "shutdown(%u, %u)", order->handle, order->other);
    say_result(answer, result);
    return;
  }
  case OP_FIONREAD: {
    int result = ioctl(fd, FIONREAD, &bytes);
    say(answer, "FIONREAD(%u)", order->handle);
    say_result(answer, result);
    say(answer, " %d", bytes);
    return;
  }
  case OP_CLOSE:
    make_close(end, order, answer);
    return;
  case OP_DUP:
    make_dup(end, order, answer);
    return;
  case OP_NONBLOCK:
    make_nonblocking(fd, order, answer);
    return;
  case OP_SET_OPTION:
    make_set_option(fd, order, answer);
    return;
  case OP_GET_OPTION:
    make_get_option(fd, order, answer);
    return;
  case OP_NAMES:
    make_names(fd, order, answer);
    return;
  case OP_PIPE:
    make_pipe(end, order, answer);
    return;
  default:
    say(answer, "UNKNOWN ORDER %u", order->op);
  }
}
