// What is said of one call: arguments, result, errno, flags.
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "fuzz.h"

void say(struct answer *answer, const char *format, ...) {
  size_t room = sizeof(answer->text) - answer->length;
  va_list list;
  va_start(list, format);
  int length = vsnprintf(answer->text + answer->length, room, format, list);
  va_end(list);
  answer->length += (size_t)length < room ? (uint32_t)length : (uint32_t)room - 1;
}

// Of the call just made: errno is still its own.
void say_result(struct answer *answer, int64_t result) {
  answer->result = result;
  answer->error = result < 0 ? errno : 0;
  say(answer, " = %lld", (long long)result);
  if (result < 0) say(answer, " %s", strerrorname_np(answer->error));
}

struct name {
  uint32_t bits;
  const char *text;
};

static void say_names(struct answer *answer, uint32_t bits, const struct name *names, size_t count) {
  const char *between = "";
  for (size_t i = 0; i < count; i++) {
    if ((bits & names[i].bits) == 0) continue;
    say(answer, "%s%s", between, names[i].text);
    bits &= ~names[i].bits;
    between = "|";
  }
  if (bits != 0 || *between == 0) say(answer, "%s%#x", between, bits);
}

// Events of poll have the same numbers.
void say_events(struct answer *answer, uint32_t events) {
  static const struct name names[] = {
      {EPOLLIN, "IN"},        {EPOLLPRI, "PRI"},       {EPOLLOUT, "OUT"},        {EPOLLERR, "ERR"},
      {EPOLLHUP, "HUP"},      {EPOLLRDNORM, "RDNORM"}, {EPOLLWRNORM, "WRNORM"},  {EPOLLRDHUP, "RDHUP"},
      {EPOLLONESHOT, "ONCE"}, {EPOLLET, "EDGE"},       {EPOLLEXCLUSIVE, "EXCL"},
  };
  say_names(answer, events, names, sizeof(names) / sizeof(names[0]));
}

void say_flags(struct answer *answer, int flags) {
  static const struct name names[] = {
      {MSG_PEEK, "PEEK"},         {MSG_TRUNC, "TRUNC"}, {MSG_DONTWAIT, "DONTWAIT"}, {MSG_WAITALL, "WAITALL"},
      {MSG_NOSIGNAL, "NOSIGNAL"}, {MSG_MORE, "MORE"},   {MSG_WAITFORONE, "FORONE"},
  };
  say_names(answer, (uint32_t)flags, names, sizeof(names) / sizeof(names[0]));
}
