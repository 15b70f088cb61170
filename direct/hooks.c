// For tests: promotion and demotion at any call.
#include "calls.h"
#include "real.h"

#include <poll.h>

MR_EXPORT int millrace_direct_state(int fd) {
  struct mr_connection *connection = mr_begin(fd);
  if (connection == NULL) return 0;
  const int state = (int)atomic_load(&connection->state);
  mr_leave(connection);
  return state;
}

// Whether it is left to the kernel for good. So is what the library does not know, after exec.
MR_EXPORT int millrace_direct_is_pinned(int fd) {
  struct mr_connection *connection = mr_begin(fd);
  if (connection == NULL) return 1;
  const bool is_pinned = atomic_load(&connection->pinned) != 0;
  mr_leave(connection);
  return is_pinned;
}

// Offers at once, and waits for up to a quarter of a second until the other end has been offered as
// well.
MR_EXPORT int millrace_direct_promote(int fd) {
  const int64_t deadline = mr_now_ns() + INT64_C(250000000);
  for (;;) {
    struct mr_connection *connection = mr_begin(fd);
    if (connection == NULL) return 0;
    const uint32_t state = atomic_load(&connection->state);
    if (state == MR_PLAIN) {
      connection->offer_at = 0;
      mr.next_dial_ns = 0;
      mr_counted(connection, fd);
    }
    const bool is_pinned = atomic_load(&connection->pinned) != 0;
    mr_leave(connection);
    if (state == MR_DIRECT) return 1;
    if (is_pinned || mr_now_ns() > deadline) return 0;
    struct pollfd daemon = {.fd = mr.control, .events = POLLIN};
    real.poll(&daemon, 1, 1);
    mr_hear();
  }
}

MR_EXPORT int millrace_direct_demote(int fd) {
  struct mr_connection *connection = mr_begin(fd);
  if (connection == NULL) return 0;
  const bool was_direct = mr_is_direct(connection);
  mr_demote(connection, fd, false);
  mr_leave(connection);
  return was_direct;
}
