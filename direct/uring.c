// Programs that use io_uring: the kernel would read and write past the library, so they are left to
// TCP.
#include "internal.h"

#include <string.h>
#include <unistd.h>

static bool is_ring(uint32_t fd) {
  static const char name[] = "anon_inode:[io_uring]";
  char path[] = "/proc/self/fd/0000000000", target[sizeof(name)];
  // Without snprintf, which may allocate memory.
  char *end = path + sizeof("/proc/self/fd/") - 1;
  uint32_t digits = 1;
  for (uint32_t rest = fd; rest >= 10; rest /= 10)
    digits++;
  end[digits] = 0;
  for (uint32_t rest = fd; digits > 0; rest /= 10)
    end[--digits] = (char)('0' + rest % 10);
  const ssize_t length = readlink(path, target, sizeof(target));
  return length == (ssize_t)sizeof(name) - 1 && memcmp(target, name, sizeof(name) - 1) == 0;
}

void mr_leave_to_uring(void) {
  if (mr.has_uring) return;
  mr.has_uring = true;
  mr_pin_all();
  mr_say("this program uses io_uring: plain TCP");
}

// liburing has instructions of its own for its system calls, so a ring is found among the
// descriptors. It is looked for at the first offer, the second, the fourth and so on: programs make
// their rings when they start, and looking takes time.
void mr_look_for_uring(void) {
  static _Atomic uint32_t asked;
  const uint32_t before = atomic_fetch_add(&asked, 1);
  if ((before & (before - 1)) != 0) return;
  const uint32_t highest = atomic_load(&mr.highest_fd);
  for (uint32_t fd = 0; fd <= highest; fd++)
    if (mr_kind_of((int)fd) == MR_NONE && is_ring(fd)) return mr_leave_to_uring();
}
