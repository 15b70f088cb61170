// Plays random sequences of socket calls on both ends of TCP connections and tells what they did.
//
//   fuzz run SEED COUNT [FORCE]   the log of each sequence, after a line with its seed
//   fuzz show SEED [FORCE]        the log of one
//   fuzz trace SEED [FORCE]       the log of one, with promotions and demotions
//
// FORCE is how many of a hundred calls have a promotion or demotion before them, where the library
// is loaded; in every fourth sequence each of them has one. The last line of `run` counts these.
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "game.h"

// Sequences that hang take many seconds: after some of them, enough is known.
enum { FORCE_PERCENT = 25, MOST_LATE = 4 };

static int driver_main(bool is_show, bool is_traced, uint64_t seed, uint64_t count, uint32_t force_percent) {
  struct game game = {
      .log = malloc(LOG_SIZE), .has_library = true, .force_percent = force_percent, .is_traced = is_traced};
  game.is_emulated = getenv("MILLRACE_FUZZ_EMULATED") != NULL;
  game.is_between_hosts = getenv("MILLRACE_FUZZ_A") != NULL;
  game.has_edges = getenv("MILLRACE_FUZZ_EDGES") != NULL;
  if (game.log == NULL) die("malloc");
  signal(SIGPIPE, SIG_IGN);
  start_ends(&game);
  for (uint64_t i = 0; i < count && game.late + game.broken < MOST_LATE; i++) {
    play(&game, seed + i);
    if (!is_show) printf("= %" PRIu64 "\n", seed + i);
    fwrite(game.log, 1, game.log_length, stdout);
  }
  if (!is_show) {
    printf(". promoted %" PRIu64 " demoted %" PRIu64 " refused %" PRIu64 " direct %" PRIu64 " late %" PRIu64
           " broken %" PRIu64 "\n",
           game.promoted, game.demoted, game.refused, game.direct_calls, game.late, game.broken);
  }
  stop_ends(&game);
  return 0;
}

static uint64_t number(const char *text) {
  return strtoull(text, NULL, 10);
}

int main(int count, char **words) {
  if (count >= 2 && strcmp(words[1], "end") == 0) return end_main(count >= 3 ? words[2] : NULL);
  if (count >= 2 && strcmp(words[1], "helper") == 0) return helper_main();
  if (count >= 4 && strcmp(words[1], "run") == 0) {
    return driver_main(false, false, number(words[2]), number(words[3]),
                       count > 4 ? (uint32_t)number(words[4]) : FORCE_PERCENT);
  }
  bool is_traced = count >= 3 && strcmp(words[1], "trace") == 0;
  if (is_traced || (count >= 3 && strcmp(words[1], "show") == 0)) {
    return driver_main(true, is_traced, number(words[2]), 1, count > 3 ? (uint32_t)number(words[3]) : FORCE_PERCENT);
  }
  fprintf(stderr, "usage: fuzz run SEED COUNT [FORCE] | fuzz show|trace SEED [FORCE]\n");
  return 2;
}
