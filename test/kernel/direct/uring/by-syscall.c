// An io_uring as the kernel's documentation describes it, without a library.
#include "uring.h"

#include <errno.h>
#include <linux/io_uring.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct {
  int fd;
  _Atomic uint32_t *submitted, *completed, *taken;
  uint32_t submit_mask, complete_mask;
  uint32_t *order;
  struct io_uring_sqe *requests;
  struct io_uring_cqe *results;
} ring;

static void *map(size_t size, off_t what) {
  void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring.fd, what);
  if (memory == MAP_FAILED) fail("mmap", errno);
  return memory;
}

static void prepare(void) {
  struct io_uring_params params = {0};
  ring.fd = (int)syscall(SYS_io_uring_setup, 8, &params);
  if (ring.fd < 0) fail("io_uring_setup", errno);
  char *submissions = map(params.sq_off.array + params.sq_entries * sizeof(uint32_t), IORING_OFF_SQ_RING);
  char *completions = map(params.cq_off.cqes + params.cq_entries * sizeof(struct io_uring_cqe), IORING_OFF_CQ_RING);
  ring.requests = map(params.sq_entries * sizeof(struct io_uring_sqe), IORING_OFF_SQES);
  ring.submitted = (_Atomic uint32_t *)(submissions + params.sq_off.tail);
  ring.submit_mask = *(uint32_t *)(submissions + params.sq_off.ring_mask);
  ring.order = (uint32_t *)(submissions + params.sq_off.array);
  ring.taken = (_Atomic uint32_t *)(completions + params.cq_off.head);
  ring.completed = (_Atomic uint32_t *)(completions + params.cq_off.tail);
  ring.complete_mask = *(uint32_t *)(completions + params.cq_off.ring_mask);
  ring.results = (struct io_uring_cqe *)(completions + params.cq_off.cqes);
}

static ssize_t ask(uint8_t what, int fd, const void *bytes, size_t size) {
  const uint32_t at = atomic_load(ring.submitted);
  struct io_uring_sqe *request = &ring.requests[at & ring.submit_mask];
  *request = (struct io_uring_sqe){.opcode = what, .fd = fd, .addr = (uintptr_t)bytes, .len = (uint32_t)size};
  ring.order[at & ring.submit_mask] = at & ring.submit_mask;
  atomic_store(ring.submitted, at + 1);
  if (syscall(SYS_io_uring_enter, ring.fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) < 0) fail("io_uring_enter", errno);
  const uint32_t first = atomic_load(ring.taken);
  while (atomic_load(ring.completed) == first)
    if (syscall(SYS_io_uring_enter, ring.fd, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0) < 0) fail("io_uring_enter", errno);
  const int result = ring.results[first & ring.complete_mask].res;
  atomic_store(ring.taken, first + 1);
  if (result < 0) fail("a request", -result);
  return result;
}

static ssize_t send_it(int fd, const void *bytes, size_t size) {
  return ask(IORING_OP_SEND, fd, bytes, size);
}

static ssize_t receive(int fd, void *bytes, size_t size) {
  return ask(IORING_OP_RECV, fd, bytes, size);
}

const struct way by_syscall = {prepare, send_it, receive};
