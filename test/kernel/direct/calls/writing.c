// Functions that write.
#include <aio.h>
#include <errno.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "world.h"

typedef ssize_t (*write_type)(int, const void *, size_t);
typedef ssize_t (*writev_type)(int, const struct iovec *, int);
typedef ssize_t (*send_type)(int, const void *, size_t, int);
typedef ssize_t (*sendto_type)(int, const void *, size_t, int, const void *, socklen_t);
typedef ssize_t (*sendmsg_type)(int, const struct msghdr *, int);
typedef int (*sendmmsg_type)(int, struct mmsghdr *, unsigned, int);
typedef ssize_t (*sendfile_type)(int, int, off_t *, size_t);
typedef ssize_t (*pwritev2_type)(int, const struct iovec *, int, off_t, int);
typedef int (*aio_type)(struct aiocb *);
typedef int (*eventfd_write_type)(int, uint64_t);

static void try_write(struct world *world) {
  check(FUNCTION(world, write_type)(world->fd, ours(world, SOME), SOME) == SOME, "bytes written");
  peer_takes(world, SOME);
}

static void try_writev(struct world *world) {
  uint8_t *bytes = (uint8_t *)(uintptr_t)ours(world, SOME);
  struct iovec parts[] = {{bytes, 3}, {bytes + 3, SOME - 3}};
  check(FUNCTION(world, writev_type)(world->fd, parts, 2) == SOME, "bytes written");
  peer_takes(world, SOME);
}

static void try_send(struct world *world) {
  check(FUNCTION(world, send_type)(world->fd, ours(world, SOME), SOME, MSG_NOSIGNAL) == SOME, "bytes written");
  peer_takes(world, SOME);
}

static void try_sendto(struct world *world) {
  check(FUNCTION(world, sendto_type)(world->fd, ours(world, SOME), SOME, 0, NULL, 0) == SOME, "bytes written");
  peer_takes(world, SOME);
}

static void try_sendmsg(struct world *world) {
  uint8_t *bytes = (uint8_t *)(uintptr_t)ours(world, SOME);
  struct iovec parts[] = {{bytes, 3}, {bytes + 3, SOME - 3}};
  struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
  check(FUNCTION(world, sendmsg_type)(world->fd, &message, 0) == SOME, "bytes written");
  peer_takes(world, SOME);
}

static void try_sendmmsg(struct world *world) {
  uint8_t *bytes = (uint8_t *)(uintptr_t)ours(world, SOME);
  struct iovec parts[] = {{bytes, 7}, {bytes + 7, SOME - 7}};
  struct mmsghdr list[] = {{.msg_hdr = {.msg_iov = &parts[0], .msg_iovlen = 1}},
                           {.msg_hdr = {.msg_iov = &parts[1], .msg_iovlen = 1}}};
  check(FUNCTION(world, sendmmsg_type)(world->fd, list, 2, 0) == 2, "messages written");
  check(list[0].msg_len == 7 && list[1].msg_len == SOME - 7, "lengths of messages");
  peer_takes(world, SOME);
}

static void try_sendfile(struct world *world) {
  int file = memfd_create("bytes", MFD_CLOEXEC);
  off_t offset = 5;
  check(pwrite(file, ours(world, SOME), SOME, offset) == SOME, "write a file");
  check(FUNCTION(world, sendfile_type)(world->fd, file, &offset, SOME) == SOME, "bytes written");
  check(offset == SOME + 5, "the offset");
  peer_takes(world, SOME);
}

static void try_pwritev2(struct world *world) {
  struct iovec part = {(void *)(uintptr_t)ours(world, SOME), SOME};
  check(FUNCTION(world, pwritev2_type)(world->fd, &part, 1, -1, 0) == SOME, "bytes written");
  peer_takes(world, SOME);
}

static void try_aio_write(struct world *world) {
  struct aiocb block = {.aio_fildes = world->fd, .aio_nbytes = SOME};
  block.aio_buf = (void *)(uintptr_t)ours(world, SOME);
  const struct aiocb *const list[] = {&block};
  check(FUNCTION(world, aio_type)(&block) == 0, "the request is taken");
  while (aio_error(&block) == EINPROGRESS)
    aio_suspend(list, 1, NULL);
  check(aio_return(&block) == SOME, "bytes written");
  peer_takes(world, SOME);
}

static void try_eventfd_write(struct world *world) {
  const uint64_t *bytes = (const uint64_t *)(const void *)ours(world, sizeof(*bytes));
  check(FUNCTION(world, eventfd_write_type)(world->fd, *bytes) == 0, "eight bytes");
  peer_takes(world, sizeof(*bytes));
}

const struct row writing_rows[] = {
    {"write", try_write},
    {"__write", try_write},
    {"writev", try_writev},
    {"send", try_send},
    {"__send", try_send},
    {"sendto", try_sendto},
    {"sendmsg", try_sendmsg},
    {"sendmmsg", try_sendmmsg},
    {"sendfile", try_sendfile},
    {"sendfile64", try_sendfile},
    {"pwritev2", try_pwritev2},
    {"pwritev64v2", try_pwritev2},
    {"aio_write", try_aio_write},
    {"aio_write64", try_aio_write},
    {"eventfd_write", try_eventfd_write},
    {NULL, NULL},
};
