// The calls that move bytes: to the rings when the connection is direct, to the kernel otherwise.
#include "calls.h"
#include "internal.h"
#include "real.h"

#include <stdlib.h>
#include <string.h>

struct mr_connection *mr_begin(int fd) {
  mr_ensure_resolved();
  mr_listen();
  struct mr_connection *connection = mr_enter(fd);
  if (connection == NULL) return NULL;
  if (unlikely(connection->is_invited && atomic_load(&connection->state) == MR_OFFERED) && mr_acquire(&mr.lock)) {
    if (connection->is_invited && atomic_load(&connection->state) == MR_OFFERED) mr_promote(connection, 1);
    mr_release(&mr.lock);
  }
  while (unlikely(atomic_load(&connection->state) == MR_PROMOTING))
    __builtin_ia32_pause();
  return connection;
}

bool mr_is_direct(struct mr_connection *connection) {
  return atomic_load_explicit(&connection->state, memory_order_acquire) == MR_DIRECT;
}

static ssize_t end(struct mr_connection *connection, int fd, ssize_t result) {
  if (result > 0 && !mr_is_direct(connection)) mr_counted(connection, fd);
  mr_leave(connection);
  return result;
}

#define IS_FOR_TCP(flags) (((flags) & (MSG_OOB | MSG_ERRQUEUE)) != 0)

// One buffer to read into.
static ssize_t receive(struct mr_connection *connection, int fd, void *buffer, size_t size, int flags) {
  struct iovec bytes = {.iov_base = buffer, .iov_len = size};
  struct msghdr message = {.msg_iov = &bytes, .msg_iovlen = 1};
  return mr_receive(connection, fd, &message, flags);
}

static ssize_t transmit(struct mr_connection *connection, int fd, const void *buffer, size_t size, int flags) {
  struct iovec bytes = {.iov_base = (void *)buffer, .iov_len = size};
  const struct msghdr message = {.msg_iov = &bytes, .msg_iovlen = 1};
  return mr_transmit(connection, fd, &message, flags);
}

MR_EXPORT ssize_t read(int fd, void *buffer, size_t size) {
  struct mr_connection *connection = mr_begin(fd);
  if (connection == NULL) return real.read(fd, buffer, size);
  return end(connection, fd,
             // Nothing is read at once, while recv waits for the first byte.
             mr_is_direct(connection) && size > 0 ? receive(connection, fd, buffer, size, 0)
                                                  : real.read(fd, buffer, size));
}

MR_EXPORT ssize_t recv(int fd, void *buffer, size_t size, int flags) {
  struct mr_connection *connection = mr_begin(fd);
  if (connection == NULL) return real.recv(fd, buffer, size, flags);
  if (IS_FOR_TCP(flags)) mr_demote(connection, fd, true);
  return end(connection, fd,
             mr_is_direct(connection) ? receive(connection, fd, buffer, size, flags)
                                      : real.recv(fd, buffer, size, flags));
}

MR_EXPORT ssize_t recvfrom(int fd, void *buffer, size_t size, int flags, struct sockaddr *address, socklen_t *length) {
  struct mr_connection *connection = mr_begin(fd);
  if (connection == NULL) return real.recvfrom(fd, buffer, size, flags, address, length);
  if (IS_FOR_TCP(flags)) mr_demote(connection, fd, true);
  if (!mr_is_direct(connection)) return end(connection, fd, real.recvfrom(fd, buffer, size, flags, address, length));
  const ssize_t result = receive(connection, fd, buffer, size, flags);
  if (result >= 0 && address != NULL && length != NULL) *length = 0;
  return end(connection, fd, result);
}

// 0 as well where the kernel refuses the vector.
static size_t total_of(const struct iovec *vector, int count) {
  size_t total = 0;
  for (int i = 0; i < count && count <= 1024; i++)
    total += vector[i].iov_len;
  return total;
}

MR_EXPORT ssize_t readv(int fd, const struct iovec *vector, int count) {
  struct mr_connection *connection = mr_begin(fd);
  if (connection == NULL) return real.readv(fd, vector, count);
  if (!mr_is_direct(connection) || total_of(vector, count) == 0)
    return end(connection, fd, real.readv(fd, vector, count));
  struct msghdr message = {.msg_iov = (struct iovec *)vector, .msg_iovlen = count};
  return end(connection, fd, mr_receive(connection, fd, &message, 0));
}

