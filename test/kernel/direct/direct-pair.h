// Two processes with one connection, and the library's calls for tests.
#ifndef DIRECT_PAIR_H
#define DIRECT_PAIR_H

#include <arpa/inet.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static inline void require(int is_right, const char *what) {
  if (is_right) return;
  perror(what);
  exit(1);
}

// A function of the library: `millrace_direct_promote` or `millrace_direct_demote`.
static inline int (*library_call(const char *name))(int) {
  int (*call)(int) = (int (*)(int))dlsym(RTLD_DEFAULT, name);
  require(call != NULL, "the library is not loaded");
  return call;
}

static inline void become_direct(int fd) {
  int (*promote)(int) = library_call("millrace_direct_promote");
  // The other end may be late.
  for (int tries = 0; !promote(fd); tries++)
    require(tries < 20, "promote");
}

// A child connects to its parent: each plays its own end. The answer is the exit code.
static inline int play_pair(void (*play_client)(int), void (*play_server)(int)) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t size = sizeof(address);
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  require(bind(listener, (struct sockaddr *)&address, size) == 0 && listen(listener, 8) == 0, "listen");
  require(getsockname(listener, (struct sockaddr *)&address, &size) == 0, "getsockname");
  const pid_t child = fork();
  if (child == 0) {
    close(listener);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    require(connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0, "connect");
    play_client(fd);
    fflush(stdout);
    close(fd);
    exit(0);
  }
  const int fd = accept(listener, NULL, NULL);
  require(fd >= 0, "accept");
  play_server(fd);
  int status;
  require(waitpid(child, &status, 0) == child, "client");
  return status == 0 ? 0 : 1;
}

#endif
