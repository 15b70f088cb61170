// Two processes with one connection. A thread of one waits for it in the kernel while another
// thread offers it: whichever way the next byte comes, the wait must end.
//
//   threads WAIT ROUNDS: prints "ROUNDS woken, N promoted"; WAIT is poll, ppoll, select, pselect,
//   epoll or recv.
#include <arpa/inet.h>
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static int (*promote)(int);
static const char *wait_kind;
static int server_fd;

static void require(int is_right, const char *what) {
  if (is_right) return;
  perror(what);
  exit(1);
}

static void *wait_for_byte(void *unused) {
  (void)unused;
  const int fd = server_fd;
  struct pollfd one = {.fd = fd, .events = POLLIN};
  fd_set set;
  FD_ZERO(&set);
  FD_SET(fd, &set);
  int count = -1;
  if (strcmp(wait_kind, "poll") == 0) count = poll(&one, 1, -1);
  if (strcmp(wait_kind, "ppoll") == 0) count = ppoll(&one, 1, NULL, NULL);
  if (strcmp(wait_kind, "select") == 0) count = select(fd + 1, &set, NULL, NULL, NULL);
  if (strcmp(wait_kind, "pselect") == 0) count = pselect(fd + 1, &set, NULL, NULL, NULL, NULL);
  if (strcmp(wait_kind, "epoll") == 0) {
    struct epoll_event event = {.events = EPOLLIN};
    const int poller = epoll_create1(0);
    require(epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event) == 0, "epoll_ctl");
    count = epoll_wait(poller, &event, 1, -1);
    close(poller);
  }
  char byte;
  if (strcmp(wait_kind, "recv") == 0) count = 1;
  require(count == 1, "wait");
  require(recv(fd, &byte, 1, 0) == 1, "recv");
  return NULL;
}

// The client: offers its end, and sends a byte when the server says so over the pipe.
static void play_client(const struct sockaddr_in *address, int orders) {
  char order;
  while (read(orders, &order, 1) == 1) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    require(connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0, "connect");
    require(read(orders, &order, 1) == 1, "order");
    promote(fd);
    require(send(fd, "x", 1, 0) == 1, "send");
    require(read(orders, &order, 1) == 1, "order");
    close(fd);
  }
  exit(0);
}

int main(int count, char **words) {
  require(count == 3, "threads WAIT ROUNDS");
  wait_kind = words[1];
  const int rounds = atoi(words[2]);
  promote = (int (*)(int))dlsym(RTLD_DEFAULT, "millrace_direct_promote");
  require(promote != NULL, "the library is not loaded");
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t size = sizeof(address);
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  require(bind(listener, (struct sockaddr *)&address, size) == 0 && listen(listener, 8) == 0, "listen");
  require(getsockname(listener, (struct sockaddr *)&address, &size) == 0, "getsockname");
  int orders[2];
  require(pipe(orders) == 0, "pipe");
  const pid_t child = fork();
  if (child == 0) {
    close(orders[1]);
    close(listener);
    play_client(&address, orders[0]);
  }
  close(orders[0]);
  int promoted = 0;
  for (int round = 0; round < rounds; round++) {
    require(write(orders[1], "c", 1) == 1, "order");
    server_fd = accept(listener, NULL, NULL);
    require(server_fd >= 0, "accept");
    pthread_t thread;
    require(pthread_create(&thread, NULL, wait_for_byte, NULL) == 0, "thread");
    // Until it waits, or is about to: all of that must be right.
    usleep((useconds_t)(round % 4) * 300);
    require(write(orders[1], "s", 1) == 1, "order");
    promoted += promote(server_fd);
    require(pthread_join(thread, NULL) == 0, "join");
    require(write(orders[1], "e", 1) == 1, "order");
    close(server_fd);
  }
  close(orders[1]);
  int status;
  require(waitpid(child, &status, 0) == child && status == 0, "client");
  printf("%d woken, %d promoted\n", rounds, promoted);
}
