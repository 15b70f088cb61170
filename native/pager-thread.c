// The pager's thread: serves the page faults of a Vortex window. It never allocates, never calls
// into JavaScript, and waits only in poll().
//
// The window is a shared mapping of the guard, a memfd without a single page, registered with
// userfaultfd for missing pages. A fault on block b is answered by mapping slot b mod K of the pool
// over it. Blocks behind the revisit limit are covered by the guard again first and given to the
// other end after that, so no thread can touch what was given away. Between the mapping of the
// guard and its registration a touch causes no fault, but it leaves a page in the guard: the
// guard's size shows it.
#include "pager.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000 + 1;
}

static void signal_event(int fd) {
  const uint64_t one = 1;
  // EAGAIN means that the counter is full, so the reader has something to wake up for.
  if (write(fd, &one, sizeof(one)) < 0) return;
}

static void drain_event(int fd) {
  uint64_t count;
  if (read(fd, &count, sizeof(count)) < 0) return;
}

static uint32_t load(struct mr_pager *pager, int word) {
  return __atomic_load_n(&pager->ledger[word], __ATOMIC_ACQUIRE);
}

// A consumer may sleep in futex(2) on the ledger itself. Partner: BlockQueue.sleepUntil, which
// stores `sleepers` before it loads the event count; here it is the other way round, so one of the
// two sees the other.
static void wake_sleeper(struct mr_pager *pager) {
  uint32_t *event_count = &pager->ledger[LEDGER_EVENT_COUNT];
  __atomic_fetch_add(event_count, 1, __ATOMIC_SEQ_CST);
  if (__atomic_load_n(&pager->ledger[LEDGER_SLEEPERS], __ATOMIC_SEQ_CST) == 0) return;
  syscall(SYS_futex, event_count, FUTEX_WAKE, 1, NULL, NULL, 0);
}

void mr_pager_fail(struct mr_pager *pager, int32_t code) {
  uint32_t none = 0;
  __atomic_compare_exchange_n(&pager->ledger[LEDGER_FAILURE], &none, (uint32_t)code, false, __ATOMIC_ACQ_REL,
                              __ATOMIC_ACQUIRE);
  signal_event(pager->own_event);
  signal_event(pager->other_event);
  wake_sleeper(pager);
}

bool mr_pager_is_through(struct mr_pager *pager) {
  if (load(pager, LEDGER_SIZE_KNOWN) == 0) return false;
  const uint64_t low = load(pager, LEDGER_SIZE), high = load(pager, LEDGER_SIZE + 1);
  const uint64_t given = load(pager, pager->is_producer ? LEDGER_COMMITTED : LEDGER_RELEASED);
  return given * pager->block_bytes >= (low | high << 32);
}

static void fail(struct mr_pager *pager, int32_t code) {
  mr_pager_fail(pager, code);
  pager->is_failed = true;
}

static void wake(struct mr_pager *pager, int64_t block) {
  struct uffdio_range range = {(uintptr_t)(pager->window + block * (int64_t)pager->block_bytes), pager->block_bytes};
  ioctl(pager->uffd, UFFDIO_WAKE, &range);
}

int mr_pager_guard(struct mr_pager *pager, int64_t first, int64_t count) {
  const off_t offset = first * (off_t)pager->block_bytes;
  const size_t length = (size_t)count * pager->block_bytes;
  uint8_t *at = pager->window + offset;
  const int flags = MAP_FIXED | MAP_SHARED | MAP_NORESERVE;
  if (mmap(at, length, PROT_READ | PROT_WRITE, flags, pager->guard_fd, offset) == MAP_FAILED) return -errno;
  struct uffdio_register registration = {.range = {(uintptr_t)at, length}, .mode = UFFDIO_REGISTER_MODE_MISSING};
  return ioctl(pager->uffd, UFFDIO_REGISTER, &registration) < 0 ? -errno : 0;
}

// Takes blocks out of the window. Afterwards no thread reaches their slots, because the kernel has
// flushed every TLB.
static void take_out(struct mr_pager *pager, int64_t first, int64_t count) {
  struct stat status;
  for (int64_t block = first; block < first + count; block++)
    pager->slot_block[block % pager->pool_blocks] = -1;
  const int result = mr_pager_guard(pager, first, count);
  if (result < 0) {
    fail(pager, FAILURE_SYSTEM - result);
  } else if (fstat(pager->guard_fd, &status) == 0 && status.st_blocks != 0 && !pager->is_failed) {
    fail(pager, FAILURE_BEHIND);
  }
}

