// Calls in which sockets that take the shortcut may differ from TCP: what each of them does.

#include "flow.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *name_of(int error) {
  return error ? strerrorname_np(error) : "";
}

static bool is_readable(int fd, int ms) {
  struct pollfd waits = {.fd = fd, .events = POLLIN};
  return poll(&waits, 1, ms) == 1;
}

struct delayed {
  int fd, delay_ms, count;
  size_t length;
};

static void *send_later(void *argument) {
  const struct delayed *delayed = argument;
  uint8_t *bytes = calloc(1, delayed->length);
  for (int i = 0; i < delayed->count; i++) {
    pause_ms(delayed->delay_ms);
    send_all(delayed->fd, bytes, delayed->length);
  }
  free(bytes);
  return NULL;
}

// waitall: 2 pieces of 100 bytes, one recv of 200
static void waitall(const char *address, int argc, char **argv) {
  (void)argc, (void)argv;
  const struct ends ends = connect_ends(address);
  struct delayed delayed = {.fd = ends.client, .delay_ms = 50, .count = 2, .length = 100};
  pthread_t thread;
  pthread_create(&thread, NULL, send_later, &delayed);
  char bytes[200];
  const ssize_t n = recv(ends.server, bytes, sizeof(bytes), MSG_WAITALL);
  pthread_join(thread, NULL);
  printf("{\"received\":%zd}\n", n);
}

// waitall-stream: a reader that waits for whole blocks, after TCP has been used: nothing may
// overtake
static void waitall_stream(const char *address, int argc, char **argv) {
  (void)argc, (void)argv;
  const struct ends ends = connect_ends(address);
  enum { BLOCK = 3 << 20, BLOCKS = 40, SEED = 3 };
  const pid_t child = fork();
  static uint8_t bytes[BLOCK];
  if (child == 0) {
    uint64_t random = 9;
    for (uint64_t sent = 0; sent < (uint64_t)BLOCK * BLOCKS;) {
      uint64_t next = 1 + draw(&random, draw(&random, 2) ? 100 : 200000);
      if (next > (uint64_t)BLOCK * BLOCKS - sent) next = (uint64_t)BLOCK * BLOCKS - sent;
      fill(bytes, next, sent, SEED);
      send_all(ends.client, bytes, next);
      sent += next;
      if (draw(&random, 100) == 0) pause_ms(2);
    }
    _exit(0);
  }
  uint64_t received = 0;
  int is_whole = 1;
  while (received < (uint64_t)BLOCK * BLOCKS) {
    if (received % (4 * BLOCK) == 0) pause_ms(20);
    const ssize_t n = recv(ends.server, bytes, BLOCK - received % BLOCK, MSG_WAITALL);
    if (n < 0 && errno == EAGAIN) continue;
    if (n <= 0 || !is_right(bytes, (size_t)n, received, SEED)) break;
    received += (uint64_t)n;
    is_whole &= received % BLOCK == 0;
  }
  const bool isRight = received == (uint64_t)BLOCK * BLOCKS;
  if (!isRight) kill(child, SIGKILL);
  wait(NULL);
  printf("{\"isRight\":%s,\"isWhole\":%s}\n", isRight ? "true" : "false", is_whole ? "true" : "false");
}

// lowat before|after: whether poll waits for SO_RCVLOWAT of 100, set before or after the first 10
// bytes came
static void lowat(const char *address, int argc, char **argv) {
  const struct ends ends = connect_ends(address);
  const bool is_after = argc == 1 && strcmp(argv[0], "after") == 0;
  const int least = 100;
  char bytes[200] = {0};
  if (is_after) send_all(ends.client, bytes, 10);
  setsockopt(ends.server, SOL_SOCKET, SO_RCVLOWAT, &least, sizeof(least));
  if (!is_after) send_all(ends.client, bytes, 10);
  const bool is_early = is_readable(ends.server, 100);
  send_all(ends.client, bytes, 90);
  const bool is_late = is_readable(ends.server, 1000);
  printf("{\"isReadableBelow\":%s,\"isReadableAt\":%s}\n", is_early ? "true" : "false", is_late ? "true" : "false");
}

