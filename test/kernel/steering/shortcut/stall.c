// A receiver that does not read while much is offered: what the kernel holds, and whether the
// sender rests.

#include "flow.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SEED = 7 };

struct progress {
  volatile uint64_t sent;
  volatile uint64_t wakes; // of a sender that polls
};

static void wait_writable(int epoll, struct progress *progress) {
  struct epoll_event event;
  must(epoll_wait(epoll, &event, 1, 60000) == 1, "not writable for 60 s");
  progress->wakes++;
}

static void offer(int fd, uint64_t total, size_t length, const char *kind, struct progress *progress) {
  uint8_t *bytes = malloc(length);
  const int epoll = epoll_create1(0);
  const bool is_blocking = strcmp(kind, "blocking") == 0;
  struct epoll_event event = {.events = EPOLLOUT | (strcmp(kind, "edge") == 0 ? EPOLLET : 0)};
  if (!is_blocking) {
    set_nonblocking(fd);
    must(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0, "epoll_ctl");
  }
  while (progress->sent < total) {
    const size_t next = total - progress->sent < length ? total - progress->sent : length;
    fill(bytes, next, progress->sent, SEED);
    // A level-triggered program asks before each send; an edge-triggered one only after EAGAIN.
    if (strcmp(kind, "level") == 0) wait_writable(epoll, progress);
    const ssize_t n = send(fd, bytes, next, MSG_NOSIGNAL);
    if (n < 0 && errno == EAGAIN && !is_blocking) {
      if (strcmp(kind, "edge") == 0) wait_writable(epoll, progress);
      continue;
    }
    must(n > 0, "send");
    progress->sent += (uint64_t)n;
  }
}

// stall blocking|level|edge TOTAL_BYTES MESSAGE_BYTES STALL_MS
static void stall(const char *address, int argc, char **argv) {
  must(argc == 4, "stall blocking|level|edge TOTAL_BYTES MESSAGE_BYTES STALL_MS");
  const uint64_t total = strtoull(argv[1], NULL, 10);
  const int stall_ms = atoi(argv[3]);
  const struct ends ends = connect_ends(address);
  const int buffer = chosen_number("FLOW_RECEIVE_BUFFER");
  if (buffer) setsockopt(ends.server, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof(buffer));
  struct progress *progress = mmap(NULL, sizeof(*progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  const long before = kernel_kib();
  const pid_t sender = fork();
  if (sender == 0) {
    close(ends.server);
    offer(ends.client, total, (size_t)atoi(argv[2]), argv[0], progress);
    _exit(0);
  }
  close(ends.client);
  // Until it has come to rest.
  for (uint64_t last = ~0ull; progress->sent != last;) {
    last = progress->sent;
    pause_ms(300);
  }
  const uint64_t held = progress->sent, wakes = progress->wakes;
  const long cpu = cpu_ms(sender);
  // Others use memory as well, for a moment; what is held here is held all the time.
  long least = kernel_kib() - before;
  for (int i = 0; i < stall_ms; i += 100) {
    pause_ms(100);
    const long now = kernel_kib() - before;
    if (now < least) least = now;
  }
  const bool rested = progress->sent == held;
  const long spent = cpu_ms(sender) - cpu;
  const uint64_t woken = progress->wakes - wakes;
  uint64_t received = 0;
  uint8_t *bytes = malloc(1 << 20);
  double last = now_ms(), longest = 0;
  for (;;) {
    const ssize_t n = recv(ends.server, bytes, 1 << 20, 0);
    if (n < 0 && errno == EAGAIN) continue;
    if (n <= 0) break;
    must(is_right(bytes, (size_t)n, received, SEED), "wrong bytes");
    received += (uint64_t)n;
    const double now = now_ms();
    if (now - last > longest) longest = now - last;
    last = now;
  }
  int status = 0;
  must(waitpid(sender, &status, 0) == sender && status == 0, "the sender failed");
  printf("{\"sentAtRest\":%llu,\"rested\":%s,\"heldKib\":%ld,\"cpuMs\":%ld,\"wakes\":%llu,\"received\":%llu,"
         "\"longestGapMs\":%.0f}\n",
         (unsigned long long)held, rested ? "true" : "false", least, spent, (unsigned long long)woken,
         (unsigned long long)received, longest);
}

const struct scenario stall_scenarios[] = {{"stall", stall}, {0}};