static bool put_in(struct mr_pager *pager, int64_t block, size_t from) {
  const off_t slot = (block % pager->pool_blocks) * (off_t)pager->block_bytes;
  uint8_t *at = pager->window + block * (int64_t)pager->block_bytes + from;
  const int flags = MAP_FIXED | MAP_SHARED | MAP_POPULATE;
  const int protection = PROT_READ | PROT_WRITE;
  if (mmap(at, pager->block_bytes - from, protection, flags, pager->pool_fd, slot + (off_t)from) != MAP_FAILED)
    return true;
  fail(pager, FAILURE_SYSTEM + errno);
  return false;
}

// How many blocks the stream has; those of the window while the size is unknown; -1 if the size
// exceeds the window.
static int64_t end_of_stream(struct mr_pager *pager, uint64_t *size) {
  if (load(pager, LEDGER_SIZE_KNOWN) == 0) return pager->window_blocks;
  const uint64_t low = load(pager, LEDGER_SIZE), high = load(pager, LEDGER_SIZE + 1);
  *size = low | high << 32;
  if (*size <= pager->window_bytes) return (int64_t)((*size + pager->block_bytes - 1) / pager->block_bytes);
  fail(pager, FAILURE_PROTOCOL);
  return -1;
}

// Clears what an earlier block left in a slot before it is mapped. A consumer never sees bytes past
// the end of the stream.
static void clear_stale(struct mr_pager *pager, int64_t block) {
  uint8_t *slot = pager->pool + (block % pager->pool_blocks) * (int64_t)pager->block_bytes;
  if (pager->is_producer) {
    if (pager->does_clear && block >= pager->pool_blocks) memset(slot, 0, pager->block_bytes);
    return;
  }
  uint64_t size = 0;
  const int64_t end = end_of_stream(pager, &size);
  const size_t used = (size_t)size % pager->block_bytes;
  if (block == end - 1 && used != 0) memset(slot + used, 0, pager->block_bytes - used);
}

static bool is_available(const struct mr_pager *pager, int64_t block) {
  return pager->is_producer ? block < pager->theirs + pager->pool_blocks : block < pager->theirs;
}

// Maps a block, or only its first page if the rest is mapped already.
static bool show(struct mr_pager *pager, int64_t block) {
  const int64_t slot = block % pager->pool_blocks;
  if (pager->slot_block[slot] == block) {
    if (!pager->slot_is_headless[slot]) return true;
    const off_t offset = slot * (off_t)pager->block_bytes;
    uint8_t *at = pager->window + block * (int64_t)pager->block_bytes;
    const int flags = MAP_FIXED | MAP_SHARED | MAP_POPULATE;
    if (mmap(at, pager->page_bytes, PROT_READ | PROT_WRITE, flags, pager->pool_fd, offset) == MAP_FAILED) {
      fail(pager, FAILURE_SYSTEM + errno);
      return false;
    }
  } else {
    clear_stale(pager, block);
    if (!put_in(pager, block, 0)) return false;
    pager->slot_block[slot] = block;
    atomic_fetch_add_explicit(&pager->counters.mapped, 1, memory_order_relaxed);
  }
  pager->slot_is_headless[slot] = false;
  return true;
}

// Maps zeroes in place of a block of a failed stream. All such blocks share one block of memory,
// and at most MR_PAGER_SINKS are mapped at once, so a program that walks through a failed stream
// costs neither memory nor mappings.
static void show_sink(struct mr_pager *pager, int64_t block) {
  const int64_t slot = block % pager->pool_blocks;
  const bool is_real = pager->slot_block[slot] == block;
  bool is_there = is_real && !pager->slot_is_headless[slot];
  for (uint32_t i = 0; i < MR_PAGER_SINKS; i++)
    is_there |= pager->sinks[i] == block;
  if (!is_there) {
    if (is_real) pager->slot_block[slot] = -1;
    int64_t *entry = &pager->sinks[pager->sink_next++ % MR_PAGER_SINKS];
    if (*entry >= 0) mr_pager_guard(pager, *entry, 1);
    *entry = block;
    uint8_t *at = pager->window + block * (int64_t)pager->block_bytes;
    const int flags = MAP_FIXED | MAP_SHARED;
    if (mmap(at, pager->block_bytes, PROT_READ | PROT_WRITE, flags, pager->sink_fd, 0) == MAP_FAILED) {
      // mmap() failed: fill pages of the guard itself, so that the program at least goes on.
      *entry = -1;
      struct uffdio_zeropage zero = {.range = {(uintptr_t)at, pager->block_bytes}};
      ioctl(pager->uffd, UFFDIO_ZEROPAGE, &zero);
    }
    atomic_fetch_add_explicit(&pager->counters.sinks, 1, memory_order_relaxed);
  }
  wake(pager, block);
}