// splice: from the socket into a pipe
static void splices(const char *address, int argc, char **argv) {
  (void)argc, (void)argv;
  const struct ends ends = connect_ends(address);
  int pipes[2];
  must(pipe(pipes) == 0, "pipe");
  send_all(ends.client, "0123456789", 10);
  const bool readable = is_readable(ends.server, 1000);
  set_nonblocking(ends.server);
  const ssize_t n = splice(ends.server, NULL, pipes[1], NULL, 10, SPLICE_F_NONBLOCK);
  printf("{\"isReadable\":%s,\"spliced\":%zd,\"error\":\"%s\"}\n", readable ? "true" : "false", n,
         name_of(n < 0 ? errno : 0));
}

// zerocopy before|after: SO_ZEROCOPY set before or after connect(); whether the completion comes
static void zerocopy(const char *address, int argc, char **argv) {
  const bool is_before = argc == 1 && strcmp(argv[0], "before") == 0;
  const int on = 1;
  int port = 0;
  const int listener = listen_at(address, &port);
  if (is_before) setsockopt(listener, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof(on));
  const int client = connect_to(address, port), server = accept(listener, NULL, NULL);
  setsockopt(server, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof(on));
  static uint8_t bytes[65536];
  const ssize_t n = send(server, bytes, sizeof(bytes), MSG_ZEROCOPY);
  const bool is_received = receive_all(client, bytes, sizeof(bytes));
  struct pollfd waits = {.fd = server, .events = 0};
  const bool is_completed = poll(&waits, 1, 500) == 1 && (waits.revents & POLLERR);
  printf("{\"sent\":%zd,\"isReceived\":%s,\"isCompleted\":%s}\n", n, is_received ? "true" : "false",
         is_completed ? "true" : "false");
}

// info: TCP_INFO's counters after 1000 bytes
static void info(const char *address, int argc, char **argv) {
  (void)argc, (void)argv;
  const struct ends ends = connect_ends(address);
  char bytes[1000] = {0};
  send_all(ends.client, bytes, sizeof(bytes));
  receive_all(ends.server, bytes, sizeof(bytes));
  struct tcp_info told = {0};
  socklen_t length = sizeof(told);
  getsockopt(ends.server, IPPROTO_TCP, TCP_INFO, &told, &length);
  printf("{\"bytesReceived\":%llu}\n", (unsigned long long)told.tcpi_bytes_received);
}

// fionread: what is said to wait when 10 bytes do
static void fionread(const char *address, int argc, char **argv) {
  (void)argc, (void)argv;
  const struct ends ends = connect_ends(address);
  send_all(ends.client, "0123456789", 10);
  is_readable(ends.server, 1000);
  int waiting = -1;
  ioctl(ends.server, FIONREAD, &waiting);
  char bytes[20];
  const ssize_t peeked = recv(ends.server, bytes, sizeof(bytes), MSG_PEEK);
  const ssize_t read = recv(ends.server, bytes, sizeof(bytes), 0);
  printf("{\"waiting\":%d,\"peeked\":%zd,\"received\":%zd}\n", waiting, peeked, read);
}

// urgent: five bytes, one of them urgent
static void urgent(const char *address, int argc, char **argv) {
  (void)argc, (void)argv;
  const struct ends ends = connect_ends(address);
  send_all(ends.client, "ab", 2);
  must(send(ends.client, "!", 1, MSG_OOB) == 1, "send urgent");
  send_all(ends.client, "cd", 2);
  pause_ms(50);
  char byte = 0, bytes[10] = {0};
  const bool is_urgent = recv(ends.server, &byte, 1, MSG_OOB) == 1 && byte == '!';
  size_t at = 0;
  set_nonblocking(ends.server);
  for (;;) {
    const ssize_t n = recv(ends.server, bytes + at, sizeof(bytes) - 1 - at, 0);
    if (n <= 0) break;
    at += (size_t)n;
  }
  printf("{\"isUrgent\":%s,\"others\":\"%s\"}\n", is_urgent ? "true" : "false", bytes);
}

static void *reset_later(void *argument) {
  const int fd = *(int *)argument;
  const struct linger now = {.l_onoff = 1, .l_linger = 0};
  pause_ms(100);
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  close(fd);
  return NULL;
}

