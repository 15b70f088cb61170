// Waiting for what must have arrived, and the calls that wait: poll, select and epoll.
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "fuzz.h"

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int64_t now_ms(void) {
  return now_ns() / 1000000;
}

static bool has_arrived(int fd, const struct need *need) {
  int bytes = 0;
  if (need->bytes > 0 && (ioctl(fd, FIONREAD, &bytes) != 0 || (uint32_t)bytes < need->bytes)) return false;
  short wanted = (need->flags & NEED_END ? POLLRDHUP : 0) | (need->flags & NEED_HANGUP ? POLLHUP : 0);
  if (wanted == 0) return true;
  struct pollfd one = {.fd = fd, .events = wanted};
  poll(&one, 1, 0);
  return (one.revents & wanted) == wanted;
}

static bool is_closed(int fd) {
  struct tcp_info info;
  socklen_t size = sizeof(info);
  return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 || info.tcpi_state == TCP_CLOSE;
}

bool wait_for(int fd, const struct need *need) {
  int64_t deadline = now_ms() + DEADLINE_MS;
  for (int round = 0; !has_arrived(fd, need); round++) {
    if (now_ms() > deadline) return false;
    if (round < 20)
      sched_yield();
    else
      usleep(50);
  }
  // The last acknowledgement changes what some calls say; it is not waited for by any call.
  for (int round = 0; round < 1000 && (need->flags & NEED_CLOSED) != 0 && !is_closed(fd); round++)
    usleep(200);
  return true;
}

static int fd_of(const struct end *end, uint32_t handle) {
  if (handle == HANDLE_PIPE) return end->pipe[0];
  if (handle == HANDLE_NESTED) return end->set[1];
  return end->handle[handle];
}

static void say_poll(const struct order *order, const struct pollfd *list, const uint32_t *handles, int count,
                     int result, struct answer *answer) {
  static const char *const names[] = {"poll", "ppoll", "select", "pselect", ""};
  say(answer, "%s(", names[order->by]);
  for (int i = 0; i < count; i++)
    say(answer, "%s%u", i == 0 ? "" : " ", handles[i]);
  say(answer, ", ");
  say_events(answer, (uint32_t)order->flags);
  say(answer, ", %d)", order->timeout_ms);
  say_result(answer, result);
  for (int i = 0; i < count && result > 0; i++) {
    if (list[i].revents == 0) continue;
    say(answer, " %u:", handles[i]);
    say_events(answer, (uint16_t)list[i].revents);
  }
}

// By select and pselect, told as poll would.
static int select_as_poll(const struct order *order, struct pollfd *list, int count) {
  fd_set sets[3];
  int highest = 0;
  for (int i = 0; i < 3; i++)
    FD_ZERO(&sets[i]);
  for (int i = 0; i < count; i++) {
    if (list[i].fd > highest) highest = list[i].fd;
    if ((list[i].events & POLLIN) != 0) FD_SET(list[i].fd, &sets[0]);
    if ((list[i].events & POLLOUT) != 0) FD_SET(list[i].fd, &sets[1]);
    FD_SET(list[i].fd, &sets[2]);
  }
  int ms = order->timeout_ms;
  struct timeval time = {.tv_usec = ms * 1000L};
  struct timespec precise = {.tv_nsec = ms * 1000000L};
  int result = order->by == BY_SELECT
                   ? select(highest + 1, &sets[0], &sets[1], &sets[2], ms < 0 ? NULL : &time)
                   : pselect(highest + 1, &sets[0], &sets[1], &sets[2], ms < 0 ? NULL : &precise, NULL);
  for (int i = 0; i < count && result >= 0; i++) {
    list[i].revents =
        (short)((FD_ISSET(list[i].fd, &sets[0]) ? POLLIN : 0) | (FD_ISSET(list[i].fd, &sets[1]) ? POLLOUT : 0) |
                (FD_ISSET(list[i].fd, &sets[2]) ? POLLPRI : 0));
  }
  return result;
}

// The bits of `other` say which handles.
void make_poll(const struct end *end, const struct order *order, struct answer *answer) {
  struct pollfd list[32];
  uint32_t handles[32];
  int count = 0;
  for (uint32_t handle = 0; handle < 32; handle++) {
    if ((order->other >> handle & 1) == 0) continue;
    handles[count] = handle;
    list[count++] = (struct pollfd){.fd = fd_of(end, handle), .events = (short)order->flags};
  }
  struct timespec time = {.tv_nsec = order->timeout_ms * 1000000L};
  int result = 0;
  switch (order->by) {
  case BY_POLL:
    result = poll(list, (nfds_t)count, order->timeout_ms);
    break;
  case BY_PPOLL:
    result = ppoll(list, (nfds_t)count, order->timeout_ms < 0 ? NULL : &time, NULL);
    break;
  default:
    result = select_as_poll(order, list, count);
  }
  say_poll(order, list, handles, count, result, answer);
}

// `length` is the set, `by` the action.
void make_epoll_ctl(struct end *end, const struct order *order, struct answer *answer) {
  static const char *const names[] = {"", "ADD", "DEL", "MOD"};
  for (uint32_t i = 0; i < SETS; i++) {
    bool is_used = i == order->length || (i == 1 && order->handle == HANDLE_NESTED);
    if (is_used && end->set[i] < 0) end->set[i] = i == 0 ? epoll_create(1) : epoll_create1(0);
  }
  struct epoll_event event = {.events = (uint32_t)order->flags, .data.u32 = order->handle};
  int result = epoll_ctl(end->set[order->length], (int)order->by, fd_of(end, order->handle), &event);
  say(answer, "epoll_ctl(set %u, %s, %u, ", order->length, names[order->by], order->handle);
  say_events(answer, (uint32_t)order->flags);
  say(answer, ")");
  say_result(answer, result);
}

static int by_handle(const void *left, const void *right) {
  const struct epoll_event *one = left;
  const struct epoll_event *two = right;
  int difference = (int)one->data.u32 - (int)two->data.u32;
  return difference != 0 ? difference : (int)(one->events & 0xffff) - (int)(two->events & 0xffff);
}

// While direct connections have something to tell, the library asks the kernel for those that are
// not direct no more often than this.
static int64_t asked_ns; // or later

static void await_kernel_turn(void) {
  enum { KERNEL_EVERY_NS = 50000 };
  while (now_ns() - asked_ns <= KERNEL_EVERY_NS)
    sched_yield();
}

void make_epoll_wait(struct end *end, const struct order *order, struct answer *answer) {
  static const char *const names[] = {"epoll_wait", "epoll_pwait", "epoll_pwait2"};
  enum { MOST = 32 };
  struct epoll_event list[MOST];
  int set = end->set[order->length];
  struct timespec time = {.tv_nsec = order->timeout_ms * 1000000L};
  int result = 0;
  await_kernel_turn();
  switch (order->by) {
  case 0:
    result = epoll_wait(set, list, MOST, order->timeout_ms);
    break;
  case 1:
    result = epoll_pwait(set, list, MOST, order->timeout_ms, NULL);
    break;
  default:
    result = epoll_pwait2(set, list, MOST, order->timeout_ms < 0 ? NULL : &time, NULL);
  }
  say(answer, "%s(set %u, %d)", names[order->by], order->length, order->timeout_ms);
  say_result(answer, result);
  asked_ns = now_ns();
  // Which of several comes first is nobody's promise.
  if (result > 0) qsort(list, (size_t)result, sizeof(list[0]), by_handle);
  for (int i = 0; i < result; i++) {
    say(answer, " %u:", list[i].data.u32);
    say_events(answer, list[i].events);
  }
}
