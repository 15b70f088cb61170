// Streams both ways at once: random sizes, random pauses, every byte checked.

#include "flow.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHUNK = 256 << 10 };

struct side {
  int fd;
  uint64_t total, sent, received;
  uint32_t send_seed, receive_seed;
  uint64_t random;
  bool is_edge, is_paused;
  uint8_t out[CHUNK], in[CHUNK];
};

static uint32_t size(struct side *side) {
  const uint32_t kind = draw(&side->random, 4);
  return 1 + draw(&side->random, kind == 0 ? 16 : kind == 1 ? 1500 : kind == 2 ? 16384 : CHUNK - 1);
}

static void doze(struct side *side) {
  if (side->is_paused && draw(&side->random, 64) == 0) pause_ms((int)draw(&side->random, 8));
}

// True when it would block.
static bool send_some(struct side *side) {
  uint64_t length = size(side);
  if (length > side->total - side->sent) length = side->total - side->sent;
  fill(side->out, length, side->sent, side->send_seed);
  const ssize_t n = send(side->fd, side->out, length, MSG_NOSIGNAL);
  if (n < 0 && errno == EAGAIN) return true;
  must(n > 0, "send");
  side->sent += (uint64_t)n;
  if (side->sent == side->total) must(shutdown(side->fd, SHUT_WR) == 0, "shutdown");
  return false;
}

// True when it would block, or at the end.
static bool receive_some(struct side *side, bool *is_end) {
  const ssize_t n = recv(side->fd, side->in, size(side), 0);
  if (n < 0 && errno == EAGAIN) return true;
  must(n >= 0, "recv");
  if (n == 0) {
    *is_end = true;
    return true;
  }
  if (!is_right(side->in, (size_t)n, side->received, side->receive_seed)) {
    fprintf(stderr, "wrong bytes at %llu\n", (unsigned long long)side->received);
    exit(3);
  }
  side->received += (uint64_t)n;
  return false;
}

static void run_side(struct side *side) {
  bool is_end = false;
  set_nonblocking(side->fd);
  const int epoll = epoll_create1(0);
  struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | (side->is_edge ? EPOLLET : 0)};
  must(epoll >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, side->fd, &event) == 0, "epoll");
  while (!is_end || side->sent < side->total) {
    struct epoll_event ready;
    const bool is_sending = side->sent < side->total;
    if (!side->is_edge) {
      event.events = (is_end ? 0 : EPOLLIN) | (is_sending ? EPOLLOUT : 0);
      epoll_ctl(epoll, EPOLL_CTL_MOD, side->fd, &event);
    }
    must(epoll_wait(epoll, &ready, 1, 20000) == 1, "nothing happened for 20 s");
    bool reads_block = is_end, writes_block = !is_sending;
    do {
      doze(side);
      if (!reads_block) reads_block = receive_some(side, &is_end);
      if (!writes_block) writes_block = send_some(side) || side->sent == side->total;
    } while (side->is_edge && !(reads_block && writes_block));
  }
  must(side->received == side->total, "the stream ended early");
  close(epoll);
}

// stream BYTES SEED level|edge pauses|steady
static void stream(const char *address, int argc, char **argv) {
  must(argc == 4, "stream BYTES SEED level|edge pauses|steady");
  const struct ends ends = connect_ends(address);
  struct side *side = calloc(1, sizeof(*side));
  const uint32_t seed = (uint32_t)atoi(argv[1]);
  side->total = strtoull(argv[0], NULL, 10);
  side->is_edge = strcmp(argv[2], "edge") == 0;
  side->is_paused = strcmp(argv[3], "pauses") == 0;
  const pid_t child = fork();
  side->fd = child == 0 ? ends.server : ends.client;
  close(child == 0 ? ends.client : ends.server);
  side->send_seed = child == 0 ? seed : seed + 1;
  side->receive_seed = child == 0 ? seed + 1 : seed;
  side->random = (uint64_t)seed * 2 + (child == 0);
  run_side(side);
  if (child == 0) _exit(0);
  int status = 0;
  must(waitpid(child, &status, 0) == child && status == 0, "the other side failed");
  printf("{\"bytes\":%llu}\n", (unsigned long long)side->received);
}

