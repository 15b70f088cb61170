// The server of steer.* and proxy.*, for the bench only: an event loop that does what the first
// byte of a connection asks for. `steer-server ADDRESS PORT...` says `ready` when it listens.
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

// GREET answers with a byte and closes; HOLD never reads on; SLOW reads SLOW_BYTES every SLOW_MS,
// one connection at most.
enum kind { LISTENER = 'l', UNKNOWN = 'u', ECHO = 'e', SINK = 's', GREET = 'g', HOLD = 'h', SLOW = 'w' };
enum { SLOW_MS = 10, SLOW_BYTES = (20 << 20) / (1000 / SLOW_MS) };
// BLOCK_BYTES: as in steer-client.c; a sink says each time that it has received so much.
enum { BUFFER_BYTES = 256 * 1024, MAX_EVENTS = 64, BLOCK_BYTES = 16 << 20 };

struct peer {
  int fd;
  enum kind kind;
  uint64_t bytes;
};

static char buffer[BUFFER_BYTES];
static int slow = -1;

static void check(int ok, const char *what) {
  if (ok) return;
  perror(what);
  exit(1);
}

static void watch(int epoll, int fd, enum kind kind) {
  struct peer *peer = malloc(sizeof(*peer));
  check(peer != NULL, "malloc");
  *peer = (struct peer){.fd = fd, .kind = kind};
  struct epoll_event event = {.events = EPOLLIN, .data.ptr = peer};
  check(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0, "epoll_ctl");
}

static void listen_at(int epoll, const char *address, int port) {
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  check(inet_pton(AF_INET, address, &at.sin_addr) == 1, "inet_pton");
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
  check(bind(fd, (struct sockaddr *)&at, sizeof(at)) == 0, "bind");
  check(listen(fd, 1024) == 0, "listen");
  watch(epoll, fd, LISTENER);
}

static void accept_one(int epoll, int listener) {
  int one = 1, fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd < 0) return;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  watch(epoll, fd, UNKNOWN);
}

// False when the connection is over.
static int begin(int epoll, struct peer *peer, char word) {
  struct epoll_event nothing = {.events = 0, .data.ptr = peer};
  peer->kind = (enum kind)word;
  if (peer->kind == GREET) check(send(peer->fd, "!", 1, MSG_NOSIGNAL) == 1 || errno == ECONNRESET, "send");
  if (peer->kind == SLOW) slow = peer->fd;
  if (peer->kind == HOLD || peer->kind == SLOW)
    check(epoll_ctl(epoll, EPOLL_CTL_MOD, peer->fd, &nothing) == 0, "epoll_ctl");
  return peer->kind != GREET;
}

// False when the connection is over.
static int serve(int epoll, struct peer *peer, uint32_t events) {
  if (events & EPOLLERR) return 0;
  if (peer->kind == HOLD || peer->kind == SLOW) return !(events & EPOLLHUP);
  ssize_t n = recv(peer->fd, buffer, peer->kind == UNKNOWN ? 1 : sizeof(buffer), 0);
  if (n < 0) return errno == EAGAIN;
  if (n == 0) return 0;
  if (peer->kind == UNKNOWN) return begin(epoll, peer, buffer[0]);
  if (peer->kind == ECHO) return send(peer->fd, buffer, (size_t)n, MSG_NOSIGNAL) == n;
  const uint64_t before = peer->bytes / BLOCK_BYTES;
  peer->bytes += (uint64_t)n;
  return peer->bytes / BLOCK_BYTES == before || send(peer->fd, "!", 1, MSG_NOSIGNAL) == 1;
}

static double now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static void read_slowly(void) {
  static double next;
  double now = now_ms();
  if (slow < 0 || now < next) return;
  next = (next < now - 1000 ? now : next) + SLOW_MS;
  while (recv(slow, buffer, SLOW_BYTES, 0) < 0 && errno == EINTR)
    ;
}

int main(int argc, char **argv) {
  int epoll = epoll_create1(EPOLL_CLOEXEC);
  for (int i = 2; i < argc; i++)
    listen_at(epoll, argv[1], atoi(argv[i]));
  puts("ready");
  fflush(stdout);
  for (;;) {
    struct epoll_event events[MAX_EVENTS];
    int count = epoll_wait(epoll, events, MAX_EVENTS, slow < 0 ? -1 : SLOW_MS / 2);
    check(count >= 0 || errno == EINTR, "epoll_wait");
    for (int i = 0; i < count; i++) {
      struct peer *peer = events[i].data.ptr;
      if (peer->kind == LISTENER) {
        accept_one(epoll, peer->fd);
      } else if (!serve(epoll, peer, events[i].events)) {
        if (peer->kind == SLOW) slow = -1;
        close(peer->fd);
        free(peer);
      }
    }
    read_slowly();
  }
}
