// The life of a descriptor: socket, accept, connect, dup, shutdown, close.
#include "calls.h"
#include "real.h"
#include "sets.h"

#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <unistd.h>

#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC 4
#endif
#ifndef CLOSE_RANGE_UNSHARE
#define CLOSE_RANGE_UNSHARE 2
#endif

#define ALIAS(name, target) MR_EXPORT extern __typeof__(target) name __attribute__((alias(#target), copy(target)))

// A child of vfork has our memory, but descriptors of its own: what it does to them is not ours.
static bool is_in_vfork(void) {
  return (int32_t)getpid() != atomic_load_explicit(&mr.pid, memory_order_relaxed);
}

void mr_pin_set_or_connection(int fd) {
  if (mr_kind_of(fd) == MR_SET) mr_pin_set(fd);
  mr_pin(fd);
}

MR_EXPORT int socket(int family, int type, int protocol) {
  mr_ensure_resolved();
  const int fd = real.socket(family, type, protocol);
  const bool is_tcp = (family == AF_INET || family == AF_INET6) && (type & 0xf) == SOCK_STREAM &&
                      (protocol == 0 || protocol == IPPROTO_TCP);
  // What the table has under this number was closed by libc itself, past the library.
  if (fd >= 0 && mr_kind_of(fd) != MR_NONE) mr_mistaken(fd);
  if (fd >= 0 && is_tcp) mr_track(fd, (type & SOCK_NONBLOCK) != 0);
  return fd;
}

static int accepted(int listener, int fd, bool is_nonblocking) {
  if (fd < 0 || mr.is_off) return fd;
  if (mr_kind_of(fd) != MR_NONE) mr_mistaken(fd);
  bool is_tcp = mr_kind_of(listener) == MR_CONNECTION;
  if (!is_tcp) {
    const int saved = errno;
    int protocol = 0;
    socklen_t size = sizeof(protocol);
    is_tcp = real.getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) == 0 && protocol == IPPROTO_TCP;
    errno = saved;
  }
  if (is_tcp) mr_track(fd, is_nonblocking);
  return fd;
}

MR_EXPORT int accept(int listener, struct sockaddr *address, socklen_t *length) {
  mr_ensure_resolved();
  return accepted(listener, real.accept(listener, address, length), false);
}

MR_EXPORT int accept4(int listener, struct sockaddr *address, socklen_t *length, int flags) {
  mr_ensure_resolved();
  return accepted(listener, real.accept4(listener, address, length, flags), (flags & SOCK_NONBLOCK) != 0);
}

// To another host, as far as one can see. The kernel's hook looks at such connects.
static bool is_elsewhere(const struct sockaddr *address, socklen_t length) {
  if (address == NULL || length < sizeof(sa_family_t)) return false;
  if (address->sa_family == AF_INET && length >= sizeof(struct sockaddr_in))
    return ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24 != IN_LOOPBACKNET;
  if (address->sa_family != AF_INET6 || length < sizeof(struct sockaddr_in6)) return false;
  return !IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)address)->sin6_addr);
}

MR_EXPORT int listen(int fd, int backlog) {
  mr_ensure_resolved();
  const int result = real.listen(fd, backlog);
  if (result == 0 && mr_kind_of(fd) == MR_CONNECTION && !is_in_vfork()) mr_listens(fd);
  return result;
}

MR_EXPORT int connect(int fd, const struct sockaddr *address, socklen_t length) {
  mr_ensure_resolved();
  // AF_UNSPEC ends a connection, so that the socket can have another.
  if (address != NULL && length >= sizeof(sa_family_t) && address->sa_family == AF_UNSPEC) mr_pin(fd);
  if (mr_kind_of(fd) == MR_CONNECTION && !is_in_vfork() && is_elsewhere(address, length)) mr_greet();
  return real.connect(fd, address, length);
}
ALIAS(__connect, connect);

MR_EXPORT int shutdown(int fd, int how) {
  struct mr_connection *connection = mr_begin(fd);
  if (connection == NULL) return real.shutdown(fd, how);
  const bool is_direct = mr_is_direct(connection);
  const bool is_last = how == SHUT_RDWR || (how == SHUT_WR ? connection->is_read_shut : connection->is_shut);
  if (is_direct && is_last) mr_bring_back(connection, fd);
  if (is_direct && how != SHUT_RD) {
    mr_shut_out(connection, fd, how == SHUT_RDWR);
    // Before the FIN: who sees that looks here.
    atomic_store(&connection->out->is_shut, 1);
  }
  // The FIN follows the bytes that are still on their way to TCP.
  const int result = is_direct && connection->wants_fin ? 0 : real.shutdown(fd, how);
  if (result == 0 && how != SHUT_RD) connection->is_shut = true;
  if (result == 0 && how != SHUT_WR) connection->is_read_shut = true;
  // Who sends to an end that is shut both ways has the kernel's own answer. After SHUT_RD alone
  // Linux still delivers.
  if (is_direct && connection->is_shut && connection->is_read_shut) atomic_store(&connection->in->is_gone, 1);
  if (is_direct) {
    atomic_store(&connection->kernel_news, 1);
    mr_ring(connection);
    if (mr_acquire(&mr.lock)) {
      mr_members_ready(connection);
      mr_release(&mr.lock);
    }
  }
  mr_leave(connection);
  return result;
}

