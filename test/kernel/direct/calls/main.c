// Tries functions of the C library on a connection between two programs, which the library has made
// direct where it is loaded.
//
//   calls list               the names that it knows
//   calls NAME=KIND …        tries each: "NAME ok", or what was wrong
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "world.h"

enum { LIMIT_S = 12 };

static const struct row *const lists[] = {reading_rows, writing_rows, waiting_rows,
                                          making_rows,  stdio_rows,   spawning_rows};

static const struct row *find_row(const char *name) {
  for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
    for (const struct row *row = lists[i]; row->name != NULL; row++) {
      if (strcmp(row->name, name) == 0) return row;
    }
  }
  return NULL;
}

static int list_main(void) {
  for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
    for (const struct row *row = lists[i]; row->name != NULL; row++)
      puts(row->name);
  }
  return 0;
}

static int connect_plainly(int fd, const void *address, unsigned size) {
  return connect(fd, address, size);
}

// Bytes without a zero, so that they are words as well.
static uint64_t wordy_pattern(uint64_t pattern) {
  uint8_t bytes[4 * SOME];
  do {
    fill(bytes, sizeof(bytes), ++pattern, 0);
  } while (memchr(bytes, 0, sizeof(bytes)) != NULL || memchr(bytes, '%', sizeof(bytes)) != NULL);
  return pattern;
}

static void exchange(struct world *world) {
  check(write(world->fd, ours(world, SOME), SOME) == SOME, "write after it");
  peer_takes(world, SOME);
  peer_sends(world, SOME);
  take_rest(world);
}

// A process of its own for each row, with a peer of its own.
static int row_main(const char *name, const char *kind) {
  const struct row *row = find_row(name);
  static struct world world;
  check(row != NULL, "no test for this name");
  world.name = name;
  world.function = dlsym(RTLD_DEFAULT, name);
  if (world.function == NULL) {
    puts("absent");
    return 0;
  }
  world.game.log = malloc(LOG_SIZE);
  world.pattern[0] = wordy_pattern(1000);
  world.pattern[1] = wordy_pattern(2000);
  signal(SIGPIPE, SIG_IGN);
  start_end(&world.game, PEER);
  make_connection(&world, connect_plainly);
  exchange(&world);
  bool is_direct = promote_both(&world);
  check(is_state(world.fd, DIRECT), "it is direct before");
  exchange(&world);
  row->test(&world);
  if (world.fd >= 0) {
    bool is_demoted = strcmp(kind, "DEMOTES") == 0;
    check(is_state(world.fd, is_demoted ? 0 : DIRECT),
          is_demoted ? "it is direct after it" : "it is not direct after it");
    exchange(&world);
  }
  kill(-world.game.pid[PEER], SIGKILL);
  puts(is_direct ? "ok direct" : "ok");
  return 0;
}

// What a row says goes to stdout after its name.
static bool is_row_right(char *word) {
  char *kind = strchr(word, '=');
  if (kind == NULL) return false;
  *kind++ = 0;
  printf("%s ", word);
  fflush(stdout);
  pid_t pid = fork();
  if (pid == 0) {
    alarm(LIMIT_S);
    execl("/proc/self/exe", "calls", "row", word, kind, (char *)NULL);
    _exit(9);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  if (WIFSIGNALED(status)) printf("ended with %s\n", sigabbrev_np(WTERMSIG(status)));
  return status == 0;
}

int main(int count, char **words) {
  if (count >= 2 && strcmp(words[1], "list") == 0) return list_main();
  if (count >= 2 && strcmp(words[1], "end") == 0) return end_main(count >= 3 ? words[2] : NULL);
  if (count >= 5 && strcmp(words[1], "after") == 0) return after_main(words + 2);
  if (count >= 4 && strcmp(words[1], "row") == 0) return row_main(words[2], words[3]);
  bool is_right = true;
  for (int i = 1; i < count; i++)
    is_right = is_row_right(words[i]) && is_right;
  return is_right ? 0 : 1;
}
