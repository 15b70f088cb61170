// Steps that duplicate, shut and close, and steps in which other processes and threads take part.
#include <sys/socket.h>

#include "game.h"

bool step_dup(struct game *game) {
  int end = (int)pick(game, 2);
  int handle = some_handle(game, end);
  int other = free_handle(game, end);
  if (handle < 0 || other < 0) return false;
  struct order order = order_at(game, end, handle, OP_DUP);
  order.other = (uint32_t)other;
  order.by = pick(game, 5);
  call(game, end, &order);
  game->handle[end][other] = game->handle[end][handle];
  game->is_cloexec[end][other] = order.by == 2 || order.by == 4;
  return true;
}

bool step_shutdown(struct game *game) {
  int end = (int)pick(game, 2);
  int handle = some_handle(game, end);
  if (handle < 0) return false;
  struct side *side = &game->connection[game->handle[end][handle]].side[end];
  struct order order = order_at(game, end, handle, OP_SHUTDOWN);
  order.other = chance(game, 60) ? SHUT_WR : pick(game, 3);
  call(game, end, &order);
  if (order.other != SHUT_WR) side->is_read_shut = true;
  if (order.other != SHUT_RD) side->is_write_shut = true;
  return true;
}

static void forget_handle(struct game *game, int end, int handle) {
  int connection = game->handle[end][handle];
  game->handle[end][handle] = -1;
  game->is_cloexec[end][handle] = false;
  game->is_watched[end][handle] = false;
  if (handle_of(game, end, connection) < 0) close_side(game, end, connection);
}

// An epoll set goes on telling of a descriptor that was closed while another one of the same
// connection is open, until the connection is promoted or demoted.
static bool leaves_watch(const struct game *game, int end, int handle) {
  int others = 0;
  for (int i = 0; i < HANDLES; i++)
    others += i != handle && game->handle[end][i] == game->handle[end][handle];
  return game->is_watched[end][handle] && others > 0;
}

bool step_close(struct game *game) {
  int end = (int)pick(game, 2);
  int handle = some_handle(game, end);
  if (handle < 0 || leaves_watch(game, end, handle)) return false;
  // What is on its way to the other end would be lost with a reset.
  settle(game, 1 - end);
  struct order order = order_at(game, end, handle, OP_CLOSE);
  order.by = pick(game, 2);
  call(game, end, &order);
  forget_handle(game, end, handle);
  return true;
}

bool step_exec(struct game *game) {
  int end = (int)pick(game, 2);
  if (some_handle(game, end) < 0) return false;
  for (int i = 0; i < CONNECTIONS; i++) {
    if (is_only_here(&game->connection[i], end)) return false;
  }
  for (int i = 0; i < HANDLES; i++) {
    if (game->is_cloexec[end][i] && leaves_watch(game, end, i)) return false;
  }
  settle(game, 1 - end);
  struct order order = order_at(game, end, 0, OP_EXEC);
  call(game, end, &order);
  for (int i = 0; i < HANDLES; i++) {
    if (game->is_cloexec[end][i]) forget_handle(game, end, i);
  }
  return true;
}

bool step_take_over(struct game *game) {
  int end = (int)pick(game, 2);
  if (some_handle(game, end) < 0) return false;
  struct order order = order_at(game, end, 0, OP_TAKE_OVER);
  call(game, end, &order);
  return true;
}

// An end that waits for bytes, and nothing is on its way to it.
static int waiting_handle(struct game *game, int end) {
  int handle = some_handle(game, end);
  if (handle < 0) return -1;
  const struct connection *one = &game->connection[game->handle[end][handle]];
  const struct side *side = &one->side[end];
  bool is_waiting = is_whole(one) && waiting_bytes(one, end) == 0 && !side->is_nonblocking && side->low <= 1;
  return is_waiting ? handle : -1;
}

