// Behaviours about moving many bytes: in both directions, with half of the connection closed, and
// without copies.

#include "talk.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/errqueue.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <unistd.h>

enum { BULK_BYTES = 8 << 20, FILE_BYTES = 3 << 20, ZERO_COPY_BYTES = 1 << 20, ZERO_COPIES = 4 };

struct sending {
  struct talk talk;
  uint64_t seed;
};

static void *send_beside(void *argument) {
  struct sending *sending = argument;
  if (send_stream(&sending->talk, BULK_BYTES, sending->seed)) shutdown(sending->talk.fd, SHUT_WR);
  return NULL;
}

static void exchange(struct talk *talk, uint64_t outward, uint64_t inward) {
  struct sending sending = {.talk = {.fd = talk->fd}, .seed = outward};
  pthread_t thread;
  if (pthread_create(&thread, NULL, send_beside, &sending) != 0) exit(1);
  read_stream(talk, inward);
  pthread_join(thread, NULL);
  if (sending.talk.length > 0) say(talk, "%s", sending.talk.said);
}

static void bulk_client(struct talk *talk) {
  if (dial(talk)) exchange(talk, UPWARD, DOWNWARD);
}

static void bulk_server(struct talk *talk) {
  exchange(talk, DOWNWARD, UPWARD);
}

static void half_close_client(struct talk *talk) {
  if (!dial(talk) || !send_stream(talk, 100000, UPWARD)) return;
  say(talk, "shutdown %s", outcome(shutdown(talk->fd, SHUT_WR)));
  read_stream(talk, DOWNWARD);
}

static void half_close_server(struct talk *talk) {
  read_stream(talk, UPWARD);
  if (send_stream(talk, 3000000, DOWNWARD)) say(talk, "answered");
}

static void half_closed_by_server_client(struct talk *talk) {
  if (!dial(talk)) return;
  read_stream(talk, DOWNWARD);
  if (send_stream(talk, 3000000, UPWARD)) say(talk, "answered");
}

static void half_closed_by_server_server(struct talk *talk) {
  if (!send_stream(talk, 100000, DOWNWARD)) return;
  say(talk, "shutdown %s", outcome(shutdown(talk->fd, SHUT_WR)));
  read_stream(talk, UPWARD);
}

static void send_then_close_client(struct talk *talk) {
  if (!dial(talk) || !send_stream(talk, 1000000, UPWARD)) return;
  say(talk, "close %s", outcome(close(talk->fd)));
  talk->fd = -1;
}

static void send_then_close_server(struct talk *talk) {
  read_stream(talk, UPWARD);
}

static void server_sends_then_closes_client(struct talk *talk) {
  if (dial(talk)) read_stream(talk, DOWNWARD);
}

static void server_sends_then_closes_server(struct talk *talk) {
  if (!send_stream(talk, 1000000, DOWNWARD)) return;
  say(talk, "close %s", outcome(close(talk->fd)));
  talk->fd = -1;
}

static void send_file(struct talk *talk, uint64_t seed) {
  const int file = stream_file(FILE_BYTES, seed);
  size_t total = 0;
  ssize_t sent;
  while ((sent = sendfile(talk->fd, file, NULL, FILE_BYTES)) > 0)
    total += (size_t)sent;
  say(talk, "sendfile %zu bytes, then %s", total, outcome(sent));
  close(file);
}

static void sendfile_client(struct talk *talk) {
  if (!dial(talk)) return;
  send_file(talk, UPWARD);
  shutdown(talk->fd, SHUT_WR);
  read_stream(talk, DOWNWARD);
}

static void sendfile_server(struct talk *talk) {
  read_stream(talk, UPWARD);
  send_file(talk, DOWNWARD);
}

static void splice_out(struct talk *talk, uint64_t seed) {
  const int file = stream_file(FILE_BYTES, seed);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) exit(1);
  size_t total = 0;
  ssize_t taken, sent = 0;
  while ((taken = splice(file, NULL, ends[1], NULL, 65536, 0)) > 0) {
    for (; taken > 0; taken -= sent, total += (size_t)sent) {
      sent = splice(ends[0], NULL, talk->fd, NULL, (size_t)taken, SPLICE_F_MORE);
      if (sent <= 0) break;
    }
    if (sent <= 0) break;
  }
  say(talk, "spliced %zu bytes out", total);
  close(ends[0]);
  close(ends[1]);
  close(file);
}

