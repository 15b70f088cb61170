// Reading and writing by the calls that take a message.
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "fuzz.h"

enum { PARTS = 4, MESSAGES = 3 };

// Several messages share the buffer: each has a third of it, and is divided further.
static int divide(const struct order *order, uint8_t *bytes, struct mmsghdr *list, struct iovec (*parts)[PARTS]) {
  int count = 1 + (int)(order->other % MESSAGES);
  size_t done = 0;
  memset(list, 0, sizeof(*list) * (size_t)count);
  for (int i = 0; i < count; i++) {
    size_t size = i == count - 1 ? order->length - done : order->length / (size_t)count;
    list[i].msg_hdr.msg_iov = parts[i];
    list[i].msg_hdr.msg_iovlen = (size_t)split(bytes + done, size, order->other >> 2, parts[i]);
    done += size;
  }
  return count;
}

static ssize_t sum(const struct mmsghdr *list, int count, struct answer *answer) {
  ssize_t total = 0;
  if (count < 0) return count;
  say(answer, " of %d:", count);
  for (int i = 0; i < count; i++) {
    say(answer, " %u", list[i].msg_len);
    total += list[i].msg_len;
  }
  return total;
}

// A short message in the middle leaves a hole in the buffer; the bytes are moved together.
static void close_holes(const struct order *order, uint8_t *bytes, const struct mmsghdr *list, int count) {
  if (count <= 1) return;
  int all = 1 + (int)(order->other % MESSAGES);
  size_t done = list[0].msg_len;
  for (int i = 1; i < count; i++) {
    memmove(bytes + done, bytes + (size_t)i * (order->length / (size_t)all), list[i].msg_len);
    done += list[i].msg_len;
  }
  memset(bytes + done, 0xa5, order->length - done);
}

ssize_t read_messages(const struct order *order, int fd, uint8_t *bytes, struct answer *answer) {
  struct iovec parts[MESSAGES][PARTS];
  struct mmsghdr list[MESSAGES];
  if (order->by == BY_ADDRESS) {
    struct sockaddr_storage address;
    socklen_t size = sizeof(address);
    ssize_t result = recvfrom(fd, bytes, order->length, order->flags, (struct sockaddr *)&address, &size);
    if (result >= 0) say(answer, " address of %u", size);
    return result;
  }
  if (order->by == BY_MESSAGE) {
    char control[64];
    struct msghdr message = {.msg_iov = parts[0], .msg_control = control, .msg_controllen = sizeof(control)};
    message.msg_iovlen = (size_t)split(bytes, order->length, order->other, parts[0]);
    ssize_t result = recvmsg(fd, &message, order->flags);
    if (result >= 0) say(answer, " control of %zu, flags %#x", message.msg_controllen, message.msg_flags);
    return result;
  }
  int count = divide(order, bytes, list, parts);
  int got = recvmmsg(fd, list, (unsigned)count, order->flags, NULL);
  if ((order->flags & MSG_TRUNC) == 0 && (order->flags & MSG_PEEK) == 0) close_holes(order, bytes, list, got);
  return sum(list, got, answer);
}

ssize_t write_messages(const struct order *order, int fd, uint8_t *bytes, struct answer *answer) {
  struct iovec parts[MESSAGES][PARTS];
  struct mmsghdr list[MESSAGES];
  if (order->by == BY_ADDRESS) return sendto(fd, bytes, order->length, order->flags, NULL, 0);
  if (order->by == BY_MESSAGE) {
    struct msghdr message = {.msg_iov = parts[0]};
    message.msg_iovlen = (size_t)split(bytes, order->length, order->other, parts[0]);
    return sendmsg(fd, &message, order->flags);
  }
  int count = divide(order, bytes, list, parts);
  return sum(list, sendmmsg(fd, list, (unsigned)count, order->flags), answer);
}