// The other end sends what the waiting one asks for.
static void serve(struct game *game, int end, int connection, uint32_t length) {
  struct connection *one = &game->connection[connection];
  struct order order = {.op = OP_WRITE, .handle = (uint32_t)handle_of(game, end, connection), .length = length};
  order.pattern = one->pattern[end];
  order.position = one->written[end];
  call(game, end, &order);
  one->written[end] += length;
}

static struct order read_order(struct game *game, int end, int handle, enum op op) {
  const struct connection *one = &game->connection[game->handle[end][handle]];
  struct order order = order_at(game, end, handle, op);
  order.by = chance(game, 50) ? BY_READ : BY_SEND;
  order.length = 1 + pick(game, 3000);
  order.pattern = one->pattern[1 - end];
  order.position = one->taken[1 - end];
  return order;
}

// One thread waits in a read while the other writes, and the other end reads and then answers.
bool step_thread(struct game *game) {
  int end = (int)pick(game, 2);
  int handle = waiting_handle(game, end);
  if (handle < 0) return false;
  int number = game->handle[end][handle];
  struct connection *one = &game->connection[number];
  if (one->side[end].has_timeout || one->chunks[end] > 0) return false;
  struct order order = read_order(game, end, handle, OP_THREAD);
  order.by = BY_SEND;
  order.flags = MSG_WAITALL;
  call(game, end, &order);
  force(game);
  uint32_t length = 1 + pick(game, 2000);
  serve(game, end, number, length);
  force(game);
  uint32_t half = order.length / 2;
  if (half > 0) serve(game, 1 - end, number, half);
  force(game);
  serve(game, 1 - end, number, order.length - half);
  one->taken[1 - end] += order.length;
  struct order join = {.op = OP_JOIN};
  call(game, end, &join);
  return true;
}

bool step_interrupted(struct game *game) {
  int end = (int)pick(game, 2);
  int handle = waiting_handle(game, end);
  if (handle < 0) return false;
  bool has_timeout = game->connection[game->handle[end][handle]].side[end].has_timeout;
  struct order order = read_order(game, end, handle, OP_INTERRUPTED);
  order.place = pick(game, 2);
  // A read without a time limit would go on.
  order.other = order.place == 1 ? pick(game, 2) : 0;
  if (has_timeout && order.place == 0) return false;
  if (order.place == 1) order.by = pick(game, BY_EPOLL + 1);
  call(game, end, &order);
  return true;
}

bool step_restarted(struct game *game) {
  int end = (int)pick(game, 2);
  int handle = waiting_handle(game, end);
  if (handle < 0) return false;
  int number = game->handle[end][handle];
  if (game->connection[number].side[end].has_timeout) return false;
  struct order order = read_order(game, end, handle, OP_RESTARTED);
  tell(game, end, &order);
  hear(game, end); // of the signal
  serve(game, 1 - end, number, order.length);
  struct answer answer = hear(game, end);
  note(game, end, &answer);
  if (answer.result > 0) game->connection[number].taken[1 - end] += (uint64_t)answer.result;
  return true;
}

// In the end, all bytes are there, and the end after them.
void take_all(struct game *game) {
  for (int number = 0; number < CONNECTIONS; number++) {
    struct connection *one = &game->connection[number];
    for (int end = 0; end < 2 && one->is_made; end++) {
      struct order order = order_at(game, end, handle_of(game, end, number), OP_SHUTDOWN);
      if (!one->side[end].is_open) continue;
      order.other = SHUT_WR;
      force(game);
      call(game, end, &order);
      one->side[end].is_write_shut = true;
    }
    for (int end = 0; end < 2 && one->is_made; end++) {
      struct order order = order_at(game, end, handle_of(game, end, number), OP_READ);
      if (!one->side[end].is_open) continue;
      order.by = BY_SEND;
      order.length = IN_FLIGHT + 1;
      order.pattern = one->pattern[1 - end];
      order.position = one->taken[1 - end];
      force(game);
      int64_t result = call(game, end, &order).result;
      if (result > 0) one->taken[1 - end] += (uint64_t)result;
      order = order_at(game, end, (int)order.handle, OP_READ);
      force(game);
      call(game, end, &order);
    }
  }
}