static void give_away(struct mr_pager *pager, int64_t end) {
  pager->low = end;
  const int word = pager->is_producer ? LEDGER_COMMITTED : LEDGER_RELEASED;
  __atomic_store_n(&pager->ledger[word], (uint32_t)end,
                   __ATOMIC_RELEASE); // partner: BlockQueue.committed and .released, or read_theirs
  signal_event(pager->other_event);
  if (pager->is_producer) wake_sleeper(pager);
}

// Takes out and gives away the blocks behind the revisit limit; all blocks once the program has
// finished.
static void retire(struct mr_pager *pager, int64_t stream_end) {
  const int64_t finish_end = atomic_load(&pager->finish_end);
  int64_t target = finish_end >= 0 ? finish_end : pager->top - pager->revisit;
  if (target > stream_end) target = stream_end;
  while (pager->low < target && !pager->is_failed) {
    int64_t end = pager->low;
    while (end < target && pager->slot_block[end % pager->pool_blocks] == end)
      end++;
    if (end > pager->low) {
      take_out(pager, pager->low, end - pager->low);
      if (pager->is_failed) return;
    } else {
      // The program has skipped this block. If it was never written, the consumer sees zeroes.
      if (!is_available(pager, end)) return;
      uint8_t *slot = pager->pool + (end % pager->pool_blocks) * (int64_t)pager->block_bytes;
      if (pager->is_producer && end >= pager->pool_blocks) memset(slot, 0, pager->block_bytes);
      end++;
    }
    give_away(pager, end);
  }
}

// Maps the next blocks, all but their first page: a touch of that page is a cheap fault that shows
// how far the program is.
static void map_ahead(struct mr_pager *pager, int64_t end) {
  if (pager->block_bytes <= pager->page_bytes || pager->top < 0) return;
  for (int64_t block = pager->top + 1; block <= pager->top + pager->ahead && block < end; block++) {
    const int64_t slot = block % pager->pool_blocks;
    if (!is_available(pager, block)) return;
    if (pager->slot_block[slot] == block) continue;
    if (pager->slot_block[slot] >= 0) return; // still shows a block that is not given away
    clear_stale(pager, block);
    if (!put_in(pager, block, pager->page_bytes)) return;
    pager->slot_block[slot] = block;
    pager->slot_is_headless[slot] = true;
    atomic_fetch_add_explicit(&pager->counters.mapped, 1, memory_order_relaxed);
  }
}

// Loads the other end's counter, which only grows, and never past what the pool holds. Partner:
// give_away, BlockQueue.commit and BlockQueue.release.
static void read_theirs(struct mr_pager *pager) {
  const int64_t value = (int32_t)load(pager, pager->is_producer ? LEDGER_RELEASED : LEDGER_COMMITTED);
  const int64_t most = pager->is_producer ? pager->low : pager->low + pager->pool_blocks;
  if (value < pager->theirs || value > most) {
    fail(pager, FAILURE_PROTOCOL);
    return;
  }
  if (value != pager->theirs) pager->waiting_since_ms = 0;
  pager->theirs = value;
}

static void serve(struct mr_pager *pager, int64_t end) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < pager->fault_count; i++) {
    const int64_t block = pager->faults[i];
    if (!pager->is_failed && block < pager->low) fail(pager, FAILURE_BEHIND);
    if (!pager->is_failed && block >= end) fail(pager, FAILURE_PAST_END);
    if (!pager->is_failed && is_available(pager, block) && show(pager, block)) {
      wake(pager, block);
    } else {
      pager->faults[kept++] = block;
    }
  }
  pager->fault_count = kept;
}

static void tell_end(struct mr_pager *pager, int64_t end) {
  const bool is_known = load(pager, LEDGER_SIZE_KNOWN) != 0;
  const int64_t released = pager->is_producer ? pager->theirs : pager->low;
  const bool is_over = is_known && released >= end;
  if (pager->is_failed ? pager->has_notified_failure : pager->has_notified_end || !is_over) return;
  if (pager->is_failed)
    pager->has_notified_failure = true;
  else
    pager->has_notified_end = true;
  signal_event(pager->doorbell);
}

