// Sockets that do not wait for ever, words for what they did, and streams whose every byte is
// known.

#include "talk.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { PIECE_BYTES = 65536 };

void say(struct talk *talk, const char *format, ...) {
  va_list arguments;
  const size_t room = sizeof(talk->said) - talk->length;
  if (talk->length > 0 && room > 2) talk->length += (size_t)snprintf(talk->said + talk->length, room, ", ");
  va_start(arguments, format);
  const int added = vsnprintf(talk->said + talk->length, sizeof(talk->said) - talk->length, format, arguments);
  va_end(arguments);
  talk->length += (size_t)added;
  if (talk->length >= sizeof(talk->said)) talk->length = sizeof(talk->said) - 1;
}

const char *name_of_error(int error) {
  if (error == 0) return "no error";
  const char *name = strerrorname_np(error);
  return name ? name : "unknown error";
}

const char *outcome(ssize_t result) {
  // Several in one line of output.
  static _Thread_local char texts[8][24];
  static _Thread_local unsigned turn;
  if (result < 0) return name_of_error(errno);
  char *text = texts[turn++ % 8];
  snprintf(text, sizeof(texts[0]), "%zd", result);
  return text;
}

const char *name_of_address(const struct sockaddr_storage *address, char text[80]) {
  char host[INET6_ADDRSTRLEN] = "?";
  const struct sockaddr_in *v4 = (const void *)address;
  const struct sockaddr_in6 *v6 = (const void *)address;
  if (address->ss_family == AF_INET) {
    inet_ntop(AF_INET, &v4->sin_addr, host, sizeof(host));
    snprintf(text, 80, "%s:%d", host, ntohs(v4->sin_port));
  } else {
    inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof(host));
    snprintf(text, 80, "[%s]:%d", host, ntohs(v6->sin6_port));
  }
  return text;
}

socklen_t length_of(const struct sockaddr_storage *address) {
  return address->ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
}

struct sockaddr_storage at_port(const struct sockaddr_storage *address, int port) {
  struct sockaddr_storage other = *address;
  // Both families have the port in the same place.
  ((struct sockaddr_in *)&other)->sin_port = htons((uint16_t)port);
  return other;
}

void limit_waits(int fd) {
  const struct timeval timeout = {.tv_sec = TIMEOUT_MS / 1000};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
}

int open_socket(const struct talk *talk) {
  const int fd = socket(talk->to.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) {
    perror("socket");
    exit(1);
  }
  limit_waits(fd);
  return fd;
}

bool dial(struct talk *talk) {
  talk->fd = open_socket(talk);
  if (connect(talk->fd, (struct sockaddr *)&talk->to, length_of(&talk->to)) == 0) return true;
  say(talk, "connect %s", name_of_error(errno));
  return false;
}

int listen_at(int family, int port, bool is_dual) {
  const int on = 1, v6_only = !is_dual;
  struct sockaddr_storage any = {.ss_family = (sa_family_t)family};
  any = at_port(&any, port);
  const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &v6_only, sizeof(v6_only));
  if (bind(fd, (struct sockaddr *)&any, length_of(&any)) == 0 && listen(fd, SOMAXCONN) == 0) return fd;
  perror("listen");
  exit(1);
}

void nudge(struct talk *talk) {
  if (send(talk->fd, "!", 1, MSG_NOSIGNAL) != 1) say(talk, "nudge %s", name_of_error(errno));
}

bool await_nudge(struct talk *talk) {
  char byte;
  const ssize_t size_bytes = recv(talk->fd, &byte, 1, 0);
  if (size_bytes != 1) say(talk, "no nudge: %s", outcome(size_bytes));
  return size_bytes == 1;
}

bool await_queued(struct talk *talk, int size_bytes) {
  int queued = 0;
  for (const long end_ms = now_ms() + TIMEOUT_MS; now_ms() < end_ms; pause_ms(2)) {
    if (ioctl(talk->fd, FIONREAD, &queued) == 0 && queued >= size_bytes) return true;
  }
  say(talk, "only %d bytes came", queued);
  return false;
}

