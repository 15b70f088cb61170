// Functions that wait.
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <unistd.h>

#include "world.h"

typedef int (*poll_type)(struct pollfd *, nfds_t, int);
typedef int (*poll_chk_type)(struct pollfd *, nfds_t, int, size_t);
typedef int (*ppoll_type)(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *);
typedef int (*ppoll_chk_type)(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *, size_t);
typedef int (*select_type)(int, fd_set *, fd_set *, fd_set *, struct timeval *);
typedef int (*pselect_type)(int, fd_set *, fd_set *, fd_set *, const struct timespec *, const sigset_t *);
typedef int (*create_type)(int);
typedef int (*ctl_type)(int, int, int, struct epoll_event *);
typedef int (*wait_type)(int, struct epoll_event *, int, int);
typedef int (*pwait_type)(int, struct epoll_event *, int, int, const sigset_t *);
typedef int (*pwait2_type)(int, struct epoll_event *, int, const struct timespec *, const sigset_t *);

static const struct timespec at_once = {0, 0};

static int by_poll(struct world *world, struct pollfd *list, bool may_wait) {
  return FUNCTION(world, poll_type)(list, 1, may_wait ? -1 : 0);
}

static int by_poll_chk(struct world *world, struct pollfd *list, bool may_wait) {
  return FUNCTION(world, poll_chk_type)(list, 1, may_wait ? -1 : 0, sizeof(*list));
}

static int by_ppoll(struct world *world, struct pollfd *list, bool may_wait) {
  return FUNCTION(world, ppoll_type)(list, 1, may_wait ? NULL : &at_once, NULL);
}

static int by_ppoll_chk(struct world *world, struct pollfd *list, bool may_wait) {
  return FUNCTION(world, ppoll_chk_type)(list, 1, may_wait ? NULL : &at_once, NULL, sizeof(*list));
}

static int by_select(struct world *world, struct pollfd *list, bool may_wait) {
  fd_set readable;
  FD_ZERO(&readable);
  FD_SET(list->fd, &readable);
  struct timeval time = {0, 0};
  int count = FUNCTION(world, select_type)(list->fd + 1, &readable, NULL, NULL, may_wait ? NULL : &time);
  list->revents = FD_ISSET(list->fd, &readable) ? POLLIN : 0;
  return count;
}

static int by_pselect(struct world *world, struct pollfd *list, bool may_wait) {
  fd_set readable;
  FD_ZERO(&readable);
  FD_SET(list->fd, &readable);
  int count = FUNCTION(world, pselect_type)(list->fd + 1, &readable, NULL, NULL, may_wait ? NULL : &at_once, NULL);
  list->revents = FD_ISSET(list->fd, &readable) ? POLLIN : 0;
  return count;
}

static void poll_by(struct world *world, int (*by)(struct world *, struct pollfd *, bool)) {
  struct pollfd one = {.fd = world->fd, .events = POLLIN};
  check(by(world, &one, false) == 0, "nothing is there yet");
  peer_sends(world, SOME);
  check(by(world, &one, true) == 1 && one.revents == POLLIN, "bytes are there");
  take_rest(world);
  check(by(world, &one, false) == 0, "nothing is there any more");
}

static void try_poll(struct world *world) {
  poll_by(world, by_poll);
}
static void try_poll_chk(struct world *world) {
  poll_by(world, by_poll_chk);
}
static void try_ppoll(struct world *world) {
  poll_by(world, by_ppoll);
}
static void try_ppoll_chk(struct world *world) {
  poll_by(world, by_ppoll_chk);
}
static void try_select(struct world *world) {
  poll_by(world, by_select);
}
static void try_pselect(struct world *world) {
  poll_by(world, by_pselect);
}

// Edges and levels in one set, with the function that is tried in the place of the usual one.
static void use_set(struct world *world, int set, ctl_type ctl,
                    int (*wait)(struct world *, int, struct epoll_event *)) {
  struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u64 = 77};
  check(ctl(set, EPOLL_CTL_ADD, world->fd, &event) == 0, "EPOLL_CTL_ADD");
  check(wait(world, set, &event) == 0, "nothing is there yet");
  peer_sends(world, SOME);
  check(wait(world, set, &event) == 1 && event.events == EPOLLIN && event.data.u64 == 77, "bytes are there");
  check(wait(world, set, &event) == 0, "one edge");
  event.events = EPOLLIN | EPOLLOUT;
  check(ctl(set, EPOLL_CTL_MOD, world->fd, &event) == 0, "EPOLL_CTL_MOD");
  check(wait(world, set, &event) == 1 && event.events == (EPOLLIN | EPOLLOUT), "readable and writable");
  check(ctl(set, EPOLL_CTL_DEL, world->fd, &event) == 0, "EPOLL_CTL_DEL");
  check(wait(world, set, &event) == 0, "not in the set any more");
  take_rest(world);
  close(set);
}

static int usual_wait(struct world *world, int set, struct epoll_event *event) {
  (void)world;
  return epoll_wait(set, event, 1, 0);
}

static int by_wait(struct world *world, int set, struct epoll_event *event) {
  return FUNCTION(world, wait_type)(set, event, 1, 0);
}

static int by_pwait(struct world *world, int set, struct epoll_event *event) {
  return FUNCTION(world, pwait_type)(set, event, 1, 0, NULL);
}

static int by_pwait2(struct world *world, int set, struct epoll_event *event) {
  return FUNCTION(world, pwait2_type)(set, event, 1, &at_once, NULL);
}

static void try_create(struct world *world) {
  use_set(world, FUNCTION(world, create_type)(1), epoll_ctl, usual_wait);
}
static void try_create1(struct world *world) {
  use_set(world, FUNCTION(world, create_type)(EPOLL_CLOEXEC), epoll_ctl, usual_wait);
}
static void try_ctl(struct world *world) {
  use_set(world, epoll_create1(0), FUNCTION(world, ctl_type), usual_wait);
}
static void try_wait(struct world *world) {
  use_set(world, epoll_create1(0), epoll_ctl, by_wait);
}
static void try_pwait(struct world *world) {
  use_set(world, epoll_create1(0), epoll_ctl, by_pwait);
}
static void try_pwait2(struct world *world) {
  use_set(world, epoll_create1(0), epoll_ctl, by_pwait2);
}

const struct row waiting_rows[] = {
    {"poll", try_poll},
    {"__poll", try_poll},
    {"__poll_chk", try_poll_chk},
    {"ppoll", try_ppoll},
    {"__ppoll_chk", try_ppoll_chk},
    {"select", try_select},
    {"__select", try_select},
    {"pselect", try_pselect},
    {"epoll_create", try_create},
    {"epoll_create1", try_create1},
    {"epoll_ctl", try_ctl},
    {"epoll_wait", try_wait},
    {"epoll_pwait", try_pwait},
    {"epoll_pwait2", try_pwait2},
    {NULL, NULL},
};
