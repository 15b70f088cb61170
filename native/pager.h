// A pager: the thread that serves the page faults of a Vortex window. pager.c creates and stops it;
// pager-thread.c is the thread itself.
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
  LEDGER_EVENT_COUNT = 48,
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
  _Atomic uint64_t waits;  // faults that had to wait for the other end
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
  uint32_t *ledger;   // shared with the other end, which may write anything
  int uffd, pool_fd, guard_fd, sink_fd, own_event, other_event, doorbell, command, lifeline;
  // the JavaScript thread it belongs to, and the threads that may terminate that one
  int32_t owners[MR_PAGER_OWNERS];
  pthread_t thread;

  // Orders, written by any thread, which then signals `command`.
  _Atomic bool is_stopping;
  _Atomic int32_t ordered_failure;
  _Atomic int64_t finish_end; // -1: not finished; else all blocks below it are given away

  // Used by the pager's thread alone.
  int64_t *slot_block;    // by slot: the block of the window it is mapped at, or -1
  bool *slot_is_headless; // by slot: mapped ahead, its first page still missing
  int64_t low;            // blocks below are given away
  int64_t top;            // the highest block touched
  int64_t theirs; // the other end's counter as last loaded: `released` for a producer, `committed` for a consumer
  int64_t faults[MR_PAGER_FAULTS];
  uint32_t fault_count;
  int64_t sinks[MR_PAGER_SINKS];
  uint32_t sink_next;
  bool has_peer_gone, has_notified_end, has_notified_failure, is_failed;
  int64_t waiting_since_ms; // 0: no fault waits

  struct mr_pager_counters counters;

  // What keeps this struct alive: the environment (until stopped) and the ArrayBuffer over the
  // window.
  bool is_running, has_buffer;
  struct mr_pager *next; // in the list of all of the process
};

void *mr_pager_run(void *pager);
// Stores a failure unless there is one already, and wakes both ends.
void mr_pager_fail(struct mr_pager *pager, int32_t code);
// Whether this end has given the whole stream away, so that its failure does not matter to the
// other end.
bool mr_pager_is_through(struct mr_pager *pager);
// Maps the guard over blocks and registers them, so that touching them causes a fault. Returns 0 or
// -errno.
int mr_pager_guard(struct mr_pager *pager, int64_t first, int64_t count);
