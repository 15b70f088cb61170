// Programs that use io_uring: the kernel would read and write past the library, so they are left to
// TCP.
#include "internal.h"
#include "real.h"

#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

// `name`: of a descriptor, below the folder.
static bool is_ring(int folder, const char *name) {
  static const char ring[] = "anon_inode:[io_uring]";
  char target[sizeof(ring)];
  const ssize_t length = readlinkat(folder, name, target, sizeof(target));
  return length == (ssize_t)sizeof(ring) - 1 && memcmp(target, ring, sizeof(ring) - 1) == 0;
}

static int number_of(const char *name) {
  int number = 0;
  for (; *name >= '0' && *name <= '9'; name++)
    number = number * 10 + (*name - '0');
  return number;
}

// The kernel's struct linux_dirent64.
struct entry {
  uint64_t inode;
  int64_t next;
  uint16_t size;
  uint8_t type;
  char name[];
};

// Without opendir, which allocates memory.
static bool has_ring(int folder) {
  _Alignas(struct entry) char entries[2048];
  for (;;) {
    const long size = real.syscall(SYS_getdents64, folder, entries, sizeof(entries));
    if (size <= 0) return false;
    for (long at = 0; at < size;) {
      const struct entry *one = (const struct entry *)(entries + at);
      at += one->size;
      if (one->name[0] != '.' && mr_kind_of(number_of(one->name)) == MR_NONE && is_ring(folder, one->name)) return true;
    }
  }
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
  const int folder = (int)real.syscall(SYS_openat, AT_FDCWD, "/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return;
  const bool is_found = has_ring(folder);
  real.close(folder);
  if (is_found) mr_leave_to_uring();
}
