// Says what congestion control a socket has: after a connect, after one whose program chose, and
// when used again elsewhere. Arguments: address, a carried port, a port that is not carried. The
// server says what it has.
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void check(int result, const char *what) {
  if (result >= 0) return;
  perror(what);
  exit(1);
}

static char name[16];

static void say(const char *what, int fd) {
  socklen_t size = sizeof(name);
  memset(name, 0, sizeof(name));
  check(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &size), "getsockopt");
  printf("%s %s\n", what, name);
}

static void go(int fd, const char *address, const char *port) {
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
  inet_pton(AF_INET, address, &to.sin_addr);
  check(connect(fd, (struct sockaddr *)&to, sizeof(to)), "connect");
}

static int serve(const char *carried, const char *plain) {
  int listeners[2];
  for (int i = 0; i < 2; i++) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(i == 0 ? carried : plain))};
    listeners[i] = socket(AF_INET, SOCK_STREAM, 0);
    check(bind(listeners[i], (struct sockaddr *)&at, sizeof(at)), "bind");
    check(listen(listeners[i], 16), "listen");
  }
  int fd = accept(listeners[0], NULL, NULL);
  check(fd, "accept");
  say("accepted", fd);
  fflush(stdout);
  pause();
  return 0;
}

int main(int argc, char **argv) {
  if (argc == 3) return serve(argv[1], argv[2]);
  int first = socket(AF_INET, SOCK_STREAM, 0), chosen = socket(AF_INET, SOCK_STREAM, 0);
  say("fresh", first);
  check(setsockopt(chosen, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name)), "setsockopt");
  go(first, argv[1], argv[2]);
  say("carried", first);
  go(chosen, argv[1], argv[2]);
  say("chosen", chosen);
  struct sockaddr nowhere = {.sa_family = AF_UNSPEC};
  check(connect(first, &nowhere, sizeof(nowhere)), "disconnect");
  go(first, argv[1], argv[3]);
  say("elsewhere", first);
  return 0;
}
