// The same by liburing.
#include "uring.h"

#include <liburing.h>

static struct io_uring ring;

static void prepare(void) {
  const int result = io_uring_queue_init(8, &ring, 0);
  if (result < 0) fail("io_uring_queue_init", -result);
}

static ssize_t finish(void) {
  int result = io_uring_submit(&ring);
  if (result < 0) fail("io_uring_submit", -result);
  struct io_uring_cqe *done;
  result = io_uring_wait_cqe(&ring, &done);
  if (result < 0) fail("io_uring_wait_cqe", -result);
  const int size = done->res;
  io_uring_cqe_seen(&ring, done);
  if (size < 0) fail("a request", -size);
  return size;
}

static ssize_t send_it(int fd, const void *bytes, size_t size) {
  io_uring_prep_send(io_uring_get_sqe(&ring), fd, bytes, size, 0);
  return finish();
}

static ssize_t receive(int fd, void *bytes, size_t size) {
  io_uring_prep_recv(io_uring_get_sqe(&ring), fd, bytes, size, 0);
  return finish();
}

const struct way by_liburing = {prepare, send_it, receive};
