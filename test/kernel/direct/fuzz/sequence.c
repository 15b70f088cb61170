// One sequence: makes connections, chooses call after call, and forces promotions and demotions.
#include <string.h>

#include "game.h"

static const struct {
  uint32_t weight;
  bool (*step)(struct game *game);
} steps[] = {
    {3000, step_write},   {3000, step_read},      {900, step_poll},       {900, step_epoll_ctl}, {900, step_epoll_wait},
    {150, step_pipe},     {300, step_nonblock},   {250, step_set_option}, {500, step_ask},       {250, step_dup},
    {110, step_shutdown}, {130, step_close},      {100, step_bulk},       {15, step_exec},       {20, step_take_over},
    {120, step_thread},   {50, step_interrupted}, {60, step_restarted},
};

static void connect_one(struct game *game, int number) {
  struct connection *one = &game->connection[number];
  int dialer = (int)pick(game, 2);
  struct order order = {.op = OP_CONNECT, .handle = (uint32_t)free_handle(game, dialer), .length = (uint32_t)number};
  order.by = pick(game, 4) == 0 ? 1 : 0;
  order.other = (uint32_t)game->port[1 - dialer][order.by];
  order.flags = pick(game, 4) == 0 ? 1 : 0;
  order.position = pick(game, 200);
  call(game, dialer, &order);
  struct order back = {.op = OP_ACCEPT, .handle = (uint32_t)free_handle(game, 1 - dialer), .length = (uint32_t)number};
  back.by = order.by;
  back.other = pick(game, 2);
  back.flags = back.other == 1 && chance(game, 40) ? 1 : 0;
  call(game, 1 - dialer, &back);
  *one = (struct connection){.is_made = true};
  for (int end = 0; end < 2; end++) {
    one->pattern[end] = draw(&game->dice);
    one->side[end] = (struct side){.is_open = true, .low = 1};
    one->side[end].is_nonblocking = (end == dialer ? order.flags : back.flags) == 1;
  }
  game->handle[dialer][order.handle] = number;
  game->handle[1 - dialer][back.handle] = number;
}

static int64_t ask(struct game *game, int end, int connection, enum op op) {
  struct order order = {.op = op, .handle = (uint32_t)handle_of(game, end, connection)};
  tell(game, end, &order);
  return hear(game, end).result;
}

static void trace(struct game *game, int end, const char *what, int connection, int64_t result) {
  struct answer answer = {0};
  say(&answer, "# %s(connection %d) = %d", what, connection, (int)result);
  if (game->is_traced) note(game, end, &answer);
}

// Both ends have to ask for it at the same time. One whose connection is left to the kernel never
// does, and the other one would wait for it.
static void promote(struct game *game, int connection) {
  const struct side *side = game->connection[connection].side;
  // Then a connection between hosts is left to TCP, and both would try for a quarter of a second.
  if (game->is_between_hosts && (side[0].low > 1 || side[1].low > 1)) return;
  if (ask(game, 0, connection, OP_IS_PINNED) == 1 || ask(game, 1, connection, OP_IS_PINNED) == 1) return;
  for (int end = 0; end < 2; end++) {
    struct order order = {.op = OP_PROMOTE, .handle = (uint32_t)handle_of(game, end, connection)};
    tell(game, end, &order);
  }
  int64_t first = hear(game, 0).result;
  int64_t second = hear(game, 1).result;
  trace(game, 0, "promote", connection, first);
  trace(game, 1, "promote", connection, second);
  if (first == -2)
    game->has_library = false;
  else if (first == 1 && second == 1)
    game->promoted++;
  else
    game->refused++;
}

// Changes where the bytes go, and no result.
void force(struct game *game) {
  if (!game->has_library) return;
  uint32_t number = (uint32_t)(draw(&game->force_dice) >> 33);
  if (!game->is_forced && number % 100 >= game->force_percent) return;
  int connection = (int)(number / 100 % CONNECTIONS);
  if (game->is_forced && !game->connection[connection].is_made) connection = 0;
  const struct connection *one = &game->connection[connection];
  if (!one->is_made) return;
  if (number / 1000 % 3 < 2 && (is_whole(one) || !game->is_forced)) {
    if (is_whole(one)) promote(game, connection);
    return;
  }
  int end = (int)(number / 3000 % 2);
  if (!one->side[end].is_open) return;
  int64_t result = ask(game, end, connection, OP_DEMOTE);
  trace(game, end, "demote", connection, result);
  if (result == 1) game->demoted++;
}

static void count_direct(struct game *game) {
  int handle = handle_of(game, 0, 0);
  if (game->has_library && handle >= 0 && ask(game, 0, 0, OP_STATE) == 2) game->direct_calls++;
}

// Those that end a connection or give it to somebody else.
static bool is_left_out(bool (*step)(struct game *)) {
  return step == step_exec || step == step_take_over || step == step_close || step == step_shutdown;
}

static void one_step(struct game *game) {
  uint32_t total = 0;
  for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
    total += steps[i].weight;
  for (int tries = 0; tries < 50; tries++) {
    uint32_t number = pick(game, total);
    size_t chosen = 0;
    while (number >= steps[chosen].weight)
      number -= steps[chosen++].weight;
    if (game->is_emulated && is_left_out(steps[chosen].step)) continue;
    if (steps[chosen].step(game)) return;
  }
}

void play(struct game *game, uint64_t seed) {
  uint64_t state = seed;
  game->dice = draw(&state) ^ seed << 17;
  game->force_dice = draw(&state);
  game->is_forced = game->force_percent > 0 && seed % 4 == 0;
  game->log_length = 0;
  game->is_broken = game->is_late = false;
  memset(game->connection, 0, sizeof(game->connection));
  memset(game->handle, -1, sizeof(game->handle));
  memset(game->has_set, 0, sizeof(game->has_set));
  memset(game->is_cloexec, 0, sizeof(game->is_cloexec));
  memset(game->is_watched, 0, sizeof(game->is_watched));
  connect_one(game, 0);
  if (chance(game, 25)) connect_one(game, 1);
  uint32_t count = 5 + pick(game, 36);
  for (uint32_t i = 0; i < count && !game->is_broken && !game->is_late; i++) {
    force(game);
    if (i % 8 == 0) count_direct(game);
    one_step(game);
  }
  if (chance(game, 50) && !game->is_late) take_all(game);
  if (game->is_late) game->late++;
  for (int end = 0; end < 2; end++) {
    struct order order = {.op = OP_END};
    tell(game, end, &order);
    hear(game, end);
  }
  if (!game->is_broken) return;
  game->broken++;
  stop_ends(game);
  game->is_broken = false;
  start_ends(game);
  game->is_broken = true;
}
