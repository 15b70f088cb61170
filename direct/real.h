// The functions of libc that the library stands in front of.
#ifndef MILLRACE_DIRECT_REAL_H
#define MILLRACE_DIRECT_REAL_H

#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

// Name, result, parameters.
#define MR_REALS(X)                                                                                                    \
  X(read, ssize_t, (int, void *, size_t))                                                                              \
  X(write, ssize_t, (int, const void *, size_t))                                                                       \
  X(readv, ssize_t, (int, const struct iovec *, int))                                                                  \
  X(writev, ssize_t, (int, const struct iovec *, int))                                                                 \
  X(send, ssize_t, (int, const void *, size_t, int))                                                                   \
  X(recv, ssize_t, (int, void *, size_t, int))                                                                         \
  X(sendto, ssize_t, (int, const void *, size_t, int, const struct sockaddr *, socklen_t))                             \
  X(recvfrom, ssize_t, (int, void *, size_t, int, struct sockaddr *, socklen_t *))                                     \
  X(sendmsg, ssize_t, (int, const struct msghdr *, int))                                                               \
  X(recvmsg, ssize_t, (int, struct msghdr *, int))                                                                     \
  X(sendmmsg, int, (int, struct mmsghdr *, unsigned int, int))                                                         \
  X(recvmmsg, int, (int, struct mmsghdr *, unsigned int, int, struct timespec *))                                      \
  X(sendfile, ssize_t, (int, int, off_t *, size_t))                                                                    \
  X(splice, ssize_t, (int, off_t *, int, off_t *, size_t, unsigned int))                                               \
  X(socket, int, (int, int, int))                                                                                      \
  X(connect, int, (int, const struct sockaddr *, socklen_t))                                                           \
  X(listen, int, (int, int))                                                                                           \
  X(accept, int, (int, struct sockaddr *, socklen_t *))                                                                \
  X(accept4, int, (int, struct sockaddr *, socklen_t *, int))                                                          \
  X(shutdown, int, (int, int))                                                                                         \
  X(setsockopt, int, (int, int, int, const void *, socklen_t))                                                         \
  X(getsockopt, int, (int, int, int, void *, socklen_t *))                                                             \
  X(close, int, (int))                                                                                                 \
  X(dup, int, (int))                                                                                                   \
  X(dup2, int, (int, int))                                                                                             \
  X(dup3, int, (int, int, int))                                                                                        \
  X(fcntl, int, (int, int, ...))                                                                                       \
  X(ioctl, int, (int, unsigned long, ...))                                                                             \
  X(poll, int, (struct pollfd *, nfds_t, int))                                                                         \
  X(ppoll, int, (struct pollfd *, nfds_t, const struct timespec *, const sigset_t *))                                  \
  X(select, int, (int, fd_set *, fd_set *, fd_set *, struct timeval *))                                                \
  X(pselect, int, (int, fd_set *, fd_set *, fd_set *, const struct timespec *, const sigset_t *))                      \
  X(epoll_create, int, (int))                                                                                          \
  X(epoll_create1, int, (int))                                                                                         \
  X(epoll_ctl, int, (int, int, int, struct epoll_event *))                                                             \
  X(epoll_wait, int, (int, struct epoll_event *, int, int))                                                            \
  X(epoll_pwait, int, (int, struct epoll_event *, int, int, const sigset_t *))                                         \
  X(syscall, long, (long, ...))

// Not in every libc that programs have. To ask for one that is not there allocates memory.
#define MR_OPTIONAL_REALS(X)                                                                                           \
  X(close_range, int, (unsigned int, unsigned int, int))                                                               \
  X(epoll_pwait2, int, (int, struct epoll_event *, int, const struct timespec *, const sigset_t *))                    \
  X(_Fork, pid_t, (void))

struct mr_reals {
#define MR_MEMBER(name, result, parameters) result(*name) parameters;
  MR_REALS(MR_MEMBER)
  MR_OPTIONAL_REALS(MR_MEMBER)
#undef MR_MEMBER
};

extern struct mr_reals real;

#endif
