// How connections end: at once, in halves, by reset, many together.

#include "flow.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SEED = 11, MOST = 1 << 20, MOST_WAIT_MS = 5000 };

static uint64_t drain(int fd, uint8_t *bytes) {
  uint64_t received = 0;
  for (;;) {
    const ssize_t n = recv(fd, bytes, MOST, 0);
    if (n < 0 && errno == EAGAIN) continue;
    if (n <= 0) return received;
    if (!is_right(bytes, (size_t)n, received, SEED)) return ~0ull;
    received += (uint64_t)n;
  }
}

// closes ROUNDS: each end in turn sends and closes at once; the other one reads later
static void closes(const char *address, int argc, char **argv) {
  must(argc == 1, "closes ROUNDS");
  uint8_t *bytes = malloc(MOST), *in = malloc(MOST);
  uint64_t random = 5;
  int right = 0;
  for (int round = 0; round < atoi(argv[0]); round++) {
    const struct ends ends = connect_ends(address);
    const int from = round % 2 ? ends.client : ends.server, to = round % 2 ? ends.server : ends.client;
    const uint32_t length = 1 + draw(&random, 1 << 19);
    for (uint32_t sent = 0; sent < length;) {
      uint32_t next = 1 + draw(&random, 65536);
      if (next > length - sent) next = length - sent;
      fill(bytes, next, sent, SEED);
      send_all(from, bytes, next);
      sent += next;
    }
    close(from);
    right += drain(to, in) == length;
    close(to);
  }
  printf("{\"right\":%d}\n", right);
}

// Until the kernel has nothing more to do for this connection, of which all may still be unread.
static void wait_for_end(int fd) {
  struct tcp_info info;
  for (int ms = 0; ms < MOST_WAIT_MS; ms++) {
    socklen_t length = sizeof(info);
    must(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0, "TCP_INFO");
    if (info.tcpi_state == TCP_CLOSE) return;
    usleep(1000);
  }
  must(false, "the connection's end");
}

// halfclose ROUNDS: a request, its end, then the answer, read after everything has come to its end
static void halfclose(const char *address, int argc, char **argv) {
  must(argc == 1, "halfclose ROUNDS");
  uint8_t *bytes = malloc(MOST);
  int right = 0;
  for (int round = 0; round < atoi(argv[0]); round++) {
    const struct ends ends = connect_ends(address);
    const uint32_t length = 1000 + (uint32_t)round * 997;
    fill(bytes, 1000, 0, SEED);
    send_all(ends.client, bytes, 1000);
    // Half of the answer before the client ends its half, the rest after.
    fill(bytes, length, 0, SEED);
    send_all(ends.server, bytes, length / 2);
    must(shutdown(ends.client, SHUT_WR) == 0, "shutdown");
    uint8_t request[2000];
    const bool is_asked = drain(ends.server, request) == 1000;
    send_all(ends.server, bytes + length / 2, length - length / 2);
    close(ends.server);
    wait_for_end(ends.client);
    right += is_asked && drain(ends.client, bytes) == length;
    close(ends.client);
  }
  printf("{\"right\":%d}\n", right);
}

// reset: what waits is read first or lost, then ECONNRESET, then the end; sending gives EPIPE
static void reset(const char *address, int argc, char **argv) {
  (void)argc, (void)argv;
  const struct linger now = {.l_onoff = 1, .l_linger = 0};
  const struct ends ends = connect_ends(address);
  char bytes[100] = {0};
  send_all(ends.client, bytes, sizeof(bytes));
  setsockopt(ends.client, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  close(ends.client);
  const ssize_t first = recv(ends.server, bytes, sizeof(bytes), 0);
  const int first_errno = first < 0 ? errno : 0;
  const ssize_t second = recv(ends.server, bytes, sizeof(bytes), 0);
  const int second_errno = second < 0 ? errno : 0;
  const int third_errno = send(ends.server, bytes, 1, MSG_NOSIGNAL) < 0 ? errno : 0;
  printf("{\"first\":%zd,\"firstError\":\"%s\",\"secondError\":\"%s\",\"sendError\":\"%s\"}\n", first,
         first_errno ? strerrorname_np(first_errno) : "", second_errno ? strerrorname_np(second_errno) : "",
         third_errno ? strerrorname_np(third_errno) : "");
}

// death: a process that dies has sent all it sent
static void death(const char *address, int argc, char **argv) {
  (void)argc, (void)argv;
  const struct ends ends = connect_ends(address);
  uint8_t *bytes = malloc(MOST);
  fill(bytes, MOST, 0, SEED);
  const pid_t child = fork();
  if (child == 0) {
    close(ends.server);
    send_all(ends.client, bytes, 500000);
    raise(SIGKILL);
  }
  close(ends.client);
  waitpid(child, NULL, 0);
  printf("{\"received\":%llu}\n", (unsigned long long)drain(ends.server, bytes));
}

// crowd COUNT: open at once, each with three messages each way
static void crowd(const char *address, int argc, char **argv) {
  must(argc == 1, "crowd COUNT");
  const int count = atoi(argv[0]);
  struct ends *all = calloc((size_t)count, sizeof(*all));
  int port = chosen_number("FLOW_SERVER_PORT"), right = 0;
  const int listener = listen_at(address, &port);
  for (int i = 0; i < count; i++) {
    all[i].client = connect_to(address, port);
    all[i].server = accept(listener, NULL, NULL);
    must(all[i].server >= 0, "accept");
  }
  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < count; i++) {
      const int number = i * 3 + round;
      send_all(all[i].client, &number, sizeof(number));
      send_all(all[i].server, &number, sizeof(number));
    }
    for (int i = 0; i < count; i++) {
      int number[2] = {-1, -1};
      receive_all(all[i].server, &number[0], sizeof(int));
      receive_all(all[i].client, &number[1], sizeof(int));
      right += number[0] == i * 3 + round && number[1] == number[0];
    }
  }
  for (int i = 0; i < count; i++) {
    close(i % 2 ? all[i].client : all[i].server);
    close(i % 2 ? all[i].server : all[i].client);
  }
  printf("{\"right\":%d}\n", right);
}

// again: one socket, connected twice; what nobody read the first time must not turn up
static void again(const char *address, int argc, char **argv) {
  (void)argc, (void)argv;
  int port = chosen_number("FLOW_SERVER_PORT");
  const int listener = listen_at(address, &port);
  const int client = connect_to(address, port), first = accept(listener, NULL, NULL);
  send_all(first, "old", 3);
  const struct sockaddr none = {.sa_family = AF_UNSPEC};
  must(connect(client, &none, sizeof(none)) == 0, "disconnect");
  close(first);
  struct sockaddr_storage to;
  socklen_t length = sizeof(to);
  getsockname(listener, (struct sockaddr *)&to, &length);
  must(connect(client, (struct sockaddr *)&to, length) == 0, "connect again");
  const int second = accept(listener, NULL, NULL);
  char bytes[8] = {0};
  send_all(second, "new", 3);
  const ssize_t n = recv(client, bytes, sizeof(bytes) - 1, 0);
  printf("{\"received\":\"%s\",\"length\":%zd}\n", bytes, n);
}

const struct scenario ending_scenarios[] = {{"closes", closes},
                                            {"halfclose", halfclose},
                                            {"reset", reset},
                                            {"death", death},
                                            {"crowd", crowd},
                                            {"again", again},
                                            {0}};