static void advance(struct mr_pager *pager) {
  uint64_t size = 0;
  const int32_t ordered = atomic_load(&pager->ordered_failure);
  if (ordered != 0 && !pager->is_failed && !mr_pager_is_through(pager)) fail(pager, ordered);
  if (load(pager, LEDGER_FAILURE) != 0) pager->is_failed = true;
  if (!pager->is_failed) read_theirs(pager);
  const int64_t end = end_of_stream(pager, &size);
  if (!pager->is_failed) serve(pager, end);
  if (!pager->is_failed) retire(pager, end);
  if (!pager->is_failed && atomic_load(&pager->finish_end) < 0) map_ahead(pager, end);
  const bool is_over = pager->is_producer ? pager->theirs >= end : pager->theirs >= end && end >= 0;
  if (!pager->is_failed && pager->has_peer_gone && !(is_over && load(pager, LEDGER_SIZE_KNOWN) != 0)) {
    fail(pager, FAILURE_PEER_DIED);
  }
  if (pager->is_failed) {
    for (uint32_t i = 0; i < pager->fault_count; i++)
      show_sink(pager, pager->faults[i]);
    pager->fault_count = 0;
  }
  tell_end(pager, end);
}

static void note_fault(struct mr_pager *pager, uint64_t address) {
  const int64_t block = (int64_t)((address - (uintptr_t)pager->window) / pager->block_bytes);
  atomic_fetch_add_explicit(&pager->counters.faults, 1, memory_order_relaxed);
  for (uint32_t i = 0; i < pager->fault_count; i++) {
    if (pager->faults[i] == block) return;
  }
  pager->faults[pager->fault_count++] = block;
  uint64_t size = 0;
  if (block > pager->top && block < end_of_stream(pager, &size)) {
    pager->top = block;
    atomic_store_explicit(&pager->counters.top, block, memory_order_relaxed);
  }
}

static void read_faults(struct mr_pager *pager) {
  struct uffd_msg message;
  while (pager->fault_count < MR_PAGER_FAULTS && read(pager->uffd, &message, sizeof(message)) == sizeof(message)) {
    if (message.event == UFFD_EVENT_PAGEFAULT) note_fault(pager, message.arg.pagefault.address);
  }
}

// Nothing is sent on the lifeline once the stream has begun: if it is readable, the other end has
// gone.
static void check_lifeline(struct mr_pager *pager, short events) {
  char byte;
  if (events == 0) return;
  if ((events & POLLIN) != 0 && recv(pager->lifeline, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN) return;
  pager->has_peer_gone = true;
}

// The time limit of poll(): the rest of the stream's timeout while a fault waits, else none.
static int poll_timeout_ms(struct mr_pager *pager) {
  if (pager->fault_count == 0) {
    pager->waiting_since_ms = 0;
    return -1;
  }
  if (pager->waiting_since_ms == 0) {
    pager->waiting_since_ms = now_ms();
    atomic_fetch_add_explicit(&pager->counters.waits, 1, memory_order_relaxed);
  }
  if (pager->timeout_ms == 0) return -1;
  const int64_t rest = pager->waiting_since_ms + pager->timeout_ms - now_ms();
  if (rest > 0) return (int)rest;
  fail(pager, FAILURE_TIMED_OUT);
  return 0;
}

void *mr_pager_run(void *data) {
  struct mr_pager *pager = data;
  struct pollfd fds[4] = {
      {.fd = pager->uffd, .events = POLLIN},
      {.fd = pager->own_event, .events = POLLIN},
      {.fd = pager->command, .events = POLLIN},
      {.fd = pager->lifeline, .events = POLLIN}, // poll() ignores -1
  };
  while (!atomic_load(&pager->is_stopping)) {
    // While the table is full, further faults stay in the kernel; they are read once a faulting
    // thread was woken.
    fds[0].fd = pager->fault_count < MR_PAGER_FAULTS ? pager->uffd : -1;
    fds[3].fd = pager->has_peer_gone ? -1 : pager->lifeline;
    if (poll(fds, 4, poll_timeout_ms(pager)) < 0 && errno != EINTR) fail(pager, FAILURE_SYSTEM + errno);
    // Drained before the counters are loaded, so that a later change signals the eventfd again.
    if (fds[1].revents != 0) drain_event(pager->own_event);
    if (fds[2].revents != 0) drain_event(pager->command);
    if (fds[0].fd >= 0 && fds[0].revents != 0) read_faults(pager);
    if (fds[3].fd >= 0) check_lifeline(pager, fds[3].revents);
    advance(pager);
  }
  // The stream has ended or failed before the pager is stopped, so threads that still wait get
  // zeroes.
  if (pager->fault_count == 0) read_faults(pager);
  advance(pager);
  return NULL;
}