static void splice_in(struct talk *talk, uint64_t seed) {
  uint8_t piece[65536];
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) exit(1);
  size_t total = 0;
  bool is_right = true;
  ssize_t moved;
  while ((moved = splice(talk->fd, NULL, ends[1], NULL, sizeof(piece), SPLICE_F_MOVE)) > 0) {
    for (ssize_t left = moved; left > 0;) {
      const ssize_t got = read(ends[0], piece, sizeof(piece));
      if (got <= 0) exit(1);
      is_right = is_right && is_filled(piece, (size_t)got, total, seed);
      total += (size_t)got;
      left -= got;
    }
  }
  say(talk, "spliced %zu bytes in, %s, then %s", total, is_right ? "right" : "WRONG", outcome(moved));
  close(ends[0]);
  close(ends[1]);
}

static void splice_client(struct talk *talk) {
  if (!dial(talk)) return;
  splice_out(talk, UPWARD);
  shutdown(talk->fd, SHUT_WR);
  splice_in(talk, DOWNWARD);
}

static void splice_server(struct talk *talk) {
  splice_in(talk, UPWARD);
  splice_out(talk, DOWNWARD);
}

// The kernel may tell of several sends in one message.
static void await_completions(struct talk *talk, unsigned expected) {
  unsigned completed = 0;
  const long end_ms = now_ms() + TIMEOUT_MS;
  while (completed < expected && now_ms() < end_ms) {
    char control[256];
    struct msghdr message = {.msg_control = control, .msg_controllen = sizeof(control)};
    if (recvmsg(talk->fd, &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) {
      struct pollfd one = {.fd = talk->fd};
      poll(&one, 1, 50);
      continue;
    }
    const struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    const struct sock_extended_err *told = header ? (const void *)CMSG_DATA(header) : NULL;
    if (!told || told->ee_origin != SO_EE_ORIGIN_ZEROCOPY || told->ee_errno != 0) {
      say(talk, "something else in the error queue");
      return;
    }
    completed += told->ee_data - told->ee_info + 1;
  }
  say(talk, "%u of %u sends completed", completed, expected);
}

static void zerocopy_client(struct talk *talk) {
  if (!dial(talk)) return;
  const int on = 1;
  uint8_t *bytes = malloc(ZERO_COPY_BYTES);
  if (!bytes) exit(1);
  fill(bytes, ZERO_COPY_BYTES, 0, UPWARD);
  say(talk, "SO_ZEROCOPY %s", outcome(setsockopt(talk->fd, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof(on))));
  unsigned sends = 0;
  for (size_t position = 0; position < ZERO_COPY_BYTES; sends++) {
    const size_t wanted = ZERO_COPY_BYTES / ZERO_COPIES;
    const size_t rest = ZERO_COPY_BYTES - position;
    const ssize_t sent = send(talk->fd, bytes + position, rest < wanted ? rest : wanted, MSG_ZEROCOPY | MSG_NOSIGNAL);
    if (sent < 0) {
      say(talk, "send %s", name_of_error(errno));
      break;
    }
    position += (size_t)sent;
  }
  shutdown(talk->fd, SHUT_WR);
  await_completions(talk, sends);
  await_nudge(talk);
  free(bytes);
}

static void zerocopy_server(struct talk *talk) {
  read_stream(talk, UPWARD);
  nudge(talk);
}

const struct behaviour stream_behaviours[] = {
    {"bulk", bulk_client, bulk_server, false},
    {"half-close", half_close_client, half_close_server, false},
    {"half-closed-by-server", half_closed_by_server_client, half_closed_by_server_server, false},
    {"send-then-close", send_then_close_client, send_then_close_server, false},
    {"server-sends-then-closes", server_sends_then_closes_client, server_sends_then_closes_server, false},
    {"sendfile", sendfile_client, sendfile_server, false},
    {"splice", splice_client, splice_server, false},
    {"zerocopy", zerocopy_client, zerocopy_server, false},
    {0},
};
