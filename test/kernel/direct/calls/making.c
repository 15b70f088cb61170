// Functions that make, duplicate, set up, shut and close sockets.
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "world.h"

typedef int (*socket_type)(int, int, int);
typedef int (*connect_type)(int, const void *, unsigned);
typedef int (*accept_type)(int, void *, socklen_t *);
typedef int (*accept4_type)(int, void *, socklen_t *, int);
typedef int (*listen_type)(int, int);
typedef int (*shutdown_type)(int, int);
typedef int (*close_type)(int);
typedef int (*posix_close_type)(int, int);
typedef int (*close_range_type)(unsigned, unsigned, int);
typedef void (*closefrom_type)(int);
typedef int (*dup_type)(int);
typedef int (*dup2_type)(int, int);
typedef int (*dup3_type)(int, int, int);
typedef int (*fcntl_type)(int, int, ...);
typedef int (*ioctl_type)(int, unsigned long, ...);
typedef int (*setsockopt_type)(int, int, int, const void *, socklen_t);
typedef int (*getsockopt_type)(int, int, int, void *, socklen_t *);

// The first connection ends; the next one is made by the function.
static void start_over(struct world *world) {
  struct order order = {.op = OP_CLOSE};
  tell(&world->game, PEER, &order);
  hear(&world->game, PEER);
  close(world->fd);
  world->sent = world->taken = world->due = 0;
}

static void use_new(struct world *world) {
  check(write(world->fd, ours(world, SOME), SOME) == SOME, "bytes written");
  peer_takes(world, SOME);
  promote_both(world);
  peer_sends(world, SOME);
  take_rest(world);
}

static void try_socket(struct world *world) {
  start_over(world);
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)world->game.port[PEER][0])};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  world->fd = FUNCTION(world, socket_type)(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  check(connect(world->fd, (void *)&address, sizeof(address)) == 0, "connect");
  struct order order = {.op = OP_ACCEPT};
  tell(&world->game, PEER, &order);
  hear(&world->game, PEER);
  use_new(world);
}

static void try_connect(struct world *world) {
  start_over(world);
  make_connection(world, FUNCTION(world, connect_type));
  use_new(world);
}

// The peer connects to us.
static int listen_for_peer(struct world *world, listen_type listens) {
  start_over(world);
  struct sockaddr_in address = {.sin_family = AF_INET};
  socklen_t size = sizeof(address);
  int listener = socket(AF_INET, SOCK_STREAM, 0);
  check(bind(listener, (void *)&address, size) == 0 && listens(listener, 1) == 0, "listen");
  check(getsockname(listener, (void *)&address, &size) == 0, "getsockname");
  struct order order = {.op = OP_CONNECT, .other = ntohs(address.sin_port)};
  tell(&world->game, PEER, &order);
  check(hear(&world->game, PEER).result == 0, "connect at the peer");
  return listener;
}

static void try_listen(struct world *world) {
  const int listener = listen_for_peer(world, FUNCTION(world, listen_type));
  world->fd = accept(listener, NULL, NULL);
  check(world->fd >= 0, "accept");
  use_new(world);
}

static void try_accept(struct world *world) {
  struct sockaddr_in address;
  socklen_t size = sizeof(address);
  world->fd = FUNCTION(world, accept_type)(listen_for_peer(world, listen), &address, &size);
  check(world->fd >= 0 && address.sin_family == AF_INET, "accept");
  use_new(world);
}

static void try_accept4(struct world *world) {
  world->fd = FUNCTION(world, accept4_type)(listen_for_peer(world, listen), NULL, NULL, SOCK_CLOEXEC);
  check(world->fd >= 0, "accept4");
  use_new(world);
}

static void try_shutdown(struct world *world) {
  check(write(world->fd, ours(world, SOME), SOME) == SOME, "bytes written");
  check(FUNCTION(world, shutdown_type)(world->fd, SHUT_WR) == 0, "shutdown");
  peer_takes(world, SOME);
  check(peer_reads(world, 1) == 0, "the end after all bytes");
  peer_sends(world, SOME);
  take_rest(world);
  check(is_state(world->fd, DIRECT), "direct in the other direction");
  peer_sends(world, SOME);
  check(FUNCTION(world, shutdown_type)(world->fd, SHUT_RD) == 0, "shutdown of the other way");
  // The peer makes no call meanwhile, so they were not sent by TCP before.
  take_rest(world);
  close(world->fd);
  world->fd = -1;
}

// Closes one of two descriptors, then the last one.
static void close_by(struct world *world, void (*by)(struct world *, int)) {
  check(dup2(world->fd, FAR_FD) == FAR_FD, "dup2");
  by(world, FAR_FD);
  check(fcntl(FAR_FD, F_GETFD) == -1 && errno == EBADF, "closed");
  check(is_state(world->fd, DIRECT), "direct while another descriptor is open");
  check(write(world->fd, ours(world, SOME), SOME) == SOME, "bytes written");
  check(dup2(world->fd, FAR_FD) == FAR_FD && close(world->fd) == 0, "only the other one is left");
  by(world, FAR_FD);
  peer_takes(world, SOME);
  check(peer_reads(world, 1) == 0, "the end after all bytes");
  world->fd = -1;
}

