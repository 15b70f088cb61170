// Makes the connection, moves checked bytes over it, and asks where they go.
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "world.h"

void check(bool is_right, const char *what) {
  if (is_right) return;
  printf("%s (%s)\n", what, strerrorname_np(errno));
  fflush(stdout);
  _exit(1);
}

static int ask_library(const char *name, int fd) {
  int (*function)(int) = NULL;
  *(void **)&function = dlsym(RTLD_DEFAULT, name);
  return function == NULL ? -1 : function(fd);
}

bool is_state(int fd, int expected) {
  int state = ask_library("millrace_direct_state", fd);
  return state < 0 || state == expected;
}

static void tell_peer(struct world *world, enum op op) {
  struct order order = {.op = op};
  tell(&world->game, PEER, &order);
}

bool promote_both(struct world *world) {
  int here = 0;
  int64_t there = 0;
  // The daemon may get no processor for a while.
  for (int tries = 0; tries < 40 && here >= 0 && (here != 1 || there != 1); tries++) {
    tell_peer(world, OP_PROMOTE);
    here = ask_library("millrace_direct_promote", world->fd);
    there = hear(&world->game, PEER).result;
  }
  check(here < 0 || (here == 1 && there == 1), "the connection was not promoted");
  return here == 1;
}

void make_connection(struct world *world, int (*connector)(int, const void *, unsigned)) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)world->game.port[PEER][0])};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  world->fd = socket(AF_INET, SOCK_STREAM, 0);
  check(connector(world->fd, &address, sizeof(address)) == 0, "connect");
  tell_peer(world, OP_ACCEPT);
  check(hear(&world->game, PEER).result == 0, "accept at the peer");
}

void peer_sends(struct world *world, uint32_t count) {
  struct order order = {.op = OP_WRITE, .length = count, .pattern = world->pattern[1], .position = world->due};
  tell(&world->game, PEER, &order);
  check(hear(&world->game, PEER).result == count, "write at the peer");
  world->due += count;
  struct need need = {.bytes = (uint32_t)(world->due - world->taken)};
  check(wait_for(world->fd, &need), "bytes of the peer arrive");
}

int64_t peer_reads(struct world *world, uint32_t count) {
  struct order order = {.op = OP_READ, .by = BY_SEND, .flags = MSG_WAITALL, .length = count};
  order.pattern = world->pattern[0];
  order.position = world->sent - count;
  tell(&world->game, PEER, &order);
  struct answer answer = hear(&world->game, PEER);
  answer.text[answer.length] = 0;
  if (strstr(answer.text, "WRONG") != NULL) return -1;
  return answer.result;
}

void peer_takes(struct world *world, uint32_t count) {
  check(peer_reads(world, count) == count, "the peer reads what was written");
}

const uint8_t *ours(struct world *world, size_t count) {
  static uint8_t bytes[65536];
  fill(bytes, count, world->pattern[0], world->sent);
  world->sent += count;
  return bytes;
}

void theirs(struct world *world, const void *bytes, ssize_t count, ssize_t expected) {
  check(count == expected, "the number of bytes read");
  check(mismatch(bytes, (size_t)count, world->pattern[1], world->taken) < 0, "the bytes read");
  world->taken += (uint64_t)count;
}

void take_rest(struct world *world) {
  uint8_t bytes[4096];
  size_t left = (size_t)(world->due - world->taken);
  if (left > 0) theirs(world, bytes, recv(world->fd, bytes, left, MSG_WAITALL), (ssize_t)left);
}

const char *after_command(struct world *world) {
  static char text[4300];
  char program[4096];
  ssize_t length = readlink("/proc/self/exe", program, sizeof(program) - 1);
  check(length > 0, "readlink");
  program[length] = 0;
  snprintf(text, sizeof(text), "%s after %d %llu %llu", program, world->fd, (unsigned long long)world->pattern[0],
           (unsigned long long)world->sent);
  world->sent += SOME;
  return text;
}

// Words: descriptor, pattern, position.
int after_main(char **words) {
  int fd = atoi(words[0]);
  uint8_t bytes[SOME];
  fill(bytes, SOME, strtoull(words[1], NULL, 10), strtoull(words[2], NULL, 10));
  if (!is_state(fd, 0)) return 1;
  return write(fd, bytes, SOME) == SOME ? 0 : 2;
}