MR_EXPORT ssize_t recvmsg(int fd, struct msghdr *message, int flags) {
  struct mr_connection *connection = mr_begin(fd);
  if (connection == NULL) return real.recvmsg(fd, message, flags);
  if (IS_FOR_TCP(flags)) mr_demote(connection, fd, true);
  return end(connection, fd,
             mr_is_direct(connection) ? mr_receive(connection, fd, message, flags) : real.recvmsg(fd, message, flags));
}

MR_EXPORT int recvmmsg(int fd, struct mmsghdr *messages, unsigned int count, int flags, struct timespec *timeout) {
  struct mr_connection *connection = mr_begin(fd);
  if (connection == NULL) return real.recvmmsg(fd, messages, count, flags, timeout);
  const int once = flags & ~MSG_WAITFORONE;
  unsigned int done = 0;
  if (IS_FOR_TCP(flags) || timeout != NULL) mr_demote(connection, fd, true);
  if (!mr_is_direct(connection)) {
    const int result = real.recvmmsg(fd, messages, count, flags, timeout);
    return (int)end(connection, fd, result);
  }
  // Of all that read, this one tells an error before the bytes that have come.
  int error = 0;
  socklen_t size = sizeof(error);
  getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) errno = error;
  ssize_t got = error == 0 ? 0 : -1;
  while (got >= 0 && done < count) {
    const bool is_later = done > 0 && (flags & MSG_WAITFORONE) != 0;
    got = mr_receive(connection, fd, &messages[done].msg_hdr, is_later ? once | MSG_DONTWAIT : once);
    if (got < 0) break;
    messages[done++].msg_len = (unsigned int)got;
  }
  // The next call tells it.
  if (done > 0 && got < 0 && errno != EAGAIN && mr_is_direct(connection)) connection->pending_error = errno;
  return (int)end(connection, fd, done > 0 ? (ssize_t)done : got);
}

MR_EXPORT ssize_t write(int fd, const void *buffer, size_t size) {
  struct mr_connection *connection = mr_begin(fd);
  if (connection == NULL) return real.write(fd, buffer, size);
  return end(connection, fd,
             mr_is_direct(connection) ? transmit(connection, fd, buffer, size, 0) : real.write(fd, buffer, size));
}

MR_EXPORT ssize_t send(int fd, const void *buffer, size_t size, int flags) {
  struct mr_connection *connection = mr_begin(fd);
  if (connection == NULL) return real.send(fd, buffer, size, flags);
  return end(connection, fd,
             mr_is_direct(connection) ? transmit(connection, fd, buffer, size, flags)
                                      : real.send(fd, buffer, size, flags));
}

MR_EXPORT ssize_t sendto(int fd, const void *buffer, size_t size, int flags, const struct sockaddr *address,
                         socklen_t length) {
  struct mr_connection *connection = mr_begin(fd);
  if (connection == NULL) return real.sendto(fd, buffer, size, flags, address, length);
  return end(connection, fd,
             mr_is_direct(connection) ? transmit(connection, fd, buffer, size, flags)
                                      : real.sendto(fd, buffer, size, flags, address, length));
}

MR_EXPORT ssize_t writev(int fd, const struct iovec *vector, int count) {
  struct mr_connection *connection = mr_begin(fd);
  if (connection == NULL) return real.writev(fd, vector, count);
  // Without bytes it does nothing, while sendmsg would tell of an end.
  if (!mr_is_direct(connection) || total_of(vector, count) == 0)
    return end(connection, fd, real.writev(fd, vector, count));
  const struct msghdr message = {.msg_iov = (struct iovec *)vector, .msg_iovlen = count};
  return end(connection, fd, mr_transmit(connection, fd, &message, 0));
}

// Descriptors that are passed to another process stay with the kernel.
static void pin_passed(const struct msghdr *message) {
  if (message == NULL || message->msg_control == NULL || message->msg_controllen == 0) return;
  for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header != NULL;
       header = CMSG_NXTHDR((struct msghdr *)message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    for (size_t i = 0; i < (header->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++) {
      int fd;
      memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(fd));
      mr_pin_set_or_connection(fd);
    }
  }
}

