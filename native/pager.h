// A pager: the thread that turns page faults of a window into blocks of a Vortex stream. Shared by pager.c, which makes
// and ends it, and pager-thread.c, which is what it does.
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Words of the ledger, as in src/vortex/stream/block-queue.ts.
enum {
  LEDGER_FAILURE = 4,
  LEDGER_SIZE_KNOWN = 5,
  LEDGER_SIZE = 6,
  LEDGER_COMMITTED = 16,
  LEDGER_RELEASED = 32,
  LEDGER_NEWS = 48,
  LEDGER_SLEEPERS = 49,
};

// Why a stream failed, as in src/vortex/stream/failure.ts; from FAILURE_SYSTEM on, plus an errno.
enum {
  FAILURE_PEER_DIED = 1,
  FAILURE_TIMED_OUT = 3,
  FAILURE_BEHIND = 4,
  FAILURE_PAST_END = 5,
  FAILURE_PROTOCOL = 8,
  FAILURE_TERMINATED = 9,
  FAILURE_SYSTEM = 1000,
};

enum { MR_PAGER_FAULTS = 64, MR_PAGER_SINKS = 64, MR_PAGER_OWNERS = 8 };

struct mr_pager_counters {
  _Atomic uint64_t faults; // messages of userfaultfd
  _Atomic uint64_t mapped; // blocks put into the window
  _Atomic uint64_t sinks;  // zero blocks put there instead
  _Atomic int64_t top;     // the highest block the program has touched, -1 before
  _Atomic uint64_t waits;  // times a fault had to wait for the other side
};

struct mr_pager {
  // Set before the thread starts, never changed by it.
  uint8_t *window;
  size_t window_bytes; // a multiple of block_bytes
  int64_t window_blocks;
  size_t block_bytes;
  int64_t pool_blocks;
  size_t page_bytes; // of the pool: what a mapping may begin at
  bool is_producer;
  bool does_clear; // slots are cleared before the producer gets them again
  int64_t revisit, ahead;
  int32_t timeout_ms; // 0: none
  uint8_t *pool;      // our own mapping of all slots
  uint32_t *ledger;   // shared with the other side, which may write anything
  int uffd, pool_fd, guard_fd, sink_fd, own_event, other_event, notice, command, peer;
  int32_t owners[MR_PAGER_OWNERS]; // the JavaScript thread it belongs to, and the threads that may terminate that one
  pthread_t thread;

  // Orders, written by any thread; then `command` is signalled.
  _Atomic bool is_stopping;
  _Atomic int32_t ordered_failure;
  _Atomic int64_t finish_end; // -1: not finished; else all blocks below it are given away

  // The thread's own.
  int64_t *slot_block;    // by slot: the block of the window it is mapped at, or -1
  bool *slot_is_headless; // by slot: mapped ahead, its first page still missing
  int64_t low;            // blocks below are given away
  int64_t top;            // the highest block touched
  int64_t theirs; // the other side's counter as last read: `released` for a producer, `committed` for a consumer
  int64_t faults[MR_PAGER_FAULTS];
  uint32_t fault_count;
  int64_t sinks[MR_PAGER_SINKS];
  uint32_t sink_next;
  bool has_peer_gone, has_notified_end, has_notified_failure, is_failed;
  int64_t waiting_since_ms; // 0: no fault waits

  struct mr_pager_counters counters;

  // Who holds this struct: the environment (until stopped) and the ArrayBuffer over the window.
  bool is_running, has_buffer;
  struct mr_pager *next; // in the list of all of the process
};

void *mr_pager_run(void *pager);
// Records a failure unless there is one already, and tells both sides.
void mr_pager_fail(struct mr_pager *pager, int32_t code);
// Whether this side has given all of the stream away: whatever becomes of it does not matter to the other one.
bool mr_pager_is_through(struct mr_pager *pager);
// Puts the untouched, registered state back: a touch of these blocks is a fault. 0 or -errno.
int mr_pager_guard(struct mr_pager *pager, int64_t first, int64_t count);
