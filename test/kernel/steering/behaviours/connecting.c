// Behaviours about how connections come to be, and what each end says about both addresses.

#include "talk.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

static void say_own_addresses(struct talk *talk) {
  struct sockaddr_storage local = {0}, peer = {0};
  socklen_t length = sizeof(local);
  char text[80];
  const int local_result = getsockname(talk->fd, (struct sockaddr *)&local, &length);
  say(talk, "local %s", local_result < 0 ? name_of_error(errno) : name_of_address(&local, text));
  length = sizeof(peer);
  const int peer_result = getpeername(talk->fd, (struct sockaddr *)&peer, &length);
  say(talk, "peer %s", peer_result < 0 ? name_of_error(errno) : name_of_address(&peer, text));
}

static void addresses_client(struct talk *talk) {
  if (!dial(talk)) return;
  say_own_addresses(talk);
  await_nudge(talk);
}

// The source is chosen before the connect: a socket bound to one of the host's addresses.
static void addresses_bound_client(struct talk *talk) {
  struct sockaddr_storage local = {0};
  socklen_t length = sizeof(local);
  // Another socket tells which address that is.
  talk->fd = socket(talk->to.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  connect(talk->fd, (struct sockaddr *)&talk->to, length_of(&talk->to));
  getsockname(talk->fd, (struct sockaddr *)&local, &length);
  close(talk->fd);
  local = at_port(&local, 0);
  talk->fd = open_socket(talk);
  say(talk, "bind %s", outcome(bind(talk->fd, (struct sockaddr *)&local, length)));
  struct sockaddr_storage bound = {0}, used = {0};
  length = sizeof(bound);
  getsockname(talk->fd, (struct sockaddr *)&bound, &length);
  say(talk, "connect %s", outcome(connect(talk->fd, (struct sockaddr *)&talk->to, length_of(&talk->to))));
  length = sizeof(used);
  getsockname(talk->fd, (struct sockaddr *)&used, &length);
  say(talk, "%s", memcmp(&bound, &used, length) == 0 ? "bound address kept" : "bound address LOST");
  say_own_addresses(talk);
  await_nudge(talk);
}

static void addresses_server(struct talk *talk) {
  char text[80];
  say(talk, "accepted %s", name_of_address(&talk->from, text));
  say_own_addresses(talk);
  nudge(talk);
}

static void say_echo(struct talk *talk) {
  char question[16] = "?knock, knock", answer[16] = "";
  if (send(talk->fd, question, sizeof(question), MSG_NOSIGNAL) != sizeof(question)) {
    say(talk, "send %s", name_of_error(errno));
    return;
  }
  const ssize_t got = recv(talk->fd, answer, sizeof(answer), MSG_WAITALL);
  say(talk, "answer %s from listener %c", outcome(got), answer[0]);
}

static int connect_to(struct talk *talk, int port) {
  const struct sockaddr_storage there = at_port(&talk->to, port);
  return connect(talk->fd, (const struct sockaddr *)&there, length_of(&there));
}

static void say_error(struct talk *talk) {
  int error = -1;
  socklen_t length = sizeof(error);
  getsockopt(talk->fd, SOL_SOCKET, SO_ERROR, &error, &length);
  say(talk, "SO_ERROR %s", name_of_error(error));
}

static void refused_client(struct talk *talk) {
  talk->fd = open_socket(talk);
  say(talk, "connect %s", outcome(connect_to(talk, CLOSED_PORT)));
  say_own_addresses(talk);
}

static void connect_without_waiting(struct talk *talk, int port) {
  talk->fd = open_socket(talk);
  fcntl(talk->fd, F_SETFL, O_NONBLOCK);
  say(talk, "connect %s", outcome(connect_to(talk, port)));
  say(talk, "poll %s", polled(talk->fd, POLLOUT, TIMEOUT_MS));
  say_error(talk);
}

static void nonblocking_client(struct talk *talk) {
  connect_without_waiting(talk, CROWD_PORT);
  say(talk, "connect again %s", outcome(connect_to(talk, CROWD_PORT)));
  fcntl(talk->fd, F_SETFL, 0);
  say_echo(talk);
}

static void nonblocking_refused_client(struct talk *talk) {
  connect_without_waiting(talk, CLOSED_PORT);
  say(talk, "poll %s", polled(talk->fd, POLLIN | POLLOUT, 0));
}

static void retried_client(struct talk *talk) {
  refused_client(talk);
  say(talk, "connect %s", outcome(connect_to(talk, CROWD_PORT + 1)));
  say_echo(talk);
  struct sockaddr_storage peer;
  socklen_t length = sizeof(peer);
  char text[80];
  getpeername(talk->fd, (struct sockaddr *)&peer, &length);
  say(talk, "peer %s", name_of_address(&peer, text));
}

static void disconnect(struct talk *talk) {
  const struct sockaddr nowhere = {.sa_family = AF_UNSPEC};
  say(talk, "disconnect %s", outcome(connect(talk->fd, &nowhere, sizeof(nowhere))));
  struct sockaddr_storage peer;
  socklen_t length = sizeof(peer);
  say(talk, "peer %s", outcome(getpeername(talk->fd, (struct sockaddr *)&peer, &length)));
}

// One socket, many destinations: none may leave a trace in the next.
static void reused_client(struct talk *talk) {
  if (!dial(talk)) return;
  nudge(talk);
  if (!await_nudge(talk)) return;
  disconnect(talk);
  say(talk, "connect %s", outcome(connect_to(talk, CROWD_PORT + 2)));
  say_echo(talk);
  disconnect(talk);
  say(talk, "connect %s", outcome(connect_to(talk, CLOSED_PORT)));
  say(talk, "connect %s", outcome(connect_to(talk, CROWD_PORT + 3)));
  say_echo(talk);
}

static void reused_server(struct talk *talk) {
  char byte;
  if (!await_nudge(talk)) return;
  nudge(talk);
  say(talk, "recv %s", outcome(recv(talk->fd, &byte, 1, 0)));
}

// A connect that carries the first bytes along.
static void fastopen_client(struct talk *talk) {
  char question[16] = "?in the hurry", answer[16] = "";
  const struct sockaddr_storage there = at_port(&talk->to, CROWD_PORT);
  talk->fd = open_socket(talk);
  say(talk, "sendto %s",
      outcome(sendto(talk->fd, question, sizeof(question), MSG_FASTOPEN, (const struct sockaddr *)&there,
                     length_of(&there))));
  const ssize_t got = recv(talk->fd, answer, sizeof(answer), MSG_WAITALL);
  say(talk, "answer %s from listener %c", outcome(got), answer[0]);
}

// The connect is put off until the first write: TCP_FASTOPEN_CONNECT.
static void deferred_client(struct talk *talk) {
  const int on = 1;
  talk->fd = open_socket(talk);
  setsockopt(talk->fd, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &on, sizeof(on));
  say(talk, "connect %s", outcome(connect_to(talk, CROWD_PORT)));
  say_echo(talk);
}

static void options_client(struct talk *talk) {
  if (!dial(talk)) return;
  const int on = 1;
  int value = -1;
  socklen_t length = sizeof(value);
  setsockopt(talk->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  getsockopt(talk->fd, IPPROTO_TCP, TCP_NODELAY, &value, &length);
  say(talk, "TCP_NODELAY %d", value);
  setsockopt(talk->fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  getsockopt(talk->fd, SOL_SOCKET, SO_KEEPALIVE, &value, &length);
  say(talk, "SO_KEEPALIVE %d", value);
  getsockopt(talk->fd, SOL_SOCKET, SO_DOMAIN, &value, &length);
  say(talk, "SO_DOMAIN %d", value);
  struct tcp_info info = {0};
  length = sizeof(info);
  getsockopt(talk->fd, IPPROTO_TCP, TCP_INFO, &info, &length);
  say(talk, "state %d", info.tcpi_state);
  if (await_nudge(talk)) nudge(talk);
}

static void options_server(struct talk *talk) {
  struct tcp_info info = {0};
  socklen_t length = sizeof(info);
  getsockopt(talk->fd, IPPROTO_TCP, TCP_INFO, &info, &length);
  say(talk, "state %d", info.tcpi_state);
  nudge(talk);
  await_nudge(talk);
}

// The server listens and does not accept: to the client that looks like one that is slow.
static void unaccepted_client(struct talk *talk) {
  char byte;
  const struct timeval brief = {.tv_usec = 200000};
  talk->fd = open_socket(talk);
  say(talk, "connect %s", outcome(connect_to(talk, UNACCEPTED_PORT)));
  setsockopt(talk->fd, SOL_SOCKET, SO_RCVTIMEO, &brief, sizeof(brief));
  say(talk, "send %s", outcome(send(talk->fd, "hello", 5, MSG_NOSIGNAL)));
  say(talk, "recv %s", outcome(recv(talk->fd, &byte, 1, 0)));
}

// A listener that comes and goes while others stay: it is reached, then refuses.
static void passing_client(struct talk *talk) {
  if (!dial(talk) || !await_nudge(talk)) return;
  struct talk second = {.fd = open_socket(talk), .to = talk->to};
  const int port = PASSING_PORT + (talk->to.ss_family == AF_INET6);
  say(talk, "connect %s", outcome(connect_to(&second, port)));
  await_nudge(&second);
  close(second.fd);
  if (!await_nudge(talk)) return;
  // Others learn that nobody listens any more a moment later.
  for (const long end_ms = now_ms() + 2000; now_ms() < end_ms; pause_ms(10)) {
    second.fd = open_socket(talk);
    const int result = connect_to(&second, port);
    const int error = errno;
    close(second.fd);
    if (result == 0) continue;
    say(talk, "in the end %s", name_of_error(error));
    return;
  }
  say(talk, "never refused");
}

static void passing_server(struct talk *talk) {
  const int port = PASSING_PORT + (talk->from.ss_family == AF_INET6);
  const int listener = listen_at(talk->from.ss_family, port, false);
  limit_waits(listener);
  nudge(talk);
  struct talk second = {.fd = accept(listener, NULL, NULL)};
  say(talk, "accept %s", second.fd < 0 ? name_of_error(errno) : "a second one");
  nudge(&second);
  close(second.fd);
  close(listener);
  nudge(talk);
}

const struct behaviour connecting_behaviours[] = {
    {"addresses", addresses_client, addresses_server, false},
    {"addresses-bound", addresses_bound_client, addresses_server, false},
    {"addresses-dual", addresses_client, addresses_server, true},
    {"refused", refused_client, NULL, false},
    {"nonblocking", nonblocking_client, NULL, false},
    {"nonblocking-refused", nonblocking_refused_client, NULL, false},
    {"retried", retried_client, NULL, false},
    {"reused", reused_client, reused_server, false},
    {"fastopen", fastopen_client, NULL, false},
    {"deferred", deferred_client, NULL, false},
    {"options", options_client, options_server, false},
    {"unaccepted", unaccepted_client, NULL, false},
    {"passing-listener", passing_client, passing_server, false},
    {0},
};
