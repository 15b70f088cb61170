// One read or write of a socket, by any of the calls that do it, with every byte checked.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "fuzz.h"

enum { LARGEST = 32768, FILLER = 0xa5, GUARD = 16, PARTS = 4 };

static volatile int pipe_signals;

static void on_pipe(int number) {
  (void)number;
  pipe_signals++;
}

void count_pipe_signals(void) {
  struct sigaction action = {.sa_handler = on_pipe, .sa_flags = SA_RESTART};
  sigaction(SIGPIPE, &action, NULL);
}

// A thread may read while another one writes.
static _Thread_local uint8_t buffer[LARGEST + GUARD];
static const char *const readers[] = {"read",     "readv", "recv",   "recvfrom", "recvmsg",
                                      "recvmmsg", "",      "splice", "fread",    ""};
static const char *const writers[] = {"write",    "writev",   "send",   "sendto", "sendmsg",
                                      "sendmmsg", "sendfile", "splice", "fwrite", "send with more"};

// Divides a buffer into up to four parts, some of them empty; returns how many.
int split(uint8_t *bytes, size_t length, uint32_t how, void *parts) {
  struct iovec *list = parts;
  int count = 1 + (int)(how % PARTS);
  size_t done = 0;
  for (int i = 0; i < count; i++) {
    size_t size = i == count - 1 ? length - done : (length - done) * (how >> (4 * i) & 7) / 7;
    list[i] = (struct iovec){bytes + done, size};
    done += size;
  }
  return count;
}

// Moves bytes through a pipe until all have moved or one call says no; stops at what a pipe holds.
static ssize_t read_by_splice(int fd, uint8_t *bytes, size_t length) {
  int ends[2];
  if (pipe(ends) != 0) die("pipe");
  size_t done = 0;
  ssize_t moved = 0;
  do {
    moved = splice(fd, NULL, ends[1], NULL, length - done, 0);
    for (ssize_t left = moved; left > 0;) {
      ssize_t taken = read(ends[0], bytes + done, (size_t)left);
      if (taken <= 0) die("read a pipe");
      done += (size_t)taken;
      left -= taken;
    }
  } while (moved > 0 && done < length);
  int error = errno;
  close(ends[0]);
  close(ends[1]);
  errno = error;
  return done > 0 ? (ssize_t)done : moved;
}

static ssize_t write_by_splice(int fd, const uint8_t *bytes, size_t length) {
  int ends[2];
  if (pipe(ends) != 0) die("pipe");
  size_t done = 0;
  ssize_t moved = 0;
  do {
    size_t part = length - done < 4096 ? length - done : 4096;
    if (write(ends[1], bytes + done, part) != (ssize_t)part) die("write a pipe");
    moved = splice(ends[0], NULL, fd, NULL, part, 0);
    if (moved > 0) done += (size_t)moved;
  } while (moved > 0 && done < length);
  int error = errno;
  close(ends[0]);
  close(ends[1]);
  errno = error;
  return done > 0 ? (ssize_t)done : moved;
}

// A stream on a duplicate, since closing it closes its descriptor.
static ssize_t by_stdio(int fd, uint8_t *bytes, size_t length, bool is_write) {
  FILE *stream = fdopen(dup(fd), is_write ? "w" : "r");
  if (stream == NULL) die("fdopen");
  if (!is_write) setvbuf(stream, NULL, _IONBF, 0);
  errno = 0;
  size_t done = is_write ? fwrite(bytes, 1, length, stream) : fread(bytes, 1, length, stream);
  bool is_failed = ferror(stream) != 0;
  if (fclose(stream) != 0 && is_write) return -1;
  return is_failed && done == 0 ? -1 : (ssize_t)done;
}

// A new file each time: its pages themselves are on their way until they are read.
static ssize_t write_file(int fd, const uint8_t *bytes, size_t length) {
  int file = memfd_create("bytes", MFD_CLOEXEC);
  off_t offset = 7;
  if (pwrite(file, bytes, length, offset) != (ssize_t)length) die("write a file");
  ssize_t sent = sendfile(fd, file, &offset, length);
  if (sent > 0 && offset != 7 + sent) die("sendfile left a wrong offset");
  int error = errno;
  close(file);
  errno = error;
  return sent;
}

static ssize_t read_by(const struct order *order, int fd, struct answer *answer) {
  struct iovec parts[PARTS];
  switch (order->by) {
  case BY_READ:
    return read(fd, buffer, order->length);
  case BY_VECTOR:
    return readv(fd, parts, split(buffer, order->length, order->other, parts));
  case BY_SEND:
    return recv(fd, buffer, order->length, order->flags);
  case BY_SPLICE:
    return read_by_splice(fd, buffer, order->length);
  case BY_STDIO:
    return by_stdio(fd, buffer, order->length, false);
  default:
    return read_messages(order, fd, buffer, answer);
  }
}

static void say_bytes(const struct order *order, size_t count, struct answer *answer) {
  if ((order->flags & MSG_TRUNC) != 0) count = 0;
  long wrong = mismatch(buffer, count, order->pattern, order->position);
  if (wrong >= 0) say(answer, " WRONG at %ld", wrong);
  for (size_t i = count; i < order->length + GUARD; i++) {
    if (buffer[i] == FILLER) continue;
    say(answer, " WRITTEN BEYOND at %zu", i - count);
    break;
  }
}

void make_read(const struct order *order, int fd, struct answer *answer) {
  memset(buffer, FILLER, order->length + GUARD);
  say(answer, "%s(%u, %u, ", readers[order->by], order->handle, order->length);
  say_flags(answer, order->flags);
  say(answer, ")");
  ssize_t result = read_by(order, fd, answer);
  say_result(answer, result);
  say_bytes(order, result > 0 ? (size_t)result : 0, answer);
}

static ssize_t write_by(const struct order *order, int fd, struct answer *answer) {
  struct iovec parts[PARTS];
  size_t first = order->length / 2;
  switch (order->by) {
  case BY_READ:
    return write(fd, buffer, order->length);
  case BY_VECTOR:
    return writev(fd, parts, split(buffer, order->length, order->other, parts));
  case BY_SEND:
    return send(fd, buffer, order->length, order->flags);
  case BY_FILE:
    return write_file(fd, buffer, order->length);
  case BY_SPLICE:
    return write_by_splice(fd, buffer, order->length);
  case BY_STDIO:
    return by_stdio(fd, buffer, order->length, true);
  case BY_MORE: {
    // Held back for some time unless more follows, so it does.
    ssize_t one = send(fd, buffer, first, order->flags | MSG_MORE);
    if (one < 0) return one;
    ssize_t two = send(fd, buffer + one, order->length - (size_t)one, order->flags);
    return two < 0 ? two : one + two;
  }
  default:
    return write_messages(order, fd, buffer, answer);
  }
}

void make_write(const struct order *order, int fd, struct answer *answer) {
  fill(buffer, order->length, order->pattern, order->position);
  say(answer, "%s(%u, %u, ", writers[order->by], order->handle, order->length);
  say_flags(answer, order->flags);
  say(answer, ")");
  int before = pipe_signals;
  ssize_t result = write_by(order, fd, answer);
  say_result(answer, result);
  if (pipe_signals != before) say(answer, " SIGPIPE*%d", pipe_signals - before);
}
