// A sequence of calls as the driver sees it: the two ends, what was said, and a model that knows
// which calls have only one right result.
#ifndef MILLRACE_FUZZ_GAME_H
#define MILLRACE_FUZZ_GAME_H

#include "fuzz.h"

enum { LOG_SIZE = 1 << 18, IN_FLIGHT = 24000, CHUNKS = 8 };

struct side {
  bool is_open;
  bool is_read_shut;
  bool is_write_shut;
  bool is_nonblocking;
  bool is_reset;
  bool has_timeout;
  bool has_linger;
  bool has_edge; // an edge-triggered registration
  uint32_t low;  // SO_RCVLOWAT
};

struct connection {
  bool is_made;
  struct side side[2];
  uint64_t written[2]; // by the side
  uint64_t taken[2];   // of what the side wrote
  uint32_t chunks[2];  // of those that were not taken
  uint64_t pattern[2];
};

struct game {
  // Of the processes.
  pid_t pid[2];
  int orders[2];
  int answers[2];
  int port[2][2];
  // Of the sequence.
  uint64_t dice;
  uint64_t force_dice; // of promotions and demotions, which change no result
  bool is_forced;      // a promotion or demotion is tried before each call
  struct connection connection[CONNECTIONS];
  int handle[2][HANDLES]; // the connection of each, or -1
  bool is_cloexec[2][HANDLES];
  bool is_watched[2][HANDLES]; // was in an epoll set
  bool has_set[2][SETS];
  bool is_broken; // an end hangs or has ended
  bool is_late;   // something did not arrive: the rest of the sequence says nothing
  char *log;
  size_t log_length;
  // Of the run.
  bool has_library;
  uint32_t force_percent;
  bool is_between_hosts;
  bool is_emulated; // only calls that leave a direct connection direct and open
  bool has_edges;   // edge-triggered registrations as well
  bool is_traced;   // promotions and demotions are in the log as well
  uint64_t promoted, demoted, refused, late, broken, direct_calls;
};

// driver.c
void start_end(struct game *game, int end);
void start_ends(struct game *game);
void stop_ends(struct game *game);
void tell(struct game *game, int end, const struct order *order);
struct answer hear(struct game *game, int end);
void note(struct game *game, int end, const struct answer *answer);
void settle(struct game *game, int end);
struct answer call(struct game *game, int end, const struct order *order);

// model.c
uint32_t pick(struct game *game, uint32_t count);
bool chance(struct game *game, uint32_t percent);
int some_handle(struct game *game, int end);
int handle_of(const struct game *game, int end, int connection);
int free_handle(const struct game *game, int end);
uint64_t waiting_bytes(const struct connection *connection, int end);
bool is_finished(const struct connection *connection, int side);
bool is_over(const struct connection *connection);
bool is_gone(const struct connection *connection, int side);
bool is_only_here(const struct connection *connection, int end);
bool is_whole(const struct connection *connection);
struct need need_of(const struct connection *connection, int end);
struct order order_at(struct game *game, int end, int handle, enum op op);
void close_side(struct game *game, int end, int connection);
bool resets_on_close(const struct connection *connection, int end);

// moving.c, watching.c, special.c, ending.c: steps. False: not now.
bool step_read(struct game *game);
bool step_write(struct game *game);
bool step_bulk(struct game *game);
bool step_poll(struct game *game);
bool step_epoll_ctl(struct game *game);
bool step_epoll_wait(struct game *game);
bool step_pipe(struct game *game);
bool step_nonblock(struct game *game);
bool step_set_option(struct game *game);
bool step_ask(struct game *game);
bool step_dup(struct game *game);
bool step_shutdown(struct game *game);
bool step_close(struct game *game);
bool step_exec(struct game *game);
bool step_take_over(struct game *game);
bool step_thread(struct game *game);
bool step_interrupted(struct game *game);
bool step_restarted(struct game *game);
void take_all(struct game *game);

// sequence.c
void force(struct game *game);
void play(struct game *game, uint64_t seed);

#endif
