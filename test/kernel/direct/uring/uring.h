// Ways to send and to receive, so that one program can be each.
#ifndef MILLRACE_TEST_URING_H
#define MILLRACE_TEST_URING_H

#include <stddef.h>
#include <sys/types.h>

struct way {
  void (*prepare)(void);
  ssize_t (*send)(int fd, const void *bytes, size_t size);
  ssize_t (*receive)(int fd, void *bytes, size_t size);
};

// By send and recv.
extern const struct way by_sockets;
// Through an io_uring that syscall(2) makes.
extern const struct way by_syscall;
// Through one of liburing, which has instructions of its own for its system calls.
extern const struct way by_liburing;

void fail(const char *what, int error) __attribute__((noreturn));

#endif
