// What TCP does with the bytes and ends of a connection, as far as the choice of calls needs it.
#include <string.h>

#include "game.h"

uint32_t pick(struct game *game, uint32_t count) {
  return (uint32_t)(draw(&game->dice) >> 33) % count;
}

bool chance(struct game *game, uint32_t percent) {
  return pick(game, 100) < percent;
}

int some_handle(struct game *game, int end) {
  int open[HANDLES];
  uint32_t count = 0;
  for (int i = 0; i < HANDLES; i++) {
    if (game->handle[end][i] >= 0) open[count++] = i;
  }
  return count == 0 ? -1 : open[pick(game, count)];
}

int handle_of(const struct game *game, int end, int connection) {
  for (int i = 0; i < HANDLES; i++) {
    if (game->handle[end][i] == connection) return i;
  }
  return -1;
}

int free_handle(const struct game *game, int end) {
  return handle_of(game, end, -1);
}

// Bytes that this end can read.
uint64_t waiting_bytes(const struct connection *connection, int end) {
  return connection->written[1 - end] - connection->taken[1 - end];
}

// Has said that it sends no more.
bool is_finished(const struct connection *connection, int side) {
  return connection->side[side].is_write_shut || !connection->side[side].is_open;
}

bool is_over(const struct connection *connection) {
  return is_finished(connection, 0) && is_finished(connection, 1);
}

// Answers bytes by a reset: nobody is to read them, and it has said so.
bool is_gone(const struct connection *connection, int side) {
  const struct side *one = &connection->side[side];
  return !one->is_open || (one->is_read_shut && one->is_write_shut);
}

// Bytes that no other program gets: they may be in the ring, and their writer, which would send
// them by TCP, has ended or has sent its FIN.
bool is_only_here(const struct connection *connection, int end) {
  return connection->side[end].is_open && is_finished(connection, 1 - end) && waiting_bytes(connection, end) > 0;
}

// Both ends may still do anything.
bool is_whole(const struct connection *connection) {
  for (int i = 0; i < 2; i++) {
    const struct side *side = &connection->side[i];
    if (!side->is_open || side->is_read_shut || side->is_write_shut || side->is_reset) return false;
  }
  return connection->is_made;
}

struct need need_of(const struct connection *connection, int end) {
  struct need need = {.bytes = (uint32_t)waiting_bytes(connection, end)};
  const struct side *side = &connection->side[end];
  if (!side->is_open) return (struct need){0};
  if (is_finished(connection, 1 - end)) need.flags |= NEED_END;
  if (is_over(connection)) need.flags |= NEED_HANGUP | NEED_CLOSED;
  if (side->is_reset) need.flags |= NEED_HANGUP | NEED_CLOSED;
  return need;
}

struct order order_at(struct game *game, int end, int handle, enum op op) {
  struct order order = {.op = op, .handle = (uint32_t)handle};
  for (int i = 0; i < CONNECTIONS; i++) {
    if (game->connection[i].is_made) order.need[i] = need_of(&game->connection[i], end);
  }
  return order;
}

bool resets_on_close(const struct connection *connection, int end) {
  const struct side *side = &connection->side[end];
  if (is_over(connection) || side->is_reset) return false;
  return waiting_bytes(connection, end) > 0 || side->has_linger;
}

// The last descriptor of this end was closed.
void close_side(struct game *game, int end, int connection) {
  struct connection *one = &game->connection[connection];
  struct side *other = &one->side[1 - end];
  if (resets_on_close(one, end) && other->is_open) other->is_reset = true;
  one->side[end].is_open = false;
}
