// One end of the connections: a program that makes one call after the other as it is told.
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fuzz.h"

static int listen_at(int family) {
  struct sockaddr_in v4 = {.sin_family = AF_INET};
  struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
  bool is_v6 = family == AF_INET6;
  int one = 1;
  int fd = socket(family, SOCK_STREAM, 0);
  if (is_v6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one));
  if (bind(fd, is_v6 ? (void *)&v6 : (void *)&v4, is_v6 ? sizeof(v6) : sizeof(v4)) != 0) die("bind");
  if (listen(fd, 16) != 0) die("listen");
  return fd;
}

static int port_of(int fd) {
  struct sockaddr_in6 address;
  socklen_t size = sizeof(address);
  if (getsockname(fd, (void *)&address, &size) != 0) die("getsockname");
  return ntohs(address.sin6_port); // at the same place for both families
}

void send_answer(int fd, const struct answer *answer) {
  if (write(fd, answer, sizeof(*answer)) != (ssize_t)sizeof(*answer)) _exit(4);
}

static void close_all(struct end *end) {
  for (int i = 0; i < HANDLES; i++) {
    if (end->handle[i] >= 0) close(end->handle[i]);
    end->handle[i] = -1;
  }
  for (int i = 0; i < SETS; i++) {
    if (end->set[i] >= 0) close(end->set[i]);
    end->set[i] = -1;
  }
  char bytes[64];
  while (read(end->pipe[0], bytes, sizeof(bytes)) > 0)
    continue;
}

static int fd_of_connection(const struct end *end, int connection) {
  for (int i = 0; i < HANDLES; i++) {
    if (end->handle[i] >= 0 && end->connection[i] == connection) return end->handle[i];
  }
  return -1;
}

static void await_needs(const struct end *end, const struct order *order, struct answer *answer) {
  for (int i = 0; i < CONNECTIONS; i++) {
    const struct need *need = &order->need[i];
    int fd = fd_of_connection(end, i);
    if (fd < 0 || (need->bytes == 0 && need->flags == 0)) continue;
    if (!wait_for(fd, need)) say(answer, "LATE (%u bytes, flags %u) ", need->bytes, need->flags);
  }
}

// The state survives in the arguments; the new program goes on with the next order.
static void make_exec(struct end *end, struct answer *answer) {
  char state[2 * sizeof(*end) + 1];
  for (int i = 0; i < HANDLES; i++) {
    if (end->handle[i] >= 0 && (fcntl(end->handle[i], F_GETFD) & FD_CLOEXEC) != 0) end->handle[i] = -1;
  }
  for (size_t i = 0; i < sizeof(*end); i++)
    sprintf(state + 2 * i, "%02x", ((uint8_t *)end)[i]);
  execl("/proc/self/exe", "fuzz", "end", state, "exec", (char *)NULL);
  say(answer, "exec");
  say_result(answer, -1);
}

// The child goes on until the sequence ends; only it has the sockets then.
static bool is_taken_over(struct end *end, struct answer *answer) {
  int ends[2];
  if (pipe(ends) != 0) die("pipe");
  pid_t child = fork();
  if (child < 0) die("fork");
  char byte = 0;
  if (child == 0) {
    close(ends[1]);
    if (read(ends[0], &byte, 1) != 0) _exit(5);
    close(ends[0]);
    say(answer, "a child goes on");
    return true;
  }
  close(ends[0]);
  for (int i = 0; i < HANDLES; i++) {
    if (end->handle[i] >= 0) close(end->handle[i]);
    end->handle[i] = -1;
  }
  close_all(end);
  close(ends[1]);
  int status = 0;
  waitpid(child, &status, 0);
  if (status != 0) _exit(6);
  return false;
}

static void make_steering(const struct end *end, const struct order *order, struct answer *answer) {
  static const char *const names[] = {"millrace_direct_promote", "millrace_direct_demote", "millrace_direct_state",
                                      "millrace_direct_is_pinned"};
  int (*function)(int) = NULL;
  *(void **)&function = dlsym(RTLD_DEFAULT, names[order->op - OP_PROMOTE]);
  answer->result = function == NULL ? -2 : function(end->handle[order->handle]);
}

