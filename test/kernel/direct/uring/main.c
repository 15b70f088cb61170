// Sends and receives through an io_uring, and compares the bytes.
//
//   uring server PORT WAY            echoes connections, one after the other
//   uring client ADDRESS PORT WAY    sends messages, compares what comes back, says how many bytes
//
// WAY: sockets, syscall, liburing. Two of them, as in sockets+liburing: the second for the second
// half of the bytes, its ring set up before the first one. In sockets-syscall it is set up then,
// after the connection has become direct.
#include "uring.h"

#include <errno.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MESSAGES = 400, LARGEST = 60000 };

static const struct way *way, *second;
static bool is_prepared;

void fail(const char *what, int error) {
  fprintf(stderr, "%s: %s\n", what, strerror(error));
  exit(1);
}

static void nothing(void) {
}

static ssize_t send_it(int fd, const void *bytes, size_t size) {
  const ssize_t sent = send(fd, bytes, size, 0);
  if (sent < 0) fail("send", errno);
  return sent;
}

static ssize_t receive(int fd, void *bytes, size_t size) {
  const ssize_t got = recv(fd, bytes, size, 0);
  if (got < 0) fail("recv", errno);
  return got;
}

const struct way by_sockets = {nothing, send_it, receive};

static const struct way *named(const char *name) {
  if (strcmp(name, "sockets") == 0) return &by_sockets;
  if (strcmp(name, "syscall") == 0) return &by_syscall;
  if (strcmp(name, "liburing") == 0) return &by_liburing;
  fail(name, EINVAL);
}

static void choose(char *words) {
  const size_t length = strcspn(words, "+-");
  const char between = words[length];
  words[length] = 0;
  way = named(words);
  way->prepare();
  if (between == 0) return;
  second = named(words + length + 1);
  is_prepared = between == '+';
  if (is_prepared) second->prepare();
}

// Of the library, if it is there: waits for up to a quarter of a second.
int millrace_direct_promote(int fd) __attribute__((weak));

static void change_way(int fd) {
  if (second == NULL) return;
  for (int tries = 0; !is_prepared && tries < 100 && millrace_direct_promote(fd) == 0; tries++) {
  }
  if (!is_prepared) second->prepare();
  way = second;
  second = NULL;
}

static int open_socket(const char *address, const char *port) {
  const struct addrinfo hints = {.ai_family = address == NULL ? AF_INET6 : AF_UNSPEC,
                                 .ai_socktype = SOCK_STREAM,
                                 .ai_flags = AI_PASSIVE | AI_NUMERICHOST | AI_NUMERICSERV};
  struct addrinfo *found;
  const int problem = getaddrinfo(address, port, &hints, &found);
  if (problem != 0) fail(gai_strerror(problem), 0);
  const int fd = socket(found->ai_family, SOCK_STREAM, 0);
  const int yes = 1;
  if (fd < 0) fail("socket", errno);
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  if (address == NULL) {
    if (bind(fd, found->ai_addr, found->ai_addrlen) != 0 || listen(fd, 8) != 0) fail("listen", errno);
  } else if (connect(fd, found->ai_addr, found->ai_addrlen) != 0) {
    fail("connect", errno);
  }
  freeaddrinfo(found);
  return fd;
}

static void send_all(int fd, const uint8_t *bytes, size_t size) {
  while (size > 0) {
    const size_t sent = (size_t)way->send(fd, bytes, size);
    bytes += sent;
    size -= sent;
  }
}

static void serve(const char *port) {
  static uint8_t buffer[LARGEST];
  const int listener = open_socket(NULL, port);
  puts("ready");
  fflush(stdout);
  for (;;) {
    const int fd = accept(listener, NULL, NULL);
    if (fd < 0) fail("accept", errno);
    size_t echoed = 0;
    for (ssize_t size; (size = way->receive(fd, buffer, sizeof(buffer))) > 0;) {
      send_all(fd, buffer, (size_t)size);
      echoed += (size_t)size;
      if (echoed > 1000000) change_way(fd);
    }
    close(fd);
  }
}

static void ask(const char *address, const char *port) {
  static uint8_t sent[LARGEST], back[LARGEST];
  const int fd = open_socket(address, port);
  size_t total = 0;
  for (uint32_t number = 0; number < MESSAGES; number++) {
    const size_t size = 1 + number * 7919 % LARGEST;
    for (size_t i = 0; i < size; i++)
      sent[i] = (uint8_t)((total + i) * 2654435761u >> 13);
    if (number == MESSAGES / 2) change_way(fd);
    send_all(fd, sent, size);
    for (size_t got = 0; got < size;) {
      const ssize_t more = way->receive(fd, back + got, size - got);
      if (more == 0) fail("the connection ended early", 0);
      got += (size_t)more;
    }
    if (memcmp(sent, back, size) != 0) fail("a message came back wrong", 0);
    total += size;
  }
  shutdown(fd, SHUT_WR);
  if (way->receive(fd, back, sizeof(back)) != 0) fail("more came back than was sent", 0);
  close(fd);
  printf("%zu bytes\n", total);
}

int main(int count, char **words) {
  if (count == 4 && strcmp(words[1], "server") == 0) {
    choose(words[3]);
    serve(words[2]);
  } else if (count == 5 && strcmp(words[1], "client") == 0) {
    choose(words[4]);
    ask(words[2], words[3]);
  } else {
    fail("uring server PORT WAY | uring client ADDRESS PORT WAY", 0);
  }
}