// Closing

static void forget(int fd) {
  const enum mr_kind kind = mr_kind_of(fd);
  if (kind == MR_CONNECTION) mr_untrack(fd);
  if (kind == MR_SET && mr_acquire(&mr.lock)) {
    mr_close_set(fd);
    mr_release(&mr.lock);
  }
}

MR_EXPORT int close(int fd) {
  mr_ensure_resolved();
  const enum mr_kind kind = mr_kind_of(fd);
  if (kind == MR_NONE || is_in_vfork()) return real.close(fd);
  if (kind == MR_OWN) {
    errno = EBADF;
    return -1;
  }
  forget(fd);
  return real.close(fd);
}
ALIAS(__close, close);

MR_EXPORT int posix_close(int fd, int flags) {
  (void)flags;
  return close(fd);
}

static int close_piece(unsigned int first, unsigned int last, int flags) {
  if (first > last) return 0;
  if (real.close_range != NULL) return real.close_range(first, last, flags);
  return (int)real.syscall(436 /* close_range */, first, last, flags);
}

MR_EXPORT int close_range(unsigned int first, unsigned int last, int flags) {
  mr_ensure_resolved();
  if (first > last || (flags & CLOSE_RANGE_CLOEXEC) != 0 || is_in_vfork()) return close_piece(first, last, flags);
  // Threads with tables of their own: the library's table would be wrong for one of them.
  if ((flags & CLOSE_RANGE_UNSHARE) != 0) mr_pin_all();
  const uint32_t highest = atomic_load(&mr.highest_fd);
  unsigned int begin = first;
  for (unsigned int fd = first; fd <= last && fd <= highest; fd++) {
    const enum mr_kind kind = mr_kind_of((int)fd);
    if (kind == MR_CONNECTION || kind == MR_SET) forget((int)fd);
    if (kind != MR_OWN) continue;
    if (fd > begin) close_piece(begin, fd - 1, flags);
    begin = fd + 1;
  }
  return begin == 0 ? 0 : close_piece(begin, last, flags);
}

MR_EXPORT void closefrom(int lowest) {
  close_range(lowest < 0 ? 0 : (unsigned int)lowest, UINT_MAX, 0);
}

// Duplicates

static int duplicated(int fd, int copy) {
  if (copy < 0 || copy == fd) return copy;
  const enum mr_kind kind = mr_kind_of(fd);
  if (kind == MR_NONE || kind == MR_OWN) return copy;
  if (is_in_vfork()) {
    mr_pin_set_or_connection(fd);
    return copy;
  }
  if (kind == MR_CONNECTION) mr_alias(fd, copy);
  if (kind == MR_SET && mr_acquire(&mr.lock)) {
    struct mr_set *set = mr_set_of(fd);
    if (set != NULL) set->refs++;
    mr_set_entry(copy, MR_SET, set);
    mr_release(&mr.lock);
  }
  // Stdio is there, and what it reads and writes does not come by here.
  if (copy <= 2) mr_pin(copy);
  return copy;
}

// Makes place for a descriptor of the program.
static void vacate(int fd) {
  if (is_in_vfork()) return;
  if (mr_kind_of(fd) == MR_OWN) mr_relocate(fd);
  forget(fd);
}

MR_EXPORT int dup(int fd) {
  mr_ensure_resolved();
  return duplicated(fd, real.dup(fd));
}

MR_EXPORT int dup2(int fd, int copy) {
  mr_ensure_resolved();
  if (fd != copy && mr_kind_of(copy) != MR_NONE && real.fcntl(fd, F_GETFD) >= 0) vacate(copy);
  return duplicated(fd, real.dup2(fd, copy));
}
ALIAS(__dup2, dup2);

MR_EXPORT int dup3(int fd, int copy, int flags) {
  mr_ensure_resolved();
  if (fd != copy && mr_kind_of(copy) != MR_NONE && real.fcntl(fd, F_GETFD) >= 0) vacate(copy);
  return duplicated(fd, real.dup3(fd, copy, flags));
}

MR_EXPORT int fcntl(int fd, int command, ...) {
  mr_ensure_resolved();
  va_list arguments;
  va_start(arguments, command);
  void *argument = va_arg(arguments, void *);
  va_end(arguments);
  if (likely(mr_kind_of(fd) == MR_NONE)) return real.fcntl(fd, command, argument);
  if (command == F_SETOWN || command == F_SETSIG || command == F_SETOWN_EX ||
      (command == F_SETFL && ((uintptr_t)argument & O_ASYNC) != 0))
    mr_pin(fd);
  const int result = real.fcntl(fd, command, argument);
  if (result < 0) return result;
  if (command == F_DUPFD || command == F_DUPFD_CLOEXEC) return duplicated(fd, result);
  struct mr_connection *connection = command == F_SETFL ? mr_enter(fd) : NULL;
  if (connection != NULL) {
    connection->is_nonblocking = ((uintptr_t)argument & O_NONBLOCK) != 0;
    mr_leave(connection);
  }
  return result;
}
ALIAS(__fcntl, fcntl);
ALIAS(fcntl64, fcntl);