// roundtrip COUNT BYTES: blocking, both ends
static void roundtrip(const char *address, int argc, char **argv) {
  must(argc == 2, "roundtrip COUNT BYTES");
  const int count = atoi(argv[0]);
  const size_t length = (size_t)atoi(argv[1]);
  const struct ends ends = connect_ends(address);
  uint8_t bytes[65536];
  memset(bytes, 0, sizeof(bytes));
  if (fork() == 0) {
    close(ends.client);
    while (receive_all(ends.server, bytes, length))
      send_all(ends.server, bytes, length);
    _exit(0);
  }
  close(ends.server);
  const double start = now_ms();
  for (int i = 0; i < count; i++) {
    send_all(ends.client, bytes, length);
    must(receive_all(ends.client, bytes, length), "the stream ended early");
  }
  printf("{\"roundTripUs\":%.3f}\n", (now_ms() - start) * 1e3 / count);
  close(ends.client);
  wait(NULL);
}

// bulk BYTES MESSAGE_BYTES: one way, the receiver polls
static void bulk(const char *address, int argc, char **argv) {
  must(argc == 2, "bulk BYTES MESSAGE_BYTES");
  const uint64_t total = strtoull(argv[0], NULL, 10);
  const size_t length = (size_t)atoi(argv[1]);
  const struct ends ends = connect_ends(address);
  static uint8_t bytes[1 << 20];
  if (fork() == 0) {
    close(ends.server);
    for (uint64_t sent = 0; sent < total; sent += length)
      send_all(ends.client, bytes, length);
    _exit(0);
  }
  close(ends.client);
  set_nonblocking(ends.server);
  const double start = now_ms();
  uint64_t received = 0;
  for (;;) {
    struct pollfd waits = {.fd = ends.server, .events = POLLIN};
    poll(&waits, 1, -1);
    const ssize_t n = recv(ends.server, bytes, 128 << 10, 0);
    if (n == 0) break;
    must(n > 0 || errno == EAGAIN, "recv");
    if (n > 0) received += (uint64_t)n;
  }
  printf("{\"bytes\":%llu,\"gbps\":%.3f}\n", (unsigned long long)received,
         (double)received * 8 / (now_ms() - start) / 1e6);
  wait(NULL);
}

static bool says(int from, int to, char name) {
  const struct timeval most = {.tv_sec = 5};
  char heard = 0;
  setsockopt(to, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof(most));
  send_all(from, &name, 1);
  return recv(to, &heard, 1, 0) == 1 && heard == name;
}

// meet TIMES START_MS EVERY_MS NAME: connects at given times, from a port for each of them, so that
// two of these in two namespaces do the same at once. Who is late leaves times out.
static void meet(const char *address, int argc, char **argv) {
  must(argc == 4, "meet TIMES START_MS EVERY_MS NAME");
  const int times = atoi(argv[0]), first_port = chosen_number("FLOW_CLIENT_PORT");
  const double start = atof(argv[1]), every = atof(argv[2]);
  int right = 0, wrong = 0, port = chosen_number("FLOW_SERVER_PORT");
  const int listener = listen_at(address, &port);
  for (int next = 0; next < times && !wrong; next++) {
    const double passed = (now_ms() - start) / every;
    if (passed > next) next = (int)passed + 1;
    char text[16];
    snprintf(text, sizeof(text), "%d", first_port + next);
    setenv("FLOW_CLIENT_PORT", text, 1);
    connect_at_ms = start + next * every;
    const int client = connect_to(address, port), server = accept(listener, NULL, NULL);
    const bool is_so = says(client, server, argv[3][0]) && says(server, client, argv[3][0]);
    right += is_so;
    wrong += !is_so;
    close(client);
    close(server);
  }
  printf("{\"right\":%d,\"wrong\":%d}\n", right, wrong);
}

const struct scenario stream_scenarios[] = {
    {"stream", stream}, {"roundtrip", roundtrip}, {"bulk", bulk}, {"meet", meet}, {0}};
