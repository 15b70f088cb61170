// Two processes with one connection, which becomes direct and plain again: prints the keepalive of
// the socket as the program sees it, and as the kernel has it.
#include "../direct-pair.h"

#include <netinet/tcp.h>
#include <sys/syscall.h>

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

static void play_client(int fd) {
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
  require(library_call("millrace_direct_demote")(fd), "demote");
  show("plain again", fd);
  exchange(fd);
}

static void play_server(int fd) {
  become_direct(fd);
  for (char byte; recv(fd, &byte, 1, 0) == 1;)
    require(send(fd, &byte, 1, 0) == 1, "send");
}

int main(void) {
  return play_pair(play_client, play_server);
}
