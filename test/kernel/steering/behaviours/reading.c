// Behaviours about learning that data came, and about reading it in unusual ways.

#include "talk.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

// Long enough that an event that is to come has come.
enum { QUIET_MS = 150, OFFERED_BYTES = 48 << 20 };

static void send_text(struct talk *talk, const char *text) {
  const ssize_t sent = send(talk->fd, text, strlen(text), MSG_NOSIGNAL);
  if (sent != (ssize_t)strlen(text)) say(talk, "send %s", outcome(sent));
}

static void recv_text(struct talk *talk, size_t size_bytes, int flags) {
  char text[256] = "";
  const ssize_t got = recv(talk->fd, text, size_bytes, flags);
  if (got < 0)
    say(talk, "recv %s", name_of_error(errno));
  else
    say(talk, "recv '%.*s'", (int)got, text);
}

// Keeps the connection open until the client closes it.
static void await_close(struct talk *talk) {
  char bytes[64];
  ssize_t got;
  while ((got = recv(talk->fd, bytes, sizeof(bytes), 0)) > 0) {
  }
  say(talk, "recv %s", outcome(got));
}

static void send_hello(struct talk *talk) {
  send_text(talk, "hello world");
  await_close(talk);
}

static void peek_client(struct talk *talk) {
  if (!dial(talk) || !await_queued(talk, 11)) return;
  recv_text(talk, 5, MSG_PEEK);
  recv_text(talk, 64, MSG_PEEK);
  recv_text(talk, 6, 0);
  recv_text(talk, 64, MSG_PEEK);
  recv_text(talk, 64, 0);
  recv_text(talk, 64, MSG_PEEK | MSG_DONTWAIT);
}

static void fionread_client(struct talk *talk) {
  int queued = -1;
  if (!dial(talk) || !await_queued(talk, 11)) return;
  ioctl(talk->fd, FIONREAD, &queued);
  say(talk, "%d bytes wait", queued);
  recv_text(talk, 5, 0);
  ioctl(talk->fd, FIONREAD, &queued);
  say(talk, "%d bytes wait", queued);
}

static void say_epoll(struct talk *talk, int poller, int timeout_ms) {
  struct epoll_event event = {0};
  const int ready = epoll_wait(poller, &event, 1, timeout_ms);
  say(talk, "epoll %s%s%s%s", ready == 0 ? "nothing" : "", event.events & EPOLLIN ? "IN" : "",
      event.events & EPOLLOUT ? "OUT" : "", event.events & EPOLLRDHUP ? "RDHUP" : "");
}

static int watch(struct talk *talk, uint32_t events) {
  struct epoll_event event = {.events = events, .data.fd = talk->fd};
  const int poller = epoll_create1(EPOLL_CLOEXEC);
  epoll_ctl(poller, EPOLL_CTL_ADD, talk->fd, &event);
  return poller;
}

static void epoll_client(struct talk *talk, uint32_t edge) {
  if (!dial(talk)) return;
  const int poller = watch(talk, EPOLLIN | EPOLLRDHUP | edge);
  say_epoll(talk, poller, QUIET_MS);
  nudge(talk);
  if (!await_queued(talk, 11)) return;
  say_epoll(talk, poller, TIMEOUT_MS);
  recv_text(talk, 5, 0);
  say_epoll(talk, poller, QUIET_MS);
  nudge(talk);
  if (!await_queued(talk, 17)) return;
  say_epoll(talk, poller, TIMEOUT_MS);
  recv_text(talk, 64, 0);
  say_epoll(talk, poller, QUIET_MS);
  nudge(talk);
  say_epoll(talk, poller, TIMEOUT_MS);
  close(poller);
}

static void epoll_level_client(struct talk *talk) {
  epoll_client(talk, 0);
}

static void epoll_edge_client(struct talk *talk) {
  epoll_client(talk, EPOLLET);
}

