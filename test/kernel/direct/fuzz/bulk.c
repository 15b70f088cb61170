// More bytes than all buffers hold: one end writes while the other one reads.
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz.h"

static uint8_t bulk[LONGEST];

// Waits by the call that the order names; false after the deadline.
static bool wait_ready(const struct order *order, int fd, short events) {
  if (order->other % 2 == 0) {
    struct pollfd one = {.fd = fd, .events = events};
    return poll(&one, 1, DEADLINE_MS) == 1;
  }
  int set = epoll_create1(EPOLL_CLOEXEC);
  struct epoll_event event = {.events = (uint32_t)events | EPOLLET};
  bool is_ready = epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0 && epoll_wait(set, &event, 1, DEADLINE_MS) == 1;
  close(set);
  return is_ready;
}

static ssize_t write_some(const struct order *order, int fd, int file, size_t done, size_t length) {
  off_t offset = (off_t)done;
  switch (order->by) {
  case BY_READ:
    return write(fd, bulk + done, length);
  case BY_FILE:
    return sendfile(fd, file, &offset, length);
  default:
    return send(fd, bulk + done, length, order->flags);
  }
}

void make_bulk_write(const struct order *order, int fd, struct answer *answer) {
  fill(bulk, order->length, order->pattern, order->position);
  int file = -1;
  if (order->by == BY_FILE) {
    file = memfd_create("bulk", MFD_CLOEXEC);
    if (write(file, bulk, order->length) != (ssize_t)order->length) die("write a file");
  }
  size_t done = 0;
  // Sizes of single calls: everything at once, or pieces that are no power of two.
  size_t piece = order->other % 3 == 0 ? order->length : 1000 + order->other % 70000;
  while (done < order->length) {
    size_t left = order->length - done;
    ssize_t result = write_some(order, fd, file, done, left < piece ? left : piece);
    if (result < 0 && errno == EAGAIN && wait_ready(order, fd, POLLOUT)) continue;
    if (result <= 0) break;
    done += (size_t)result;
  }
  say(answer, "bulk write(%u, %u)", order->handle, order->length);
  say_result(answer, done == order->length ? (int64_t)done : -1);
  if (file >= 0) close(file);
}

void make_bulk_read(const struct order *order, int fd, struct answer *answer) {
  size_t done = 0;
  size_t piece = order->other % 3 == 0 ? order->length : 1000 + order->other % 70000;
  long wrong = -1;
  while (done < order->length && wrong < 0) {
    size_t left = order->length - done;
    size_t size = left < piece ? left : piece;
    ssize_t result = order->by == BY_READ ? read(fd, bulk, size) : recv(fd, bulk, size, order->flags);
    if (result < 0 && errno == EAGAIN && wait_ready(order, fd, POLLIN)) continue;
    if (result <= 0) break;
    wrong = mismatch(bulk, (size_t)result, order->pattern, order->position + done);
    if (wrong >= 0) say(answer, "WRONG at %zu ", done + (size_t)wrong);
    done += (size_t)result;
  }
  say(answer, "bulk read(%u, %u)", order->handle, order->length);
  say_result(answer, done == order->length ? (int64_t)done : -1);
}