// blocked-reset: what a recv() that waits says when the peer resets, and the one after it
static void blocked_reset(const char *address, int argc, char **argv) {
  (void)argc, (void)argv;
  struct ends ends = connect_ends(address);
  pthread_t thread;
  pthread_create(&thread, NULL, reset_later, &ends.client);
  char byte;
  const int first = recv(ends.server, &byte, 1, 0) < 0 ? errno : 0;
  const int second = recv(ends.server, &byte, 1, 0) < 0 ? errno : 0;
  pthread_join(thread, NULL);
  printf("{\"first\":\"%s\",\"second\":\"%s\"}\n", name_of(first), name_of(second));
}

// full-send: what a recv() that waits says when there is room again for a send that found none
// before it
static void full_send(const char *address, int argc, char **argv) {
  (void)argc, (void)argv;
  const struct ends ends = connect_ends(address);
  static uint8_t bytes[65536];
  const pid_t child = fork();
  if (child == 0) {
    pause_ms(200);
    while (is_readable(ends.server, 300))
      must(recv(ends.server, bytes, sizeof(bytes), 0) > 0, "recv");
    send_all(ends.server, "!", 1);
    _exit(0);
  }
  while (send(ends.client, bytes, sizeof(bytes), MSG_DONTWAIT) > 0) {
  }
  char byte = 0;
  bool is_spurious = false;
  ssize_t n;
  while ((n = recv(ends.client, &byte, 1, 0)) < 0 && errno == EAGAIN)
    is_spurious = true;
  wait(NULL);
  printf("{\"received\":%zd,\"isSpurious\":%s}\n", n, is_spurious ? "true" : "false");
}

// unread-close: a socket closed with unread bytes resets its peer in TCP
static void unread_close(const char *address, int argc, char **argv) {
  (void)argc, (void)argv;
  const struct ends ends = connect_ends(address);
  send_all(ends.client, "0123456789", 10);
  is_readable(ends.server, 1000);
  close(ends.server);
  char byte;
  const ssize_t n = recv(ends.client, &byte, 1, 0);
  printf("{\"received\":%zd,\"error\":\"%s\"}\n", n, name_of(n < 0 ? errno : 0));
}

// short-read: an edge-triggered reader that takes a short read for the end of what there is, behind
// 12 MiB
static void short_read(const char *address, int argc, char **argv) {
  (void)argc, (void)argv;
  const struct ends ends = connect_ends(address);
  enum { TOTAL = 24 << 20 };
  const pid_t child = fork();
  static uint8_t bytes[100000];
  if (child == 0) {
    close(ends.server);
    for (int sent = 0; sent < TOTAL; sent += 65536)
      send_all(ends.client, bytes, 65536);
    _exit(0);
  }
  close(ends.client);
  set_nonblocking(ends.server);
  pause_ms(500);
  const int epoll = epoll_create1(0);
  struct epoll_event event = {.events = EPOLLIN | EPOLLET};
  must(epoll_ctl(epoll, EPOLL_CTL_ADD, ends.server, &event) == 0, "epoll_ctl");
  uint64_t received = 0;
  bool is_stuck = false;
  while (received < TOTAL && !is_stuck) {
    is_stuck = epoll_wait(epoll, &event, 1, 1000) != 1;
    ssize_t n;
    do {
      n = recv(ends.server, bytes, sizeof(bytes), 0);
      if (n > 0) received += (uint64_t)n;
    } while (n == (ssize_t)sizeof(bytes));
  }
  if (is_stuck) kill(child, SIGKILL);
  wait(NULL);
  printf("{\"isStuck\":%s}\n", is_stuck ? "true" : "false");
}

const struct scenario difference_scenarios[] = {{"waitall", waitall},
                                                {"waitall-stream", waitall_stream},
                                                {"lowat", lowat},
                                                {"splice", splices},
                                                {"zerocopy", zerocopy},
                                                {"info", info},
                                                {"fionread", fionread},
                                                {"urgent", urgent},
                                                {"blocked-reset", blocked_reset},
                                                {"full-send", full_send},
                                                {"unread-close", unread_close},
                                                {"short-read", short_read},
                                                {0}};
