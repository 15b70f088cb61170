// Steps that read and write.
#include <sys/socket.h>

#include "game.h"

static uint32_t some_length(struct game *game) {
  switch (pick(game, 10)) {
  case 0:
    return pick(game, 3);
  case 1:
  case 2:
    return 1 + pick(game, 8000);
  case 3:
  case 4:
  case 5:
    return 1 + pick(game, 1500);
  default:
    return 1 + pick(game, 64);
  }
}

static bool has_flags(uint32_t by) {
  return by >= BY_SEND && by <= BY_MESSAGES;
}

static uint32_t some_place(struct game *game) {
  uint32_t number = pick(game, 400);
  return number < 6 ? IN_CHILD : number < 8 ? IN_HELPER : IN_END;
}

bool step_write(struct game *game) {
  int end = (int)pick(game, 2);
  int handle = some_handle(game, end);
  if (handle < 0) return false;
  struct connection *one = &game->connection[game->handle[end][handle]];
  struct side *side = &one->side[end];
  struct order order = order_at(game, end, handle, OP_WRITE);
  order.length = some_length(game);
  order.by = pick(game, BY_MORE + 1);
  if (game->is_emulated && (order.by == BY_SPLICE || order.by == BY_STDIO)) order.by = BY_READ;
  order.other = (uint32_t)(draw(&game->dice) >> 40);
  order.place = some_place(game);
  if (has_flags(order.by) && chance(game, 30)) order.flags |= MSG_NOSIGNAL;
  if (has_flags(order.by) && chance(game, 20)) order.flags |= MSG_DONTWAIT;
  if (one->written[end] - one->taken[end] + order.length > IN_FLIGHT || one->chunks[end] >= CHUNKS) return false;
  bool is_answered_by_reset = is_gone(one, 1 - end) && !side->is_reset && !side->is_write_shut;
  bool is_one_call = order.by <= BY_MESSAGE;
  if ((is_answered_by_reset || side->is_reset || side->is_write_shut) && !is_one_call) return false;
  if (!is_one_call && order.length < 2) return false;
  if (is_only_here(one, end) && (order.by == BY_STDIO || order.place == IN_HELPER)) return false;
  order.pattern = one->pattern[end];
  order.position = one->written[end];
  int64_t result = call(game, end, &order).result;
  if (result <= 0) return true;
  if (is_answered_by_reset) {
    side->is_reset = true;
    one->side[1 - end].is_reset = true;
    return true;
  }
  one->written[end] += (uint64_t)result;
  one->chunks[end] += order.by == BY_MESSAGES ? 3 : 1 + order.length / 4096;
  return true;
}

// Whether it waits for bytes that do not come.
static bool would_block(const struct connection *one, int end, const struct order *order) {
  const struct side *side = &one->side[end];
  uint64_t there = waiting_bytes(one, end);
  if (side->is_nonblocking || (order->flags & MSG_DONTWAIT) != 0) return false;
  if ((order->by == BY_READ || order->by == BY_VECTOR) && order->length == 0) return false;
  if (is_finished(one, 1 - end) || side->is_reset || side->is_read_shut) return false;
  if (order->by == BY_MESSAGES) return there <= order->length;
  uint32_t target = side->low < order->length ? side->low : order->length;
  if ((order->flags & MSG_WAITALL) != 0) target = order->length;
  return there < (target == 0 ? 1 : target);
}

static void choose_read(struct game *game, struct order *order) {
  static const uint8_t ways[] = {BY_READ,    BY_READ,     BY_VECTOR, BY_SEND,  BY_SEND, BY_ADDRESS,
                                 BY_MESSAGE, BY_MESSAGES, BY_SPLICE, BY_STDIO, BY_SEND, BY_MESSAGE};
  order->by = ways[pick(game, sizeof(ways))];
  if (game->is_emulated && (order->by == BY_SPLICE || order->by == BY_STDIO)) order->by = BY_READ;
  order->length = some_length(game);
  order->other = (uint32_t)(draw(&game->dice) >> 40);
  order->place = some_place(game);
  if (!has_flags(order->by)) return;
  if (chance(game, 25) && order->by != BY_MESSAGES) order->flags |= MSG_PEEK;
  if (chance(game, 20)) order->flags |= MSG_WAITALL;
  if (chance(game, 20)) order->flags |= MSG_DONTWAIT;
  if (chance(game, 7)) order->flags |= MSG_TRUNC;
  if (chance(game, 10)) order->flags |= MSG_NOSIGNAL;
}