static void epoll_server(struct talk *talk) {
  for (int i = 0; i < 2; i++) {
    if (!await_nudge(talk)) return;
    send_text(talk, "hello world");
  }
  if (!await_nudge(talk)) return;
  shutdown(talk->fd, SHUT_WR);
  await_close(talk);
}

// Writes until nothing fits, and goes on at the event that there is room.
static void epoll_out_client(struct talk *talk, uint32_t edge) {
  static uint8_t piece[65536];
  if (!dial(talk)) return;
  const int poller = watch(talk, EPOLLOUT | edge);
  fcntl(talk->fd, F_SETFL, O_NONBLOCK);
  size_t position = 0;
  unsigned waits = 0;
  while (position < OFFERED_BYTES) {
    const size_t rest = OFFERED_BYTES - position;
    const size_t wanted = rest < sizeof(piece) ? rest : sizeof(piece);
    fill(piece, wanted, position, UPWARD);
    const ssize_t sent = send(talk->fd, piece, wanted, MSG_NOSIGNAL);
    if (sent > 0) {
      position += (size_t)sent;
      continue;
    }
    struct epoll_event event;
    if (errno != EAGAIN || epoll_wait(poller, &event, 1, TIMEOUT_MS) != 1) {
      say(talk, "stuck with %s", name_of_error(errno));
      break;
    }
    waits++;
  }
  say(talk, "%s, %zu bytes sent", waits > 0 ? "waited for room" : "never waited", position);
  close(poller);
}

static void epoll_out_level_client(struct talk *talk) {
  epoll_out_client(talk, 0);
}

static void epoll_out_edge_client(struct talk *talk) {
  epoll_out_client(talk, EPOLLET);
}

// Reads nothing before the sender has filled everything there is.
static void epoll_out_server(struct talk *talk) {
  int queued = 0, earlier = -1;
  for (long end_ms = now_ms() + TIMEOUT_MS; now_ms() < end_ms && queued != earlier; pause_ms(250)) {
    earlier = queued;
    ioctl(talk->fd, FIONREAD, &queued);
  }
  read_stream(talk, UPWARD);
}

static void rcvtimeo_client(struct talk *talk) {
  const struct timeval brief = {.tv_usec = 200000};
  if (!dial(talk)) return;
  setsockopt(talk->fd, SOL_SOCKET, SO_RCVTIMEO, &brief, sizeof(brief));
  const long start_ms = now_ms();
  recv_text(talk, 64, 0);
  const long waited_ms = now_ms() - start_ms;
  say(talk, "%s", waited_ms >= 190 && waited_ms < 2000 ? "in time" : "NOT in time");
  limit_waits(talk->fd);
  nudge(talk);
  if (await_queued(talk, 11)) recv_text(talk, 64, 0);
}

static void rcvtimeo_server(struct talk *talk) {
  if (await_nudge(talk)) send_hello(talk);
}

static void waitall_client(struct talk *talk) {
  uint8_t bytes[4000];
  if (!dial(talk)) return;
  ssize_t got = recv(talk->fd, bytes, sizeof(bytes), MSG_WAITALL);
  say(talk, "recv %s %s", outcome(got), got > 0 && is_filled(bytes, (size_t)got, 0, DOWNWARD) ? "right" : "WRONG");
  got = recv(talk->fd, bytes, sizeof(bytes), MSG_WAITALL);
  say(talk, "recv %s %s", outcome(got), got > 0 && is_filled(bytes, (size_t)got, 4000, DOWNWARD) ? "right" : "WRONG");
  say(talk, "recv %s", outcome(recv(talk->fd, bytes, sizeof(bytes), MSG_WAITALL)));
}

static void waitall_server(struct talk *talk) {
  uint8_t bytes[500];
  for (uint64_t position = 0; position < 4500; position += sizeof(bytes)) {
    fill(bytes, sizeof(bytes), position, DOWNWARD);
    if (send(talk->fd, bytes, sizeof(bytes), MSG_NOSIGNAL) != sizeof(bytes)) say(talk, "send %s", name_of_error(errno));
    pause_ms(30);
  }
}

