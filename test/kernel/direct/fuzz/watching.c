// Steps that look at readiness and options, and change them.
#include <poll.h>
#include <sys/epoll.h>

#include "game.h"

// Mostly at once; sometimes long enough to see that it does not wait for less.
static int32_t some_timeout(struct game *game) {
  return pick(game, 40) == 0 ? 10 : 0;
}

bool step_poll(struct game *game) {
  int end = (int)pick(game, 2);
  struct order order = order_at(game, end, 0, OP_POLL);
  for (int i = 0; i < HANDLES; i++) {
    if (game->handle[end][i] >= 0 && chance(game, 60)) order.other |= UINT32_C(1) << i;
  }
  if (order.other == 0) return false;
  if (chance(game, 20)) order.other |= UINT32_C(1) << HANDLE_PIPE;
  order.by = pick(game, BY_EPOLL);
  order.flags = (chance(game, 80) ? POLLIN : 0) | (chance(game, 40) ? POLLOUT : 0);
  if (order.by <= BY_PPOLL) {
    order.flags |= (chance(game, 40) ? POLLRDHUP : 0) | (chance(game, 10) ? POLLPRI : 0);
    order.flags |= chance(game, 10) ? POLLRDNORM | POLLWRNORM : 0;
  }
  // A socket is always writable here.
  order.timeout_ms = (order.flags & POLLOUT) != 0 && chance(game, 20) ? -1 : some_timeout(game);
  call(game, end, &order);
  return true;
}

// Mostly the same one, so that something is in it.
static uint32_t some_set(struct game *game) {
  uint32_t number = pick(game, 5);
  return number < SETS ? number : 0;
}

static uint32_t some_events(struct game *game) {
  uint32_t events = (chance(game, 85) ? EPOLLIN : 0) | (chance(game, 40) ? EPOLLOUT : 0);
  events |= chance(game, 40) ? EPOLLRDHUP : 0;
  // A change between TCP and ring may tell an edge once more.
  events |= chance(game, 35) && game->has_edges ? EPOLLET : 0;
  events |= chance(game, 15) ? EPOLLONESHOT : 0;
  return events | (chance(game, 4) ? EPOLLEXCLUSIVE : 0);
}

bool step_epoll_ctl(struct game *game) {
  int end = (int)pick(game, 2);
  int handle = some_handle(game, end);
  if (handle < 0) return false;
  struct order order = order_at(game, end, handle, OP_EPOLL_CTL);
  order.length = some_set(game);
  order.flags = (int32_t)some_events(game);
  uint32_t action = pick(game, 10);
  order.by = action < 7 ? EPOLL_CTL_ADD : action < 9 ? EPOLL_CTL_MOD : EPOLL_CTL_DEL;
  uint32_t kind = pick(game, 20);
  if (kind < 3) order.handle = HANDLE_PIPE;
  if (kind == 3) {
    if (game->is_emulated) return false;
    order.handle = HANDLE_NESTED;
    order.length = 0;
    order.flags = EPOLLIN;
    game->has_set[end][1] = true;
  }
  if (kind > 3 && (order.flags & (int32_t)EPOLLET) != 0) {
    game->connection[game->handle[end][handle]].side[end].has_edge = true;
  }
  if (kind > 3) game->is_watched[end][handle] = true;
  game->has_set[end][order.length] = true;
  call(game, end, &order);
  return true;
}

// After an end has shut, the acknowledgement of that is an edge as well, and comes when it likes.
static bool has_late_edges(const struct game *game, int end) {
  for (int i = 0; i < CONNECTIONS; i++) {
    const struct side *side = &game->connection[i].side[end];
    if (side->has_edge && side->is_write_shut) return true;
  }
  return false;
}

bool step_epoll_wait(struct game *game) {
  int end = (int)pick(game, 2);
  struct order order = order_at(game, end, 0, OP_EPOLL_WAIT);
  order.length = some_set(game);
  order.by = pick(game, 3);
  order.timeout_ms = some_timeout(game);
  if (!game->has_set[end][order.length] || has_late_edges(game, end)) return false;
  call(game, end, &order);
  return true;
}

bool step_pipe(struct game *game) {
  int end = (int)pick(game, 2);
  struct order order = order_at(game, end, 0, OP_PIPE);
  order.by = pick(game, 2);
  call(game, end, &order);
  return true;
}

bool step_nonblock(struct game *game) {
  int end = (int)pick(game, 2);
  int handle = some_handle(game, end);
  if (handle < 0) return false;
  struct order order = order_at(game, end, handle, OP_NONBLOCK);
  order.by = pick(game, 2);
  order.other = pick(game, 2);
  call(game, end, &order);
  game->connection[game->handle[end][handle]].side[end].is_nonblocking = order.other == 1;
  return true;
}

bool step_set_option(struct game *game) {
  enum { KEEPALIVE = 2, NO_DELAY = 4, KEEP_IDLE = 5, LOW = 6, TIMEOUT = 8, LINGER = 9 };
  static const uint8_t kinds[] = {KEEPALIVE, NO_DELAY, KEEP_IDLE, LOW, LOW, TIMEOUT, TIMEOUT, LINGER};
  int end = (int)pick(game, 2);
  int handle = some_handle(game, end);
  if (handle < 0) return false;
  struct side *side = &game->connection[game->handle[end][handle]].side[end];
  struct order order = order_at(game, end, handle, OP_SET_OPTION);
  order.other = kinds[pick(game, sizeof(kinds))];
  order.length = 1;
  if (order.other == LOW) {
    // To set it wakes those who wait for edges.
    if (side->has_edge) return false;
    order.length = chance(game, 50) ? 1 : 1 + pick(game, 3000);
    side->low = order.length;
  }
  if (order.other == TIMEOUT) {
    order.length = 10 * pick(game, 2);
    side->has_timeout = order.length > 0;
  }
  if (order.other == KEEP_IDLE) order.length = 10 + pick(game, 100);
  if (order.other == LINGER) side->has_linger = true;
  call(game, end, &order);
  return true;
}

// Steps that only ask.
bool step_ask(struct game *game) {
  static const uint8_t ops[] = {OP_FIONREAD, OP_FIONREAD, OP_GET_OPTION, OP_NAMES};
  int end = (int)pick(game, 2);
  int handle = some_handle(game, end);
  if (handle < 0) return false;
  struct order order = order_at(game, end, handle, ops[pick(game, sizeof(ops))]);
  order.by = pick(game, 2);
  order.other = pick(game, 11);
  call(game, end, &order);
  return true;
}
