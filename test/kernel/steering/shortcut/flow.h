// What the parts of the program share: connections, contents that tell their own place, and what is
// said at the end.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

// Both ends of a new connection to a listener at that address, of this process. Blocking.
struct ends {
  int client, server;
};

struct scenario {
  const char *name;
  void (*run)(const char *address, int argc, char **argv);
};

extern const struct scenario stream_scenarios[], stall_scenarios[], ending_scenarios[], difference_scenarios[];

// Ends the program when `is_so` is false.
void must(bool is_so, const char *what);
int chosen_number(const char *name);
int listen_at(const char *address, int *port);
int connect_to(const char *address, int port);
// connect_to() connects at this time of now_ms(), when it is still to come.
extern double connect_at_ms;
struct ends connect_ends(const char *address);
void set_nonblocking(int fd);

// The byte at a place of a stream is known from the place and the seed.
void fill(uint8_t *bytes, size_t length, uint64_t offset, uint32_t seed);
bool is_right(const uint8_t *bytes, size_t length, uint64_t offset, uint32_t seed);
uint32_t draw(uint64_t *state, uint32_t below);

void send_all(int fd, const void *bytes, size_t length);
// Reads that many bytes, however they come; false at an early end.
bool receive_all(int fd, void *bytes, size_t length);
void pause_ms(int ms);
double now_ms(void);
// CPU time of another process, or the own one.
long cpu_ms(pid_t pid);
// What the kernel holds for sockets: pages of TCP, and slabs.
long kernel_kib(void);
