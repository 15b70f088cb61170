// Offers bytes as fast as they are taken, or takes them after having been stopped; every byte is
// checked.
//
//   flood receive PORT                    prints "listening", "accepted", stops itself, and goes on at SIGCONT
//   flood send ADDRESS PORT MODE BYTES    MODE is blocking, level or edge

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

// A prime, so that no buffer's size divides it: bytes at the wrong place are noticed.
enum { PERIOD_BYTES = 1000003, PIECE_BYTES = 256 * 1024 };

static uint8_t pattern[PERIOD_BYTES + PIECE_BYTES];

static void make_pattern(void) {
  uint32_t state = 2463534242;
  for (size_t i = 0; i < sizeof(pattern); i++) {
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    pattern[i] = i < PERIOD_BYTES ? (uint8_t)state : pattern[i - PERIOD_BYTES];
  }
}

static void fail(const char *what) {
  printf("%s %s\n", what, strerrorname_np(errno));
  exit(1);
}

static int receive(int port) {
  static uint8_t piece[PIECE_BYTES];
  const struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
  const int on = 1, listener = socket(AF_INET6, SOCK_STREAM, 0);
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bind(listener, (const struct sockaddr *)&any, sizeof(any)) != 0 || listen(listener, 8) != 0) fail("listen");
  puts("listening");
  const int fd = accept(listener, NULL, NULL);
  if (fd < 0) fail("accept");
  puts("accepted");
  raise(SIGSTOP);
  uint64_t position = 0;
  bool is_right = true;
  ssize_t got;
  while ((got = recv(fd, piece, sizeof(piece), 0)) > 0) {
    is_right = is_right && memcmp(piece, pattern + position % PERIOD_BYTES, (size_t)got) == 0;
    position += (uint64_t)got;
  }
  if (got < 0) fail("recv");
  printf("%llu bytes, %s\n", (unsigned long long)position, is_right ? "right" : "WRONG");
  return 0;
}

static int dial(const char *address, int port) {
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  inet_pton(AF_INET, address, &to.sin_addr);
  if (connect(fd, (const struct sockaddr *)&to, sizeof(to)) != 0) fail("connect");
  return fd;
}

static int offer(int fd, const char *mode, uint64_t size_bytes) {
  const bool is_blocking = strcmp(mode, "blocking") == 0;
  const int poller = epoll_create1(0);
  struct epoll_event event = {.events = EPOLLOUT | (strcmp(mode, "edge") == 0 ? EPOLLET : 0)};
  epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event);
  if (!is_blocking) fcntl(fd, F_SETFL, O_NONBLOCK);
  unsigned long waits = 0;
  for (uint64_t position = 0; position < size_bytes;) {
    const uint64_t rest = size_bytes - position;
    const size_t wanted = rest < PIECE_BYTES ? (size_t)rest : PIECE_BYTES;
    const ssize_t sent = send(fd, pattern + position % PERIOD_BYTES, wanted, MSG_NOSIGNAL);
    if (sent >= 0) {
      position += (uint64_t)sent;
    } else if (errno == EAGAIN && !is_blocking) {
      waits++;
      if (epoll_wait(poller, &event, 1, -1) != 1) fail("epoll_wait");
    } else {
      fail("send");
    }
  }
  printf("offered all, waited %lu times\n", waits);
  return close(fd);
}

int main(int count, char **words) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  make_pattern();
  if (count == 3 && strcmp(words[1], "receive") == 0) return receive(atoi(words[2]));
  if (count == 6 && strcmp(words[1], "send") == 0)
    return offer(dial(words[2], atoi(words[3])), words[4], strtoull(words[5], NULL, 10));
  fprintf(stderr, "usage: flood receive PORT | send ADDRESS PORT blocking|level|edge BYTES\n");
  return 2;
}