const char *polled(int fd, short events, int timeout_ms) {
  static _Thread_local char texts[4][80];
  static _Thread_local unsigned turn;
  static const struct {
    short bit;
    const char *name;
  } bits[] = {{POLLIN, " IN"},   {POLLOUT, " OUT"}, {POLLPRI, " PRI"},
              {POLLERR, " ERR"}, {POLLHUP, " HUP"}, {POLLRDHUP, " RDHUP"}};
  char *text = texts[turn++ % 4];
  struct pollfd one = {.fd = fd, .events = events};
  int ready = poll(&one, 1, timeout_ms);
  // A reset that is just being received: the kernel sets the error first, and the rest right after.
  if (ready > 0 && (one.revents & (POLLERR | POLLHUP)) == POLLERR) {
    pause_ms(1);
    ready = poll(&one, 1, 0);
  }
  if (ready <= 0) return ready < 0 ? name_of_error(errno) : "nothing";
  text[0] = '\0';
  for (size_t i = 0; i < sizeof(bits) / sizeof(bits[0]); i++) {
    if (one.revents & bits[i].bit) strcat(text, bits[i].name);
  }
  return text[0] == ' ' ? text + 1 : text;
}

long now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void pause_ms(int duration_ms) {
  const struct timespec duration = {.tv_sec = duration_ms / 1000, .tv_nsec = duration_ms % 1000 * 1000000L};
  nanosleep(&duration, NULL);
}

static uint8_t byte_at(uint64_t position, uint64_t seed) {
  return (uint8_t)(((position + seed * 0x100000001b3u) * 0x9e3779b97f4a7c15u) >> 56);
}

void fill(uint8_t *bytes, size_t size_bytes, uint64_t position, uint64_t seed) {
  for (size_t i = 0; i < size_bytes; i++)
    bytes[i] = byte_at(position + i, seed);
}

bool is_filled(const uint8_t *bytes, size_t size_bytes, uint64_t position, uint64_t seed) {
  for (size_t i = 0; i < size_bytes; i++) {
    if (bytes[i] != byte_at(position + i, seed)) return false;
  }
  return true;
}

uint32_t next_random(uint32_t *state) {
  *state ^= *state << 13;
  *state ^= *state >> 17;
  *state ^= *state << 5;
  return *state;
}

bool send_stream(struct talk *talk, size_t size_bytes, uint64_t seed) {
  uint8_t piece[PIECE_BYTES];
  uint32_t random = (uint32_t)seed * 7919;
  for (size_t position = 0; position < size_bytes;) {
    size_t wanted = 1 + next_random(&random) % sizeof(piece);
    if (wanted > size_bytes - position) wanted = size_bytes - position;
    fill(piece, wanted, position, seed);
    const ssize_t sent = send(talk->fd, piece, wanted, MSG_NOSIGNAL);
    if (sent < 0) {
      say(talk, "send %s after %zu bytes", name_of_error(errno), position);
      return false;
    }
    position += (size_t)sent;
  }
  return true;
}

void read_stream(struct talk *talk, uint64_t seed) {
  uint8_t piece[PIECE_BYTES];
  uint32_t random = (uint32_t)seed * 104729;
  size_t position = 0;
  bool is_right = true;
  ssize_t got;
  while ((got = recv(talk->fd, piece, 1 + next_random(&random) % sizeof(piece), 0)) > 0) {
    is_right = is_right && is_filled(piece, (size_t)got, position, seed);
    position += (size_t)got;
  }
  const char *ending = got == 0 ? "end" : name_of_error(errno);
  say(talk, "%zu bytes came, %s, then %s", position, is_right ? "right" : "WRONG", ending);
}

int stream_file(size_t size_bytes, uint64_t seed) {
  const int fd = memfd_create("stream", MFD_CLOEXEC);
  uint8_t *bytes = malloc(size_bytes);
  if (fd < 0 || !bytes) exit(1);
  fill(bytes, size_bytes, 0, seed);
  if (write(fd, bytes, size_bytes) != (ssize_t)size_bytes) exit(1);
  free(bytes);
  lseek(fd, 0, SEEK_SET);
  return fd;
}