static void by_close(struct world *world, int fd) {
  check(FUNCTION(world, close_type)(fd) == 0, "close");
}
static void by_posix_close(struct world *world, int fd) {
  check(FUNCTION(world, posix_close_type)(fd, 0) == 0, "posix_close");
}
static void by_close_range(struct world *world, int fd) {
  check(FUNCTION(world, close_range_type)((unsigned)fd, (unsigned)fd + 9, 0) == 0, "close_range");
}
static void by_closefrom(struct world *world, int fd) {
  FUNCTION(world, closefrom_type)(fd);
}
static void try_close(struct world *world) {
  close_by(world, by_close);
}
static void try_posix_close(struct world *world) {
  close_by(world, by_posix_close);
}
static void try_close_range(struct world *world) {
  close_by(world, by_close_range);
}
static void try_closefrom(struct world *world) {
  close_by(world, by_closefrom);
}

// Both descriptors are the same connection; the first one is closed.
static void use_copy(struct world *world, int copy) {
  check(copy >= 0, "a copy");
  check(is_state(copy, DIRECT), "the copy is direct");
  check(write(copy, ours(world, SOME), SOME) == SOME, "bytes written to the copy");
  check(write(world->fd, ours(world, SOME), SOME) == SOME, "bytes written");
  world->sent -= SOME;
  peer_takes(world, SOME);
  world->sent += SOME;
  peer_takes(world, SOME);
  check(close(world->fd) == 0, "close");
  world->fd = copy;
}

static void try_dup(struct world *world) {
  use_copy(world, FUNCTION(world, dup_type)(world->fd));
}
static void try_dup2(struct world *world) {
  use_copy(world, FUNCTION(world, dup2_type)(world->fd, FAR_FD));
}
static void try_dup3(struct world *world) {
  use_copy(world, FUNCTION(world, dup3_type)(world->fd, FAR_FD, O_CLOEXEC));
}

static void try_fcntl(struct world *world) {
  char byte;
  fcntl_type function = FUNCTION(world, fcntl_type);
  int flags = function(world->fd, F_GETFL);
  check(function(world->fd, F_SETFL, flags | O_NONBLOCK) == 0, "F_SETFL");
  check(read(world->fd, &byte, 1) == -1 && errno == EAGAIN, "it does not wait");
  check(function(world->fd, F_SETFL, flags) == 0, "F_SETFL back");
  check(function(world->fd, F_GETFL) == flags, "F_GETFL");
  use_copy(world, function(world->fd, F_DUPFD_CLOEXEC, FAR_FD));
}

static void try_ioctl(struct world *world) {
  int value = -1;
  char byte;
  ioctl_type function = FUNCTION(world, ioctl_type);
  check(function(world->fd, FIONREAD, &value) == 0 && value == 0, "FIONREAD of nothing");
  value = 1;
  check(function(world->fd, FIONBIO, &value) == 0, "FIONBIO");
  check(read(world->fd, &byte, 1) == -1 && errno == EAGAIN, "it does not wait");
  value = 0;
  check(function(world->fd, FIONBIO, &value) == 0, "FIONBIO back");
  peer_sends(world, SOME);
  check(function(world->fd, FIONREAD, &value) == 0 && value == SOME, "FIONREAD");
  take_rest(world);
}

static void try_setsockopt(struct world *world) {
  char byte;
  struct timeval time = {.tv_usec = 10000};
  setsockopt_type function = FUNCTION(world, setsockopt_type);
  check(function(world->fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time)) == 0, "SO_RCVTIMEO");
  check(recv(world->fd, &byte, 1, 0) == -1 && errno == EAGAIN, "it waits no longer");
  time.tv_usec = 0;
  check(function(world->fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time)) == 0, "SO_RCVTIMEO back");
}

static void try_getsockopt(struct world *world) {
  int value = -1;
  socklen_t size = sizeof(value);
  check(FUNCTION(world, getsockopt_type)(world->fd, SOL_SOCKET, SO_ERROR, &value, &size) == 0, "getsockopt");
  check(value == 0 && size == sizeof(value), "no error");
}

const struct row making_rows[] = {
    {"socket", try_socket},
    {"connect", try_connect},
    {"__connect", try_connect},
    {"listen", try_listen},
    {"accept", try_accept},
    {"accept4", try_accept4},
    {"shutdown", try_shutdown},
    {"close", try_close},
    {"__close", try_close},
    {"posix_close", try_posix_close},
    {"close_range", try_close_range},
    {"closefrom", try_closefrom},
    {"dup", try_dup},
    {"dup2", try_dup2},
    {"__dup2", try_dup2},
    {"dup3", try_dup3},
    {"fcntl", try_fcntl},
    {"fcntl64", try_fcntl},
    {"__fcntl", try_fcntl},
    {"ioctl", try_ioctl},
    {"setsockopt", try_setsockopt},
    {"getsockopt", try_getsockopt},
    {NULL, NULL},
};
