// The client of steer.* and proxy.*, for the bench only. It reads `KIND ADDRESS PORT AMOUNT MS`
// lines and answers each with a figure:
//   rtt       median round trip of messages of AMOUNT bytes, us
//   bulk      AMOUNT streams, MiB/s as the server acknowledged them
//   volume    the same, MiB
//   connects  connections that were made, used and closed in a second, AMOUNT at a time
//   stall     AMOUNT MiB are offered to a server that does not read: bytes sent when nothing moved any more for MS
//   idle      AMOUNT connections are made and used once, and stay open: how many
//   drop      ends those of stall and idle
//   slow      AMOUNT MiB are offered each second for MS to a server that reads less: bytes sent
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

// CHUNK_BYTES: what iperf3 sends at a time. BLOCK_BYTES: as in steer-server.c, which tells of each
// block; so many of them may be under way.
enum { CHUNK_BYTES = 128 * 1024, BLOCK_BYTES = 16 << 20, WINDOW_BYTES = 8 * BLOCK_BYTES };
enum { MAX_STREAMS = 64, MAX_HELD = 16384, MAX_SAMPLES = 1 << 20, PATIENCE_MS = 10000 };

struct job {
  int port, amount, ms;
};

static char server[16];
static char chunk[CHUNK_BYTES];
static double samples[MAX_SAMPLES];
static int held[MAX_HELD], held_count;

static void check(int ok, const char *what) {
  if (ok) return;
  perror(what);
  exit(1);
}

static double now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static int call(int port, int flags) {
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
  check(fd >= 0 && inet_pton(AF_INET, server, &at.sin_addr) == 1, "socket");
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  check(connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0 || errno == EINPROGRESS, "connect");
  return fd;
}

// Connected, asked for that kind of service, and no longer blocking.
static int ask(int port, char kind) {
  int fd = call(port, 0);
  check(send(fd, &kind, 1, MSG_NOSIGNAL) == 1, "send");
  check(fcntl(fd, F_SETFL, O_NONBLOCK) == 0, "fcntl");
  return fd;
}

// What comes back with the event is `about`, or the descriptor.
static int watch(int epoll, int operation, int fd, uint32_t events, void *about) {
  struct epoll_event event = {.events = events, .data.fd = fd};
  if (about) event.data.ptr = about;
  return epoll_ctl(epoll, operation, fd, &event);
}

static int wait_for(int epoll, struct epoll_event *events) {
  int count = epoll_wait(epoll, events, MAX_STREAMS, PATIENCE_MS);
  if (count == 0) errno = ETIMEDOUT;
  check(count > 0, "epoll_wait");
  return count;
}

