// A connection with another program, and the function of the C library that is tried on it.
#ifndef MILLRACE_CALLS_WORLD_H
#define MILLRACE_CALLS_WORLD_H

#include "../fuzz/game.h"

enum { PEER = 1, SOME = 20, FAR_FD = 300, DIRECT = 2 };

struct world {
  struct game game; // only its second end is used
  const char *name; // of the function
  void *function;   // as a program that calls it by name finds it
  int fd;
  uint64_t pattern[2]; // of our bytes, and of the peer's
  uint64_t sent;
  uint64_t taken;
  uint64_t due; // bytes that the peer has sent
};

struct row {
  const char *name;
  void (*test)(struct world *world);
};

// Rows by subject; each list ends with an empty one.
extern const struct row reading_rows[], writing_rows[], waiting_rows[], making_rows[], stdio_rows[], spawning_rows[];

// The function in the type that it has.
#define FUNCTION(world, type) ((type)(world)->function)

void check(bool is_right, const char *what);
// State of a connection: 2 is direct. Without the library it is always what is expected.
bool is_state(int fd, int expected);
// Offers the connection at both ends; false where there is no library.
bool promote_both(struct world *world);
void make_connection(struct world *world, int (*connector)(int, const void *, unsigned));
// The peer writes bytes, and they have arrived.
void peer_sends(struct world *world, uint32_t count);
// The peer reads bytes, which must be the next ones that we sent.
void peer_takes(struct world *world, uint32_t count);
int64_t peer_reads(struct world *world, uint32_t count);
// The next bytes that we are to write.
const uint8_t *ours(struct world *world, size_t count);
// Checks bytes that we have read.
void theirs(struct world *world, const void *bytes, ssize_t count, ssize_t expected);
// Reads by recv what the peer has sent.
void take_rest(struct world *world);
// What other programs do with the connection that they inherit: write bytes, and see that it is not
// direct. Returns a command line for the shell.
const char *after_command(struct world *world);
int after_main(char **words);

#endif
