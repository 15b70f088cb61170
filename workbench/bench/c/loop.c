// The loops of workbench/bench/native-loop.ts in C, for the bench only. Reads `KIND SIZE
// ITERATIONS` lines, answers with ns per iteration.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static void check(int ok, const char *what) {
  if (ok) return;
  perror(what);
  exit(1);
}

static double now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static double run_epoll(int size, long iterations) {
  int epoll = epoll_create1(EPOLL_CLOEXEC);
  int fds[64];
  check(epoll >= 0 && size <= 64, "epoll_create1");
  for (int i = 0; i < size; i++) {
    fds[i] = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = (uint64_t)i};
    check(epoll_ctl(epoll, EPOLL_CTL_ADD, fds[i], &event) == 0, "epoll_ctl");
  }
  struct epoll_event events[64];
  const struct timespec zero = {0};
  volatile uint64_t sum = 0;
  double start = now_ns();
  for (long i = 0; i < iterations; i++) {
    int count = epoll_pwait2(epoll, events, 64, &zero, NULL);
    for (int index = 0; index < count; index++)
      sum += events[index].data.u64 + events[index].events;
  }
  double took = now_ns() - start;
  for (int i = 0; i < size; i++)
    close(fds[i]);
  close(epoll);
  return took / (double)iterations;
}

static void tune(int fd) {
  int one = 1, buffer = 1 << 20;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof(buffer));
  setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof(buffer));
}

static double run_pump(int size, long iterations) {
  int memfd = memfd_create("pump", MFD_CLOEXEC);
  check(memfd >= 0 && ftruncate(memfd, 2L * size) == 0, "memfd_create");
  char *memory = mmap(NULL, 2UL * (size_t)size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, memfd, 0);
  check(memory != MAP_FAILED, "mmap");
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t length = sizeof(address);
  int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  check(bind(listener, (struct sockaddr *)&address, sizeof(address)) == 0, "bind");
  check(listen(listener, 1) == 0, "listen");
  getsockname(listener, (struct sockaddr *)&address, &length);
  int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  check(connect(client, (struct sockaddr *)&address, sizeof(address)) == 0, "connect");
  int server = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
  check(server >= 0, "accept4");
  tune(client);
  tune(server);
  double start = now_ns();
  for (long i = 0; i < iterations; i++) {
    long sent = 0, got = 0;
    while (got < size) {
      if (sent < size) {
        ssize_t n = send(client, memory + sent, (size_t)(size - sent), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n > 0) sent += n;
      }
      ssize_t n = recv(server, memory + size + got, (size_t)(size - got), MSG_DONTWAIT);
      if (n > 0) got += n;
    }
  }
  double took = now_ns() - start;
  close(client);
  close(server);
  close(listener);
  munmap(memory, 2UL * (size_t)size);
  close(memfd);
  return took / (double)iterations;
}

// The last processor this process may use, as native-loop.ts takes.
static void pin(void) {
  cpu_set_t set, one;
  check(sched_getaffinity(0, sizeof(set), &set) == 0, "sched_getaffinity");
  int last = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
    if (CPU_ISSET(cpu, &set)) last = cpu;
  }
  CPU_ZERO(&one);
  CPU_SET(last, &one);
  check(sched_setaffinity(0, sizeof(one), &one) == 0, "sched_setaffinity");
}

int main(void) {
  char kind[16];
  int size;
  long iterations;
  pin();
  while (scanf("%15s %d %ld", kind, &size, &iterations) == 3) {
    double ns = strcmp(kind, "epoll") == 0 ? run_epoll(size, iterations) : run_pump(size, iterations);
    printf("%.3f\n", ns);
    fflush(stdout);
  }
  return 0;
}
