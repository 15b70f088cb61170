// Two processes with one direct connection fill both rings and empty them again, each time after a
// line came on standard input; between the times they wait.
#include "../direct-pair.h"

#include <poll.h>

enum { ROUNDS = 3, BYTES = 48 * 1024 };

static unsigned char pattern(int round, int offset) {
  return (unsigned char)(offset * 31 + offset / 256 + round);
}

static void send_all(int fd, int round) {
  static unsigned char bytes[BYTES];
  for (int i = 0; i < BYTES; i++)
    bytes[i] = pattern(round, i);
  require(send(fd, bytes, BYTES, 0) == BYTES, "send");
}

static void receive_all(int fd, int round) {
  static unsigned char bytes[BYTES];
  require(recv(fd, bytes, BYTES, MSG_WAITALL) == BYTES, "recv");
  for (int i = 0; i < BYTES; i++)
    require(bytes[i] == pattern(round, i), "wrong bytes");
}

static void play_client(int fd) {
  become_direct(fd);
  for (int round = 0; round < ROUNDS; round++) {
    // With the socket, so that it is the library that waits, and hears what the daemon asks for.
    struct pollfd both[] = {{.fd = 0, .events = POLLIN}, {.fd = fd, .events = POLLIN}};
    require(poll(both, 2, -1) == 1 && both[0].revents == POLLIN, "poll");
    char line;
    require(read(0, &line, 1) == 1, "read");
    send_all(fd, round);
    receive_all(fd, round);
    printf("round %d\n", round);
    fflush(stdout);
  }
}

static void play_server(int fd) {
  become_direct(fd);
  for (int round = 0; round < ROUNDS; round++) {
    receive_all(fd, round);
    send_all(fd, round);
  }
  char byte;
  require(recv(fd, &byte, 1, 0) == 0, "end");
}

int main(void) {
  return play_pair(play_client, play_server);
}
