// Two processes with one connection, which becomes direct and plain again: prints the keepalive of
// the socket as the program sees it, and as the kernel has it.
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int (*promote)(int), (*demote)(int);

static void require(int is_right, const char *what) {
  if (is_right) return;
  perror(what);
  exit(1);
}

static int seen(int fd, int level, int option) {
  int value = -1;
  socklen_t size = sizeof(value);
  require(getsockopt(fd, level, option, &value, &size) == 0 && size == sizeof(value), "getsockopt");
  return value;
}

// Past the library, which does not look at this call.
static int had(int fd, int level, int option) {
  int value = -1;
  socklen_t size = sizeof(value);
  require(syscall(SYS_getsockopt, fd, level, option, &value, &size) == 0, "getsockopt");
  return value;
}

static void show(const char *when, int fd) {
  printf("%s: seen", when);
  for (int is_kernel = 0; is_kernel < 2; is_kernel++) {
    int (*get)(int, int, int) = is_kernel ? had : seen;
    printf("%s %d %d %d %d", is_kernel ? ", had" : "", get(fd, SOL_SOCKET, SO_KEEPALIVE),
           get(fd, IPPROTO_TCP, TCP_KEEPIDLE), get(fd, IPPROTO_TCP, TCP_KEEPINTVL), get(fd, IPPROTO_TCP, TCP_KEEPCNT));
  }
  printf("\n");
}

static void set(int fd, int level, int option, int value) {
  require(setsockopt(fd, level, option, &value, sizeof(value)) == 0, "setsockopt");
}

static void exchange(int fd) {
  char byte = 'x';
  require(send(fd, &byte, 1, 0) == 1 && recv(fd, &byte, 1, 0) == 1, "exchange");
}

static void become_direct(int fd) {
  // The other end may be late.
  for (int tries = 0; !promote(fd); tries++)
    require(tries < 20, "promote");
}

static void play_client(const struct sockaddr_in *address) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  require(connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0, "connect");
  set(fd, IPPROTO_TCP, TCP_KEEPIDLE, 222);
  set(fd, IPPROTO_TCP, TCP_KEEPINTVL, 33);
  set(fd, IPPROTO_TCP, TCP_KEEPCNT, 9);
  show("plain", fd);
  become_direct(fd);
  exchange(fd);
  show("direct", fd);
  set(fd, IPPROTO_TCP, TCP_KEEPIDLE, 44);
  show("idle set", fd);
  set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  show("on", fd);
  set(fd, SOL_SOCKET, SO_KEEPALIVE, 0);
  show("off", fd);
  set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 5000);
  show("with a limit", fd);
  set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 0);
  exchange(fd);
  require(demote(fd), "demote");
  show("plain again", fd);
  exchange(fd);
  fflush(stdout);
  close(fd);
}

int main(void) {
  promote = (int (*)(int))dlsym(RTLD_DEFAULT, "millrace_direct_promote");
  demote = (int (*)(int))dlsym(RTLD_DEFAULT, "millrace_direct_demote");
  require(promote != NULL && demote != NULL, "the library is not loaded");
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t size = sizeof(address);
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  require(bind(listener, (struct sockaddr *)&address, size) == 0 && listen(listener, 8) == 0, "listen");
  require(getsockname(listener, (struct sockaddr *)&address, &size) == 0, "getsockname");
  const pid_t child = fork();
  if (child == 0) {
    close(listener);
    play_client(&address);
    exit(0);
  }
  const int fd = accept(listener, NULL, NULL);
  require(fd >= 0, "accept");
  become_direct(fd);
  for (char byte; recv(fd, &byte, 1, 0) == 1;)
    require(send(fd, &byte, 1, 0) == 1, "send");
  int status;
  require(waitpid(child, &status, 0) == child, "client");
  return status == 0 ? 0 : 1;
}