static void make_call(struct end *end, const struct order *order, struct answer *answer) {
  int fd = order->handle < HANDLES ? end->handle[order->handle] : -1;
  switch (order->op) {
  case OP_HELLO:
    answer->result = port_of(end->listener[0]) << 16 | port_of(end->listener[1]);
    return;
  case OP_CONNECT:
    make_connect(end, order, answer);
    return;
  case OP_ACCEPT:
    make_accept(end, order, answer);
    return;
  case OP_READ:
  case OP_WRITE:
    if (order->place != IN_END)
      make_elsewhere(order, fd, answer);
    else if (order->op == OP_READ)
      make_read(order, fd, answer);
    else
      make_write(order, fd, answer);
    return;
  case OP_POLL:
    make_poll(end, order, answer);
    return;
  case OP_EPOLL_CTL:
    make_epoll_ctl(end, order, answer);
    return;
  case OP_EPOLL_WAIT:
    make_epoll_wait(end, order, answer);
    return;
  case OP_EXEC:
    make_exec(end, answer);
    return;
  case OP_THREAD:
    make_thread(order, fd, answer);
    return;
  case OP_JOIN:
    make_join(answer);
    return;
  case OP_INTERRUPTED:
    make_interrupted(order, fd, answer);
    return;
  case OP_RESTARTED:
    make_restarted(end, order, fd, answer);
    return;
  case OP_BULK_WRITE:
    make_bulk_write(order, fd, answer);
    return;
  case OP_BULK_READ:
    make_bulk_read(order, fd, answer);
    return;
  case OP_SETTLE:
    return;
  case OP_PROMOTE:
  case OP_DEMOTE:
  case OP_STATE:
  case OP_IS_PINNED:
    make_steering(end, order, answer);
    return;
  case OP_END:
    close_all(end);
    return;
  default:
    make_other(end, order, answer);
  }
}

// A program that waits for its connections as well, as most do; otherwise nothing but the next
// order is waited for. What has hung up is not looked at any more.
static void await_order(const struct end *end) {
  struct pollfd list[HANDLES + 1] = {{.fd = end->orders, .events = POLLIN}};
  for (int i = 0; i < HANDLES; i++)
    list[i + 1] = (struct pollfd){.fd = end->handle[i]};
  while (poll(list, HANDLES + 1, -1) >= 0 && list[0].revents == 0) {
    for (int i = 1; i <= HANDLES; i++) {
      if (list[i].revents != 0) list[i].fd = -1;
    }
  }
}

static int obey(struct end *end) {
  struct order order;
  bool is_attentive = getenv("MILLRACE_FUZZ_ATTENTIVE") != NULL;
  if (is_attentive) await_order(end);
  while (read(end->orders, &order, sizeof(order)) == (ssize_t)sizeof(order)) {
    struct answer answer = {0};
    await_needs(end, &order, &answer);
    if (order.op != OP_TAKE_OVER)
      make_call(end, &order, &answer);
    else if (!is_taken_over(end, &answer))
      continue;
    else
      end->is_child = true;
    send_answer(end->answers, &answer);
    if (end->is_child && order.op == OP_END) _exit(0);
    if (is_attentive) await_order(end);
  }
  return 0;
}

int end_main(const char *state) {
  struct end end = {.orders = 3, .answers = 4};
  count_pipe_signals();
  if (state == NULL) {
    end.listener[0] = listen_at(AF_INET);
    end.listener[1] = listen_at(AF_INET6);
    if (pipe2(end.pipe, O_NONBLOCK) != 0) die("pipe");
    for (int i = 0; i < HANDLES; i++)
      end.handle[i] = -1;
    for (int i = 0; i < SETS; i++)
      end.set[i] = -1;
  } else {
    for (size_t i = 0; i < sizeof(end); i++)
      sscanf(state + 2 * i, "%2hhx", &((uint8_t *)&end)[i]);
    struct answer answer = {0};
    say(&answer, "exec");
    send_answer(end.answers, &answer);
  }
  return obey(&end);
}