static void rcvlowat_client(struct talk *talk) {
  const int low = 15;
  if (!dial(talk)) return;
  say(talk, "SO_RCVLOWAT %s", outcome(setsockopt(talk->fd, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low))));
  nudge(talk);
  if (!await_queued(talk, 11)) return;
  say(talk, "poll %s", polled(talk->fd, POLLIN, QUIET_MS));
  nudge(talk);
  say(talk, "poll %s", polled(talk->fd, POLLIN, TIMEOUT_MS));
  recv_text(talk, 64, 0);
}

static void rcvlowat_server(struct talk *talk) {
  for (int i = 0; i < 2; i++) {
    if (!await_nudge(talk)) return;
    send_text(talk, "hello world");
  }
  await_close(talk);
}

static void urgent_client(struct talk *talk) {
  if (!dial(talk)) return;
  say(talk, "poll %s", polled(talk->fd, POLLPRI, 1000));
  char byte = '-';
  const ssize_t got = recv(talk->fd, &byte, 1, MSG_OOB);
  say(talk, "recv urgent %s '%c'", outcome(got), byte);
  // Reads stop at the mark; what counts is all of them together.
  char text[64] = "";
  size_t length = 0;
  while (strcmp(polled(talk->fd, POLLIN, 300), "nothing") != 0 && length < sizeof(text)) {
    const ssize_t more = recv(talk->fd, text + length, sizeof(text) - length, 0);
    if (more <= 0) break;
    length += (size_t)more;
  }
  say(talk, "the rest is '%.*s'", (int)length, text);
}

static void urgent_server(struct talk *talk) {
  send_text(talk, "ab");
  say(talk, "send urgent %s", outcome(send(talk->fd, "!", 1, MSG_OOB | MSG_NOSIGNAL)));
  send_text(talk, "cd");
  await_close(talk);
}

static void first_from_client_client(struct talk *talk) {
  if (!dial(talk)) return;
  send_text(talk, "first");
  recv_text(talk, 64, 0);
}

static void first_from_client_server(struct talk *talk) {
  recv_text(talk, 64, 0);
  send_text(talk, "second");
}

static void first_from_server_client(struct talk *talk) {
  if (!dial(talk)) return;
  recv_text(talk, 64, 0);
  send_text(talk, "second");
}

static void first_from_server_server(struct talk *talk) {
  send_text(talk, "first");
  recv_text(talk, 64, 0);
}

static void first_from_both_client(struct talk *talk) {
  if (!dial(talk)) return;
  send_text(talk, "from the client");
  recv_text(talk, 15, MSG_WAITALL);
}

static void first_from_both_server(struct talk *talk) {
  send_text(talk, "from the server");
  recv_text(talk, 15, MSG_WAITALL);
}

const struct behaviour reading_behaviours[] = {
    {"peek", peek_client, send_hello, false},
    {"fionread", fionread_client, send_hello, false},
    {"epoll-level", epoll_level_client, epoll_server, false},
    {"epoll-edge", epoll_edge_client, epoll_server, false},
    {"epoll-level-out", epoll_out_level_client, epoll_out_server, false},
    {"epoll-edge-out", epoll_out_edge_client, epoll_out_server, false},
    {"rcvtimeo", rcvtimeo_client, rcvtimeo_server, false},
    {"waitall", waitall_client, waitall_server, false},
    {"rcvlowat", rcvlowat_client, rcvlowat_server, false},
    {"urgent", urgent_client, urgent_server, false},
    {"first-from-client", first_from_client_client, first_from_client_server, false},
    {"first-from-server", first_from_server_client, first_from_server_server, false},
    {"first-from-both", first_from_both_client, first_from_both_server, false},
    {0},
};