static int is_less(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double run_rtt(struct job job) {
  int fd = ask(job.port, 'e'), epoll = epoll_create1(EPOLL_CLOEXEC);
  struct epoll_event events[MAX_STREAMS];
  check(watch(epoll, EPOLL_CTL_ADD, fd, EPOLLIN, NULL) == 0, "epoll_ctl");
  size_t count = 0;
  double start = now_ms(), last = start;
  while (last < start + job.ms && count < MAX_SAMPLES) {
    check(send(fd, chunk, (size_t)job.amount, MSG_NOSIGNAL) == job.amount, "send");
    for (int got = 0; got < job.amount;) {
      wait_for(epoll, events);
      ssize_t n = recv(fd, chunk, (size_t)(job.amount - got), 0);
      check(n > 0 || (n < 0 && errno == EAGAIN), "recv");
      if (n > 0) got += (int)n;
    }
    double now = now_ms();
    samples[count++] = now - last;
    last = now;
  }
  close(fd);
  close(epoll);
  qsort(samples, count, sizeof(*samples), is_less);
  return samples[count / 2] * 1e3;
}

struct stream {
  int fd;
  uint64_t sent, acknowledged;
  uint32_t wished; // events
};

// What it waits for: room to send, unless the server is far behind or this was the last block. No
// path is to be measured by how much memory it can fill.
static uint32_t wishes(const struct stream *stream, int is_over) {
  int is_done = is_over && stream->sent % BLOCK_BYTES == 0;
  return is_done || stream->sent - stream->acknowledged >= WINDOW_BYTES ? EPOLLIN : EPOLLIN | EPOLLOUT;
}

static void move(struct stream *stream, uint32_t events) {
  char acknowledgements[WINDOW_BYTES / BLOCK_BYTES];
  size_t rest = BLOCK_BYTES - stream->sent % BLOCK_BYTES;
  if (events & EPOLLIN) {
    ssize_t n = recv(stream->fd, acknowledgements, sizeof(acknowledgements), 0);
    check(n > 0 || (n < 0 && errno == EAGAIN), "recv");
    if (n > 0) stream->acknowledged += (uint64_t)n * BLOCK_BYTES;
  }
  if (events & EPOLLOUT) {
    ssize_t n = send(stream->fd, chunk, rest < sizeof(chunk) ? rest : sizeof(chunk), MSG_NOSIGNAL);
    check(n > 0 || (n < 0 && errno == EAGAIN), "send");
    if (n > 0) stream->sent += (uint64_t)n;
  }
}

// What was acknowledged, and how long that took.
static double run_streams(struct job job, double *took_ms) {
  int epoll = epoll_create1(EPOLL_CLOEXEC), open = job.amount;
  struct epoll_event events[MAX_STREAMS];
  struct stream streams[MAX_STREAMS];
  check(open > 0 && open <= MAX_STREAMS, "streams");
  for (int i = 0; i < open; i++) {
    streams[i] = (struct stream){.fd = ask(job.port, 's'), .wished = EPOLLIN | EPOLLOUT};
    check(watch(epoll, EPOLL_CTL_ADD, streams[i].fd, streams[i].wished, &streams[i]) == 0, "epoll_ctl");
  }
  uint64_t total = 0;
  double start = now_ms();
  while (open > 0) {
    int count = wait_for(epoll, events), is_over = now_ms() >= start + job.ms;
    for (int i = 0; i < count; i++) {
      struct stream *stream = events[i].data.ptr;
      move(stream, events[i].events & wishes(stream, is_over));
      uint32_t wished = wishes(stream, is_over);
      if (!(wished & EPOLLOUT) && stream->acknowledged == stream->sent) {
        total += stream->acknowledged;
        open--;
        close(stream->fd);
      } else if (wished != stream->wished) {
        stream->wished = wished;
        check(watch(epoll, EPOLL_CTL_MOD, stream->fd, wished, stream) == 0, "epoll_ctl");
      }
    }
  }
  *took_ms = now_ms() - start;
  close(epoll);
  return (double)total / (1 << 20);
}

static double run_bulk(struct job job) {
  double took_ms, mib = run_streams(job, &took_ms);
  return mib / took_ms * 1e3;
}

static double run_volume(struct job job) {
  double took_ms;
  return run_streams(job, &took_ms);
}

// True when the server has said goodbye. It closes first, so that no port of this side has to wait.
static int is_answered(int fd) {
  char byte;
  ssize_t n;
  while ((n = recv(fd, &byte, 1, 0)) > 0)
    ;
  check(n == 0 || errno == EAGAIN, "recv");
  return n == 0;
}

static double run_connects(struct job job) {
  int epoll = epoll_create1(EPOLL_CLOEXEC), open = job.amount;
  struct epoll_event events[MAX_STREAMS];
  check(open > 0 && open <= MAX_STREAMS, "connects");
  for (int i = 0; i < open; i++)
    check(watch(epoll, EPOLL_CTL_ADD, call(job.port, SOCK_NONBLOCK), EPOLLOUT, NULL) == 0, "epoll_ctl");
  long done = 0;
  double start = now_ms();
  while (open > 0) {
    int count = wait_for(epoll, events), is_over = now_ms() >= start + job.ms;
    for (int i = 0; i < count; i++) {
      int fd = events[i].data.fd;
      if (events[i].events & EPOLLOUT) {
        check(send(fd, "g", 1, MSG_NOSIGNAL) == 1, "send");
        check(watch(epoll, EPOLL_CTL_MOD, fd, EPOLLIN, NULL) == 0, "epoll_ctl");
      } else if (is_answered(fd)) {
        close(fd);
        done++;
        if (is_over)
          open--;
        else
          check(watch(epoll, EPOLL_CTL_ADD, call(job.port, SOCK_NONBLOCK), EPOLLOUT, NULL) == 0, "epoll_ctl");
      }
    }
  }
  double took = now_ms() - start;
  close(epoll);
  return (double)done / took * 1e3;
}

static int hold(int fd) {
  check(held_count < MAX_HELD, "hold");
  return held[held_count++] = fd;
}

static double run_idle(struct job job) {
  char byte = 0;
  for (int i = 0; i < job.amount; i++) {
    int fd = hold(call(job.port, 0));
    check(send(fd, "e!", 2, MSG_NOSIGNAL) == 2 && recv(fd, &byte, 1, 0) == 1, "echo");
  }
  return job.amount;
}

static double run_stall(struct job job) {
  int stalled = hold(ask(job.port, 'h')), epoll = epoll_create1(EPOLL_CLOEXEC);
  struct epoll_event event;
  check(watch(epoll, EPOLL_CTL_ADD, stalled, EPOLLOUT, NULL) == 0, "epoll_ctl");
  double sent = 0, last = now_ms();
  while (sent < (double)job.amount * (1 << 20) && now_ms() < last + job.ms) {
    if (epoll_wait(epoll, &event, 1, job.ms) <= 0) continue;
    ssize_t n = send(stalled, chunk, sizeof(chunk), MSG_NOSIGNAL);
    check(n > 0 || errno == EAGAIN, "send");
    if (n <= 0) continue;
    sent += (double)n;
    last = now_ms();
  }
  close(epoll);
  return sent;
}

// With a reset: nobody will ever read what is under way.
static double run_drop(void) {
  struct linger now = {.l_onoff = 1, .l_linger = 0};
  double dropped = held_count;
  while (held_count > 0) {
    int fd = held[--held_count];
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    close(fd);
  }
  return dropped;
}

static double run_slow(struct job job) {
  int fd = ask(job.port, 'w');
  const struct timespec tick = {.tv_nsec = 2000000};
  double sent = 0, start = now_ms();
  for (double now = start; now < start + job.ms; now = now_ms()) {
    double due = (now - start) / 1e3 * job.amount * (1 << 20);
    ssize_t n = 0;
    while (sent < due && (n = send(fd, chunk, sizeof(chunk), MSG_NOSIGNAL)) > 0)
      sent += (double)n;
    check(n >= 0 || errno == EAGAIN, "send");
    nanosleep(&tick, NULL);
  }
  close(fd);
  return sent;
}

int main(void) {
  char kind[16];
  struct job job;
  while (scanf("%15s %15s %d %d %d", kind, server, &job.port, &job.amount, &job.ms) == 5) {
    double figure = strcmp(kind, "rtt") == 0        ? run_rtt(job)
                    : strcmp(kind, "bulk") == 0     ? run_bulk(job)
                    : strcmp(kind, "volume") == 0   ? run_volume(job)
                    : strcmp(kind, "connects") == 0 ? run_connects(job)
                    : strcmp(kind, "stall") == 0    ? run_stall(job)
                    : strcmp(kind, "idle") == 0     ? run_idle(job)
                    : strcmp(kind, "slow") == 0     ? run_slow(job)
                                                    : run_drop();
    printf("%.3f\n", figure);
    fflush(stdout);
  }
  return 0;
}
