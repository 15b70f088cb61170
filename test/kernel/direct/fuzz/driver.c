// Starts the two ends, tells them what to call, and keeps the log of what they say.
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "game.h"

enum { ANSWER_LIMIT_MS = 3 * DEADLINE_MS, END_ORDERS = 3, END_ANSWERS = 4 };

void start_end(struct game *game, int end) {
  int orders[2];
  int answers[2];
  if (pipe(orders) != 0 || pipe(answers) != 0) die("pipe");
  pid_t pid = fork();
  if (pid < 0) die("fork");
  if (pid == 0) {
    setpgid(0, 0);
    // First out of the way of the numbers they are to have.
    int from = dup(dup(dup(dup(orders[0]))));
    int to = dup(answers[1]);
    if (dup2(from, END_ORDERS) < 0 || dup2(to, END_ANSWERS) < 0) _exit(7);
    close_range(END_ANSWERS + 1, ~0U, 0);
    enter_host(end);
    execl("/proc/self/exe", "fuzz", "end", (char *)NULL);
    _exit(7);
  }
  close(orders[0]);
  close(answers[1]);
  game->pid[end] = pid;
  game->orders[end] = orders[1];
  game->answers[end] = answers[0];
  struct order order = {.op = OP_HELLO};
  tell(game, end, &order);
  int64_t ports = hear(game, end).result;
  game->port[end][0] = (int)(ports >> 16 & 0xffff);
  game->port[end][1] = (int)(ports & 0xffff);
}

void start_ends(struct game *game) {
  start_end(game, 0);
  start_end(game, 1);
}

void stop_ends(struct game *game) {
  for (int end = 0; end < 2; end++) {
    kill(-game->pid[end], SIGKILL);
    waitpid(game->pid[end], NULL, 0);
    close(game->orders[end]);
    close(game->answers[end]);
  }
}

void tell(struct game *game, int end, const struct order *order) {
  if (game->is_broken) return;
  if (write(game->orders[end], order, sizeof(*order)) != (ssize_t)sizeof(*order)) game->is_broken = true;
}

struct answer hear(struct game *game, int end) {
  struct answer answer = {.result = -1};
  if (game->is_broken) return answer;
  struct pollfd one = {.fd = game->answers[end], .events = POLLIN};
  int ready = poll(&one, 1, ANSWER_LIMIT_MS);
  if (ready == 1 && read(game->answers[end], &answer, sizeof(answer)) == (ssize_t)sizeof(answer)) return answer;
  answer = (struct answer){.result = -1};
  say(&answer, ready == 0 ? "HANGS" : "HAS ENDED");
  note(game, end, &answer);
  game->is_broken = true;
  return answer;
}

void note(struct game *game, int end, const struct answer *answer) {
  if (game->is_broken) return;
  size_t room = LOG_SIZE - game->log_length;
  int length = snprintf(game->log + game->log_length, room, "%c %.*s\n", 'A' + end, (int)answer->length, answer->text);
  game->log_length += (size_t)length < room ? (size_t)length : 0;
  if (strncmp(answer->text, "LATE", 4) == 0) game->is_late = true;
}

// Returns when all has come to the end that is on its way there.
void settle(struct game *game, int end) {
  struct order order = order_at(game, end, 0, OP_SETTLE);
  tell(game, end, &order);
  hear(game, end);
}

struct answer call(struct game *game, int end, const struct order *order) {
  tell(game, end, order);
  struct answer answer = hear(game, end);
  note(game, end, &answer);
  return answer;
}
