// Functions that read.
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "world.h"

typedef ssize_t (*read_type)(int, void *, size_t);
typedef ssize_t (*read_chk_type)(int, void *, size_t, size_t);
typedef ssize_t (*readv_type)(int, const struct iovec *, int);
typedef ssize_t (*recv_type)(int, void *, size_t, int);
typedef ssize_t (*recv_chk_type)(int, void *, size_t, size_t, int);
typedef ssize_t (*recvfrom_type)(int, void *, size_t, int, void *, socklen_t *);
typedef ssize_t (*recvfrom_chk_type)(int, void *, size_t, size_t, int, void *, socklen_t *);
typedef ssize_t (*recvmsg_type)(int, struct msghdr *, int);
typedef int (*recvmmsg_type)(int, struct mmsghdr *, unsigned, int, struct timespec *);
typedef ssize_t (*preadv2_type)(int, const struct iovec *, int, off_t, int);
typedef int (*aio_type)(struct aiocb *);
typedef int (*lio_type)(int, struct aiocb *const *, int, struct sigevent *);
typedef int (*eventfd_read_type)(int, uint64_t *);
typedef ssize_t (*splice_type)(int, off_t *, int, off_t *, size_t, unsigned);
typedef long (*syscall_type)(long, ...);

static void try_read(struct world *world) {
  uint8_t bytes[SOME];
  peer_sends(world, SOME);
  theirs(world, bytes, FUNCTION(world, read_type)(world->fd, bytes, SOME / 2), SOME / 2);
  theirs(world, bytes, FUNCTION(world, read_type)(world->fd, bytes, SOME), SOME / 2);
}

static void try_read_chk(struct world *world) {
  uint8_t bytes[SOME];
  peer_sends(world, SOME);
  theirs(world, bytes, FUNCTION(world, read_chk_type)(world->fd, bytes, SOME, sizeof(bytes)), SOME);
}

static void try_readv(struct world *world) {
  uint8_t bytes[SOME];
  struct iovec parts[] = {{bytes, 3}, {bytes + 3, SOME - 3}};
  peer_sends(world, SOME);
  theirs(world, bytes, FUNCTION(world, readv_type)(world->fd, parts, 2), SOME);
}

static void try_recv(struct world *world) {
  uint8_t bytes[2 * SOME];
  recv_type function = FUNCTION(world, recv_type);
  check(function(world->fd, bytes, SOME, MSG_DONTWAIT) == -1 && errno == EAGAIN, "nothing is there yet");
  peer_sends(world, SOME);
  check(function(world->fd, bytes, SOME, MSG_PEEK) == SOME, "MSG_PEEK");
  theirs(world, bytes, function(world->fd, bytes, SOME, MSG_WAITALL), SOME);
}

static void try_recv_chk(struct world *world) {
  uint8_t bytes[SOME];
  peer_sends(world, SOME);
  theirs(world, bytes, FUNCTION(world, recv_chk_type)(world->fd, bytes, SOME, sizeof(bytes), 0), SOME);
}

static void try_recvfrom(struct world *world) {
  uint8_t bytes[SOME];
  struct sockaddr_storage address;
  socklen_t size = sizeof(address);
  peer_sends(world, SOME);
  theirs(world, bytes, FUNCTION(world, recvfrom_type)(world->fd, bytes, SOME, 0, &address, &size), SOME);
  check(size == 0, "TCP tells no address");
}

static void try_recvfrom_chk(struct world *world) {
  uint8_t bytes[SOME];
  peer_sends(world, SOME);
  recvfrom_chk_type function = FUNCTION(world, recvfrom_chk_type);
  theirs(world, bytes, function(world->fd, bytes, SOME, sizeof(bytes), 0, NULL, NULL), SOME);
}

static void try_recvmsg(struct world *world) {
  uint8_t bytes[SOME];
  struct iovec parts[] = {{bytes, 7}, {bytes + 7, SOME - 7}};
  struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2, .msg_flags = -1};
  peer_sends(world, SOME);
  theirs(world, bytes, FUNCTION(world, recvmsg_type)(world->fd, &message, 0), SOME);
  check(message.msg_flags == 0, "no flags");
}

