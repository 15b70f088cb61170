// Runs one scenario of two sockets that talk over the given address, and prints what came out as
// one line of JSON.
//
//   flow ADDRESS SCENARIO [ARGUMENT…]

#include "flow.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

void must(bool is_so, const char *what) {
  if (is_so) return;
  fprintf(stderr, "%s: %s\n", what, strerror(errno));
  exit(1);
}

static socklen_t parse(const char *address, int port, struct sockaddr_storage *to) {
  memset(to, 0, sizeof(*to));
  struct sockaddr_in *four = (struct sockaddr_in *)to;
  struct sockaddr_in6 *six = (struct sockaddr_in6 *)to;
  if (inet_pton(AF_INET, address, &four->sin_addr) == 1) {
    four->sin_family = AF_INET;
    four->sin_port = htons((uint16_t)port);
    return sizeof(*four);
  }
  must(inet_pton(AF_INET6, address, &six->sin6_addr) == 1, "address");
  six->sin6_family = AF_INET6;
  six->sin6_port = htons((uint16_t)port);
  return sizeof(*six);
}

// Zero, unless the environment says so.
int chosen_number(const char *name) {
  const char *text = getenv(name);
  return text ? atoi(text) : 0;
}

int listen_at(const char *address, int *port) {
  struct sockaddr_storage at;
  socklen_t length = parse(address, *port, &at);
  const int fd = socket(at.ss_family, SOCK_STREAM, 0), on = 1;
  must(fd >= 0, "socket");
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  must(bind(fd, (struct sockaddr *)&at, length) == 0 && listen(fd, 4096) == 0, "listen");
  getsockname(fd, (struct sockaddr *)&at, &length);
  *port = ntohs(((struct sockaddr_in *)&at)->sin_port);
  return fd;
}

double connect_at_ms = 0;

// The sequence number that a connection is to begin with.
static void choose_first_seq(int fd, unsigned first_seq) {
  const int on = TCP_REPAIR_ON, off = TCP_REPAIR_OFF_NO_WP, queue = TCP_SEND_QUEUE;
  must(setsockopt(fd, IPPROTO_TCP, TCP_REPAIR, &on, sizeof(on)) == 0, "TCP_REPAIR");
  must(setsockopt(fd, IPPROTO_TCP, TCP_REPAIR_QUEUE, &queue, sizeof(queue)) == 0, "TCP_REPAIR_QUEUE");
  must(setsockopt(fd, IPPROTO_TCP, TCP_QUEUE_SEQ, &first_seq, sizeof(first_seq)) == 0, "TCP_QUEUE_SEQ");
  must(setsockopt(fd, IPPROTO_TCP, TCP_REPAIR, &off, sizeof(off)) == 0, "TCP_REPAIR");
}

int connect_to(const char *address, int port) {
  struct sockaddr_storage to, from;
  const socklen_t length = parse(address, port, &to);
  const int fd = socket(to.ss_family, SOCK_STREAM, 0), on = 1;
  must(fd >= 0, "socket");
  if (chosen_number("FLOW_CLIENT_PORT")) {
    parse(address, chosen_number("FLOW_CLIENT_PORT"), &from);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    must(bind(fd, (struct sockaddr *)&from, length) == 0, "bind");
  }
  if (chosen_number("FLOW_FIRST_SEQ")) choose_first_seq(fd, (unsigned)chosen_number("FLOW_FIRST_SEQ"));
  while (now_ms() < connect_at_ms) {
  }
  must(connect(fd, (struct sockaddr *)&to, length) == 0, "connect");
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return fd;
}

struct ends connect_ends(const char *address) {
  int port = chosen_number("FLOW_SERVER_PORT");
  const int on = 1, listener = listen_at(address, &port);
  const int client = connect_to(address, port), server = accept(listener, NULL, NULL);
  must(server >= 0, "accept");
  setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  close(listener);
  return (struct ends){.client = client, .server = server};
}

void set_nonblocking(int fd) {
  must(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) == 0, "fcntl");
}

static inline uint8_t byte_at(uint64_t offset, uint32_t seed) {
  const uint64_t x = (offset + seed) * 0x9e3779b97f4a7c15ull;
  return (uint8_t)(x >> 32);
}

void fill(uint8_t *bytes, size_t length, uint64_t offset, uint32_t seed) {
  for (size_t i = 0; i < length; i++)
    bytes[i] = byte_at(offset + i, seed);
}

bool is_right(const uint8_t *bytes, size_t length, uint64_t offset, uint32_t seed) {
  for (size_t i = 0; i < length; i++)
    if (bytes[i] != byte_at(offset + i, seed)) return false;
  return true;
}

uint32_t draw(uint64_t *state, uint32_t below) {
  *state = *state * 6364136223846793005ull + 1442695040888963407ull;
  return (uint32_t)(*state >> 33) % below;
}

void send_all(int fd, const void *bytes, size_t length) {
  for (size_t sent = 0; sent < length;) {
    const ssize_t n = send(fd, (const char *)bytes + sent, length - sent, MSG_NOSIGNAL);
    must(n > 0, "send");
    sent += (size_t)n;
  }
}

bool receive_all(int fd, void *bytes, size_t length) {
  for (size_t got = 0; got < length;) {
    const ssize_t n = recv(fd, (char *)bytes + got, length - got, 0);
    // see docs: a redirected socket may say so
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (n <= 0) return false;
    got += (size_t)n;
  }
  return true;
}

void pause_ms(int ms) {
  const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = (ms % 1000) * 1000000L};
  nanosleep(&time, NULL);
}

double now_ms(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

long cpu_ms(pid_t pid) {
  clockid_t clock;
  struct timespec time;
  must(clock_getcpuclockid(pid, &clock) == 0 && clock_gettime(clock, &time) == 0, "clock");
  return time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

long kernel_kib(void) {
  long tcp_pages = 0, slab = 0;
  char line[256];
  FILE *file = fopen("/proc/net/sockstat", "r");
  while (file && fgets(line, sizeof(line), file)) {
    const char *mem = strncmp(line, "TCP:", 4) == 0 ? strstr(line, " mem ") : NULL;
    if (mem) tcp_pages = atol(mem + 5);
  }
  if (file) fclose(file);
  file = fopen("/proc/meminfo", "r");
  while (file && fgets(line, sizeof(line), file))
    if (sscanf(line, "SUnreclaim: %ld", &slab) == 1) break;
  if (file) fclose(file);
  return tcp_pages * 4 + slab;
}

int main(int argc, char **argv) {
  const struct scenario *const tables[] = {stream_scenarios, stall_scenarios, ending_scenarios, difference_scenarios};
  const struct rlimit many = {.rlim_cur = 20000, .rlim_max = 20000};
  setrlimit(RLIMIT_NOFILE, &many);
  signal(SIGPIPE, SIG_IGN);
  alarm(120);
  if (argc < 3) return 2;
  for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
    for (const struct scenario *one = tables[i]; one->name; one++) {
      if (strcmp(one->name, argv[2]) != 0) continue;
      one->run(argv[1], argc - 3, argv + 3);
      return 0;
    }
  }
  fprintf(stderr, "no scenario %s\n", argv[2]);
  return 2;
}