// Calls that the C library or the kernel makes several times at will.
static bool has_one_result(const struct connection *one, int end, const struct order *order) {
  uint64_t there = waiting_bytes(one, end);
  if (order->by != BY_SPLICE && order->by != BY_STDIO) return true;
  return order->length >= 1 && order->length <= there;
}

bool step_read(struct game *game) {
  int end = (int)pick(game, 2);
  int handle = some_handle(game, end);
  if (handle < 0) return false;
  int number = game->handle[end][handle];
  struct connection *one = &game->connection[number];
  struct order order = order_at(game, end, handle, OP_READ);
  choose_read(game, &order);
  if (!has_one_result(one, end, &order)) return false;
  if (is_only_here(one, end) && (order.by == BY_STDIO || order.place == IN_HELPER)) return false;
  bool is_timed = one->side[end].has_timeout;
  if (would_block(one, end, &order) && !(is_timed && chance(game, 30))) {
    if (!has_flags(order.by)) return false;
    order.flags |= MSG_DONTWAIT;
  }
  // What waits for all of its bytes needs nobody to wait before it.
  bool is_patient = (order.flags & (MSG_WAITALL | MSG_DONTWAIT)) == MSG_WAITALL && !one->side[end].is_nonblocking;
  if (is_patient && !is_timed && order.length <= waiting_bytes(one, end) && chance(game, 70)) {
    order.need[number].bytes = 0;
  }
  order.pattern = one->pattern[1 - end];
  order.position = one->taken[1 - end];
  int64_t result = call(game, end, &order).result;
  if (result > 0 && (order.flags & MSG_PEEK) == 0) one->taken[1 - end] += (uint64_t)result;
  if (one->taken[1 - end] == one->written[1 - end]) one->chunks[1 - end] = 0;
  return true;
}

bool step_bulk(struct game *game) {
  static const uint8_t ways[] = {BY_READ, BY_SEND, BY_FILE};
  int end = (int)pick(game, 2);
  int handle = some_handle(game, end);
  if (handle < 0) return false;
  int number = game->handle[end][handle];
  struct connection *one = &game->connection[number];
  if (!is_whole(one) || one->side[1 - end].low > 1 || one->side[1 - end].has_timeout || one->side[end].has_edge) {
    return false;
  }
  struct order order = order_at(game, end, handle, OP_BULK_WRITE);
  order.length = 1 + pick(game, chance(game, 20) ? LONGEST / 2 : 100000);
  order.by = ways[pick(game, 3)];
  order.other = pick(game, 1 << 20);
  order.pattern = one->pattern[end];
  order.position = one->written[end];
  struct order back = {.op = OP_BULK_READ, .handle = (uint32_t)handle_of(game, 1 - end, number)};
  back.length = (uint32_t)(one->written[end] - one->taken[end]) + order.length;
  back.by = ways[pick(game, 2)];
  back.flags = back.by == BY_SEND && chance(game, 50) ? MSG_WAITALL : 0;
  back.other = pick(game, 1 << 20);
  back.pattern = one->pattern[end];
  back.position = one->taken[end];
  // What the reader has sent by another connection comes before it waits for this one alone.
  settle(game, end);
  tell(game, end, &order);
  tell(game, 1 - end, &back);
  struct answer written = hear(game, end);
  struct answer taken = hear(game, 1 - end);
  note(game, end, &written);
  note(game, 1 - end, &taken);
  one->written[end] += order.length;
  one->taken[end] += back.length;
  one->chunks[end] = 0;
  return true;
}