static void try_recvmmsg(struct world *world) {
  uint8_t bytes[SOME];
  struct iovec parts[] = {{bytes, 7}, {bytes + 7, SOME - 7}};
  struct mmsghdr list[] = {{.msg_hdr = {.msg_iov = &parts[0], .msg_iovlen = 1}},
                           {.msg_hdr = {.msg_iov = &parts[1], .msg_iovlen = 1}}};
  peer_sends(world, SOME);
  check(FUNCTION(world, recvmmsg_type)(world->fd, list, 2, 0, NULL) == 2, "two messages");
  theirs(world, bytes, list[0].msg_len + list[1].msg_len, SOME);
}

static void try_preadv2(struct world *world) {
  uint8_t bytes[SOME];
  struct iovec part = {bytes, SOME};
  peer_sends(world, SOME);
  theirs(world, bytes, FUNCTION(world, preadv2_type)(world->fd, &part, 1, -1, 0), SOME);
}

static ssize_t finish(struct aiocb *block) {
  const struct aiocb *const list[] = {block};
  while (aio_error(block) == EINPROGRESS)
    aio_suspend(list, 1, NULL);
  return aio_return(block);
}

static void try_aio_read(struct world *world) {
  uint8_t bytes[SOME];
  struct aiocb block = {.aio_fildes = world->fd, .aio_buf = bytes, .aio_nbytes = SOME};
  peer_sends(world, SOME);
  check(FUNCTION(world, aio_type)(&block) == 0, "the request is taken");
  theirs(world, bytes, finish(&block), SOME);
}

static void try_lio_listio(struct world *world) {
  uint8_t bytes[SOME];
  struct aiocb in = {.aio_fildes = world->fd, .aio_buf = bytes, .aio_nbytes = SOME, .aio_lio_opcode = LIO_READ};
  struct aiocb out = {.aio_fildes = world->fd, .aio_nbytes = SOME, .aio_lio_opcode = LIO_WRITE};
  struct aiocb *const list[] = {&in, &out};
  out.aio_buf = (void *)(uintptr_t)ours(world, SOME);
  peer_sends(world, SOME);
  check(FUNCTION(world, lio_type)(LIO_WAIT, list, 2, NULL) == 0, "the requests are done");
  theirs(world, bytes, aio_return(&in), SOME);
  check(aio_return(&out) == SOME, "bytes written");
  peer_takes(world, SOME);
}

static void try_eventfd_read(struct world *world) {
  uint64_t bytes = 0;
  peer_sends(world, sizeof(bytes));
  check(FUNCTION(world, eventfd_read_type)(world->fd, &bytes) == 0, "eight bytes");
  theirs(world, &bytes, sizeof(bytes), sizeof(bytes));
}

static void try_splice(struct world *world) {
  uint8_t bytes[SOME];
  int ends[2];
  check(pipe(ends) == 0, "pipe");
  peer_sends(world, SOME);
  check(FUNCTION(world, splice_type)(world->fd, NULL, ends[1], NULL, SOME, 0) == SOME, "bytes moved");
  theirs(world, bytes, read(ends[0], bytes, SOME), SOME);
}

static void try_syscall(struct world *world) {
  uint8_t bytes[SOME];
  peer_sends(world, SOME);
  enum { NUMBER_OF_READ = 0 };
  theirs(world, bytes, FUNCTION(world, syscall_type)(NUMBER_OF_READ, world->fd, bytes, (size_t)SOME), SOME);
}

const struct row reading_rows[] = {
    {"read", try_read},
    {"__read", try_read},
    {"__read_chk", try_read_chk},
    {"readv", try_readv},
    {"recv", try_recv},
    {"__recv_chk", try_recv_chk},
    {"recvfrom", try_recvfrom},
    {"__recvfrom_chk", try_recvfrom_chk},
    {"recvmsg", try_recvmsg},
    {"recvmmsg", try_recvmmsg},
    {"preadv2", try_preadv2},
    {"preadv64v2", try_preadv2},
    {"aio_read", try_aio_read},
    {"aio_read64", try_aio_read},
    {"lio_listio", try_lio_listio},
    {"lio_listio64", try_lio_listio},
    {"eventfd_read", try_eventfd_read},
    {"splice", try_splice},
    {"syscall", try_syscall},
    {NULL, NULL},
};
