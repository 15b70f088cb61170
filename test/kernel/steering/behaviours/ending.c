// Behaviours about how connections end: resets, closes with data on the way, and what the other
// side notices.

#include "talk.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

static void reset(struct talk *talk) {
  const struct linger now = {.l_onoff = 1, .l_linger = 0};
  setsockopt(talk->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  close(talk->fd);
  talk->fd = -1;
}

static void see_reset(struct talk *talk) {
  char bytes[64];
  say(talk, "poll %s", polled(talk->fd, POLLIN | POLLRDHUP, TIMEOUT_MS));
  for (int i = 0; i < 3; i++)
    say(talk, "recv %s", outcome(recv(talk->fd, bytes, sizeof(bytes), 0)));
  say(talk, "send %s", outcome(send(talk->fd, "x", 1, MSG_NOSIGNAL)));
}

static void reset_by_client_client(struct talk *talk) {
  if (!dial(talk)) return;
  nudge(talk);
  if (await_nudge(talk)) reset(talk);
}

static void reset_by_client_server(struct talk *talk) {
  if (!await_nudge(talk)) return;
  nudge(talk);
  see_reset(talk);
}

static void reset_by_server_client(struct talk *talk) {
  if (!dial(talk)) return;
  nudge(talk);
  if (await_nudge(talk)) see_reset(talk);
}

static void reset_by_server_server(struct talk *talk) {
  if (!await_nudge(talk)) return;
  nudge(talk);
  // Not before the client has the answer.
  pause_ms(100);
  reset(talk);
}

// What came before the reset can still be read.
static void reset_after_data_client(struct talk *talk) {
  if (!dial(talk)) return;
  if (send(talk->fd, "0123456789", 10, MSG_NOSIGNAL) == 10 && await_nudge(talk)) reset(talk);
}

static void reset_after_data_server(struct talk *talk) {
  if (!await_queued(talk, 10)) return;
  nudge(talk);
  say(talk, "poll %s", polled(talk->fd, POLLRDHUP, TIMEOUT_MS));
  see_reset(talk);
}

// An end that closes while something waits to be read resets the connection.
static void close_unread(struct talk *talk) {
  if (!await_queued(talk, 1000)) return;
  say(talk, "close %s", outcome(close(talk->fd)));
  talk->fd = -1;
}

static void send_unread(struct talk *talk) {
  if (send_stream(talk, 1000, UPWARD)) see_reset(talk);
}

static void close_unread_client(struct talk *talk) {
  if (dial(talk)) close_unread(talk);
}

static void closed_unread_by_server_client(struct talk *talk) {
  if (dial(talk)) send_unread(talk);
}

static void linger(struct talk *talk, int seconds) {
  const struct linger some = {.l_onoff = 1, .l_linger = seconds};
  say(talk, "SO_LINGER %s", outcome(setsockopt(talk->fd, SOL_SOCKET, SO_LINGER, &some, sizeof(some))));
}

static void linger_client(struct talk *talk) {
  if (!dial(talk)) return;
  linger(talk, 5);
  if (!send_stream(talk, 1000000, UPWARD)) return;
  const long start_ms = now_ms();
  say(talk, "close %s", outcome(close(talk->fd)));
  say(talk, "%s", now_ms() - start_ms < 4000 ? "before its time" : "after its time");
  talk->fd = -1;
}

static void linger_server(struct talk *talk) {
  read_stream(talk, UPWARD);
}

// Offers more than fits while the server does not read, then closes: the close waits its whole
// second.
static void linger_stalled_client(struct talk *talk) {
  static uint8_t piece[65536];
  if (!dial(talk)) return;
  linger(talk, 1);
  const struct timeval brief = {.tv_usec = 300000};
  setsockopt(talk->fd, SOL_SOCKET, SO_SNDTIMEO, &brief, sizeof(brief));
  ssize_t sent;
  size_t position = 0;
  do {
    fill(piece, sizeof(piece), position, UPWARD);
    sent = send(talk->fd, piece, sizeof(piece), MSG_NOSIGNAL);
    if (sent > 0) position += (size_t)sent;
  } while (sent > 0);
  say(talk, "send %s", outcome(sent));
  const long start_ms = now_ms();
  say(talk, "close %s", outcome(close(talk->fd)));
  say(talk, "%s", now_ms() - start_ms < 900 ? "before its time" : "after its time");
  talk->fd = -1;
}

static void linger_stalled_server(struct talk *talk) {
  uint8_t piece[65536];
  uint64_t position = 0;
  bool is_right = true;
  ssize_t got;
  pause_ms(2500);
  while ((got = recv(talk->fd, piece, sizeof(piece), 0)) > 0) {
    is_right = is_right && is_filled(piece, (size_t)got, position, UPWARD);
    position += (uint64_t)got;
  }
  say(talk, "all that came was %s, then %s", is_right ? "right" : "WRONG", outcome(got));
}

static atomic_int broken_pipes;

static void count_broken_pipe(int signal) {
  (void)signal;
  broken_pipes++;
}

// The first send after the peer's close is answered by a reset, the second fails.
static void epipe_client(struct talk *talk) {
  char byte;
  broken_pipes = 0;
  signal(SIGPIPE, count_broken_pipe);
  if (!dial(talk)) return;
  say(talk, "recv %s", outcome(recv(talk->fd, &byte, 1, 0)));
  say(talk, "send %s", outcome(send(talk->fd, "x", 1, 0)));
  say(talk, "poll %s", polled(talk->fd, 0, TIMEOUT_MS));
  say(talk, "send %s", outcome(send(talk->fd, "x", 1, 0)));
  say(talk, "send quietly %s", outcome(send(talk->fd, "x", 1, MSG_NOSIGNAL)));
  say(talk, "%d SIGPIPE", broken_pipes);
  signal(SIGPIPE, SIG_DFL);
}

static void epipe_server(struct talk *talk) {
  say(talk, "close %s", outcome(close(talk->fd)));
  talk->fd = -1;
}

static void rdhup_client(struct talk *talk) {
  char byte;
  if (!dial(talk)) return;
  say(talk, "poll %s", polled(talk->fd, POLLRDHUP, TIMEOUT_MS));
  say(talk, "poll %s", polled(talk->fd, POLLIN | POLLOUT | POLLRDHUP, TIMEOUT_MS));
  say(talk, "recv %s", outcome(recv(talk->fd, &byte, 1, 0)));
  say(talk, "shutdown %s", outcome(shutdown(talk->fd, SHUT_WR)));
  say(talk, "poll %s", polled(talk->fd, POLLIN | POLLRDHUP, TIMEOUT_MS));
}

static void rdhup_server(struct talk *talk) {
  say(talk, "shutdown %s", outcome(shutdown(talk->fd, SHUT_WR)));
  read_stream(talk, UPWARD);
}

// The client neither reads nor writes any more; what the server still sends is answered by a reset.
static void shutdown_both_client(struct talk *talk) {
  char byte;
  if (!dial(talk)) return;
  nudge(talk);
  if (!await_nudge(talk)) return;
  say(talk, "shutdown %s", outcome(shutdown(talk->fd, SHUT_RDWR)));
  say(talk, "recv %s", outcome(recv(talk->fd, &byte, 1, 0)));
  say(talk, "send %s", outcome(send(talk->fd, "x", 1, MSG_NOSIGNAL)));
  say(talk, "poll %s", polled(talk->fd, POLLIN | POLLOUT | POLLRDHUP, 0));
  // Until the server's data was refused the socket must not go away: its close would be another
  // behaviour.
  pause_ms(600);
}

static void shutdown_both_server(struct talk *talk) {
  char byte;
  if (!await_nudge(talk)) return;
  nudge(talk);
  say(talk, "recv %s", outcome(recv(talk->fd, &byte, 1, 0)));
  // The client has looked at its own end by then.
  pause_ms(200);
  say(talk, "send %s", outcome(send(talk->fd, "x", 1, MSG_NOSIGNAL)));
  say(talk, "poll %s", polled(talk->fd, 0, TIMEOUT_MS));
  say(talk, "send %s", outcome(send(talk->fd, "x", 1, MSG_NOSIGNAL)));
}

const struct behaviour ending_behaviours[] = {
    {"reset-by-client", reset_by_client_client, reset_by_client_server, false},
    {"reset-by-server", reset_by_server_client, reset_by_server_server, false},
    {"reset-after-data", reset_after_data_client, reset_after_data_server, false},
    {"close-unread", close_unread_client, send_unread, false},
    {"closed-unread-by-server", closed_unread_by_server_client, close_unread, false},
    {"linger", linger_client, linger_server, false},
    {"linger-stalled", linger_stalled_client, linger_stalled_server, false},
    {"epipe", epipe_client, epipe_server, false},
    {"rdhup", rdhup_client, rdhup_server, false},
    {"shutdown-both", shutdown_both_client, shutdown_both_server, false},
    {0},
};
