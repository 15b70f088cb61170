// Where an end lives: on this host, or in the network namespace of another one.
//
//   MILLRACE_FUZZ_A, MILLRACE_FUZZ_B: "NETNS IPV4 IPV6 [SOCKET]" of the two ends: the namespace's
//   file, the host's addresses, and where its daemon listens for programs
#include <arpa/inet.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "fuzz.h"

struct host {
  char netns[256];
  char v4[64];
  char v6[64];
  char socket[256];
};

// False: on this host.
static bool read_host(int end, struct host *host) {
  const char *text = getenv(end == 0 ? "MILLRACE_FUZZ_A" : "MILLRACE_FUZZ_B");
  return text != NULL && sscanf(text, "%255s %63s %63s %255s", host->netns, host->v4, host->v6, host->socket) >= 3;
}

// The process becomes one of that host.
void enter_host(int end) {
  struct host host = {0};
  if (!read_host(end, &host)) return;
  int file = open(host.netns, O_RDONLY | O_CLOEXEC);
  if (file < 0 || setns(file, CLONE_NEWNET) != 0) die(host.netns);
  close(file);
  setenv("MILLRACE_FUZZ_END", end == 0 ? "A" : "B", 1);
  if (host.socket[0] != 0) setenv("MILLRACE_DIRECT_SOCKET", host.socket, 1);
}

// Of the other end. On one host there are many, so that ports of connections that have ended are no
// limit.
void other_address(bool is_v6, uint64_t choice, void *address) {
  const char *end = getenv("MILLRACE_FUZZ_END");
  struct host host;
  if (end != NULL && read_host(*end == 'A' ? 1 : 0, &host)) {
    if (inet_pton(is_v6 ? AF_INET6 : AF_INET, is_v6 ? host.v6 : host.v4, address) != 1) die("inet_pton");
    return;
  }
  if (is_v6)
    *(struct in6_addr *)address = in6addr_loopback;
  else
    ((struct in_addr *)address)->s_addr = htonl(0x7f000001 + (uint32_t)(choice % 200 << 8));
}