MR_EXPORT ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
  struct mr_connection *connection = mr_begin(fd);
  if (connection == NULL) {
    pin_passed(message);
    return real.sendmsg(fd, message, flags);
  }
  return end(connection, fd,
             mr_is_direct(connection) ? mr_transmit(connection, fd, message, flags) : real.sendmsg(fd, message, flags));
}

MR_EXPORT int sendmmsg(int fd, struct mmsghdr *messages, unsigned int count, int flags) {
  struct mr_connection *connection = mr_begin(fd);
  if (connection == NULL) {
    for (unsigned int i = 0; i < count; i++)
      pin_passed(&messages[i].msg_hdr);
    return real.sendmmsg(fd, messages, count, flags);
  }
  if (!mr_is_direct(connection)) return (int)end(connection, fd, real.sendmmsg(fd, messages, count, flags));
  unsigned int done = 0;
  ssize_t sent = 0;
  while (done < count) {
    size_t whole = 0;
    for (size_t i = 0; i < (size_t)messages[done].msg_hdr.msg_iovlen; i++)
      whole += messages[done].msg_hdr.msg_iov[i].iov_len;
    sent = mr_transmit(connection, fd, &messages[done].msg_hdr, flags);
    if (sent < 0) break;
    messages[done++].msg_len = (unsigned int)sent;
    if ((size_t)sent < whole) break;
  }
  return (int)end(connection, fd, done > 0 ? (ssize_t)done : sent);
}

MR_EXPORT ssize_t sendfile(int fd, int file, off_t *offset, size_t count) {
  struct mr_connection *connection = mr_begin(fd);
  if (connection == NULL) return real.sendfile(fd, file, offset, count);
  return end(connection, fd,
             mr_is_direct(connection) ? mr_send_file(connection, fd, file, offset, count)
                                      : real.sendfile(fd, file, offset, count));
}

// The kernel moves the bytes, once they are on TCP. Those of a program that has ended stay in the
// ring and are copied.
MR_EXPORT ssize_t splice(int in, off_t *in_offset, int out, off_t *out_offset, size_t size, unsigned int flags) {
  mr_ensure_resolved();
  mr_pin(out);
  struct mr_connection *connection = mr_begin(in);
  if (connection == NULL) return real.splice(in, in_offset, out, out_offset, size, flags);
  mr_demote(connection, in, true);
  if (!mr_is_direct(connection) || in_offset != NULL || out_offset != NULL)
    return end(connection, in, real.splice(in, in_offset, out, out_offset, size, flags));
  uint8_t bounce[4096];
  const size_t piece = size < sizeof(bounce) ? size : sizeof(bounce);
  const int wait = (flags & 2 /* SPLICE_F_NONBLOCK */) != 0 ? MSG_DONTWAIT : 0;
  ssize_t result = receive(connection, in, bounce, piece, MSG_PEEK | wait);
  if (result > 0) result = real.write(out, bounce, (size_t)result);
  if (result > 0) receive(connection, in, bounce, (size_t)result, 0);
  return end(connection, in, result);
}

// Other names of the same

static void check_size(size_t size, size_t room) {
  if (size > room) abort();
}

#define ALIAS(name, target) MR_EXPORT extern __typeof__(target) name __attribute__((alias(#target), copy(target)))
ALIAS(__read, read);
ALIAS(__write, write);
ALIAS(__send, send);
ALIAS(sendfile64, sendfile);

MR_EXPORT ssize_t __read_chk(int fd, void *buffer, size_t size, size_t room) {
  check_size(size, room);
  return read(fd, buffer, size);
}

MR_EXPORT ssize_t __recv_chk(int fd, void *buffer, size_t size, size_t room, int flags) {
  check_size(size, room);
  return recv(fd, buffer, size, flags);
}

MR_EXPORT ssize_t __recvfrom_chk(int fd, void *buffer, size_t size, size_t room, int flags, struct sockaddr *address,
                                 socklen_t *length) {
  check_size(size, room);
  return recvfrom(fd, buffer, size, flags, address, length);
}
