// Signals while a call waits: without SA_RESTART it ends, with it goes on where the kernel does.
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "fuzz.h"

enum { SIGNAL_EVERY_US = 2000 };

static volatile int notes_to = -1;

static void stop_signals(void) {
  struct itimerval none = {0};
  setitimer(ITIMER_REAL, &none, NULL);
}

static void on_alarm(int number) {
  (void)number;
  int error = errno;
  if (notes_to >= 0) {
    static const struct answer note = {.result = 0};
    send_answer(notes_to, &note);
    notes_to = -1;
    // What was read so far would be returned at the next one.
    stop_signals();
  }
  errno = error;
}

// The signal comes again and again, so that one of them comes while the call waits.
static void start_signals(int flags) {
  struct sigaction action = {.sa_handler = on_alarm, .sa_flags = flags};
  sigaction(SIGALRM, &action, NULL);
  struct itimerval often = {{0, SIGNAL_EVERY_US}, {0, SIGNAL_EVERY_US}};
  setitimer(ITIMER_REAL, &often, NULL);
}

static int wait_by(uint32_t by, int fd) {
  struct pollfd one = {.fd = fd, .events = POLLIN};
  fd_set readable;
  FD_ZERO(&readable);
  FD_SET(fd, &readable);
  switch (by) {
  case BY_POLL:
    return poll(&one, 1, -1);
  case BY_PPOLL:
    return ppoll(&one, 1, NULL, NULL);
  case BY_SELECT:
    return select(fd + 1, &readable, NULL, NULL, NULL);
  case BY_PSELECT:
    return pselect(fd + 1, &readable, NULL, NULL, NULL, NULL);
  default:
    break;
  }
  int set = epoll_create1(EPOLL_CLOEXEC);
  struct epoll_event event = {.events = EPOLLIN};
  epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
  int result = epoll_wait(set, &event, 1, -1);
  int error = errno;
  close(set);
  errno = error;
  return result;
}

// `place` 0: a read; 1: a wait by the call that `by` names. These are never restarted.
void make_interrupted(const struct order *order, int fd, struct answer *answer) {
  static const char *const names[] = {"poll", "ppoll", "select", "pselect", "epoll_wait"};
  say(answer, "a signal%s during ", order->other % 2 == 1 ? " that restarts" : "");
  start_signals(order->other % 2 == 1 ? SA_RESTART : 0);
  if (order->place == 0) {
    make_read(order, fd, answer);
    stop_signals();
    return;
  }
  int result = wait_by(order->by, fd);
  int error = errno;
  stop_signals();
  errno = error;
  say(answer, "%s(%u)", names[order->by], order->handle);
  say_result(answer, result);
}

// Tells the driver of the first signal; only then come the bytes.
void make_restarted(const struct end *end, const struct order *order, int fd, struct answer *answer) {
  notes_to = end->answers;
  start_signals(SA_RESTART);
  make_read(order, fd, answer);
  stop_signals();
}
