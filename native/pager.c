// Pagers as JavaScript sees them: started with a window, told to finish, stopped; and failed from
// any thread of the process.
//
// A thread that waits in a page fault cannot be reached from JavaScript, nor by worker.terminate().
// So all pagers of the process are in one list, and code that is about to terminate a thread, or to
// leave the process, fails its pagers first.
#include "pager.h"
#include "addon.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HUGE_PAGE = 2 << 20, LEDGER_BYTES = 4096, DOOMED = 64 };

static const napi_type_tag pager_tag = {0x6d696c6c72616365, 0x70616765722d7566};

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct mr_pager *all;
// Threads whose pagers were failed last. Numbers of threads are never used again in a process; 0 is
// the main thread.
static int32_t doomed[DOOMED];
static uint32_t doomed_next;

static bool is_owned_by(const struct mr_pager *pager, int32_t owner) {
  for (int i = 0; i < MR_PAGER_OWNERS; i++) {
    if (pager->owners[i] == owner) return true;
  }
  return false;
}

// False when the thread, or one that it hangs on, is about to end.
static bool enter_list(struct mr_pager *pager) {
  bool is_doomed = false;
  pthread_mutex_lock(&list_lock);
  for (int i = 0; i < DOOMED; i++)
    is_doomed |= doomed[i] > 0 && is_owned_by(pager, doomed[i]);
  if (!is_doomed) {
    pager->next = all;
    all = pager;
  }
  pthread_mutex_unlock(&list_lock);
  return !is_doomed;
}

static void leave_list(struct mr_pager *pager) {
  pthread_mutex_lock(&list_lock);
  for (struct mr_pager **at = &all; *at != NULL; at = &(*at)->next) {
    if (*at != pager) continue;
    *at = pager->next;
    break;
  }
  pthread_mutex_unlock(&list_lock);
}

static void give_order(struct mr_pager *pager) {
  const uint64_t one = 1;
  if (write(pager->command, &one, sizeof(one)) < 0) return; // full: it is awake anyway
}

// Frees what both holders have let go of.
static void release_if_free(struct mr_pager *pager) {
  if (pager->is_running || pager->has_buffer) return;
  if (pager->window != NULL) munmap(pager->window, pager->window_bytes);
  free(pager->slot_block);
  free(pager->slot_is_headless);
  free(pager);
}

static void close_if_open(int *fd) {
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

// All but the window, which lives as long as its ArrayBuffer.
static void release_parts(struct mr_pager *pager) {
  int *const fds[] = {&pager->uffd,        &pager->pool_fd,  &pager->guard_fd, &pager->sink_fd, &pager->own_event,
                      &pager->other_event, &pager->doorbell, &pager->command,  &pager->lifeline};
  // Closing the userfaultfd first wakes threads that still wait; the window is plain memory from
  // then on.
  for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
    close_if_open(fds[i]);
  if (pager->pool != NULL) munmap(pager->pool, (size_t)pager->pool_blocks * pager->block_bytes);
  if (pager->ledger != NULL) munmap(pager->ledger, LEDGER_BYTES);
  pager->pool = NULL;
  pager->ledger = NULL;
}

static void stop(struct mr_pager *pager) {
  leave_list(pager);
  atomic_store(&pager->is_stopping, true);
  give_order(pager);
  pthread_join(pager->thread, NULL);
  release_parts(pager);
}

// The environment lets go.
static void let_go(struct mr_pager *pager) {
  pager->is_running = false;
  release_if_free(pager);
}

// The environment ends with the stream still open: its thread threw, returned early, or was
// terminated.
static void environment_ends(void *data) {
  struct mr_pager *pager = data;
  if (!mr_pager_is_through(pager)) mr_pager_fail(pager, FAILURE_TERMINATED);
  stop(pager);
  let_go(pager);
}

static void buffer_gone(napi_env env, void *data, void *hint) {
  struct mr_pager *pager = hint;
  pager->has_buffer = false;
  release_if_free(pager);
}

static int duplicate(int fd) {
  return fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
}

// Aligned to huge pages, as the pool may be of them.
static int reserve_window(struct mr_pager *pager) {
  const size_t length = pager->window_bytes + HUGE_PAGE;
  uint8_t *start = mmap(NULL, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED) return -errno;
  uint8_t *window = (uint8_t *)(((uintptr_t)start + HUGE_PAGE - 1) & ~((uintptr_t)HUGE_PAGE - 1));
  if (window > start) munmap(start, (size_t)(window - start));
  munmap(window + pager->window_bytes, (size_t)(start + length - (window + pager->window_bytes)));
  pager->window = window;
  return 0;
}

// The parts that are the pager's own. 0 or -errno; what was made the calling function releases.
static int make_parts(struct mr_pager *pager) {
  struct stat status;
  pager->slot_block = malloc((size_t)pager->pool_blocks * sizeof(*pager->slot_block));
  pager->slot_is_headless = calloc((size_t)pager->pool_blocks, sizeof(*pager->slot_is_headless));
  if (pager->slot_block == NULL || pager->slot_is_headless == NULL) return -ENOMEM;
  for (int64_t i = 0; i < pager->pool_blocks; i++)
    pager->slot_block[i] = -1;
  for (int i = 0; i < MR_PAGER_SINKS; i++)
    pager->sinks[i] = -1;
  if (fstat(pager->pool_fd, &status) < 0) return -errno;
  // Checked here too: a slot outside the file would be a SIGBUS.
  if (status.st_size < pager->pool_blocks * (off_t)pager->block_bytes) return -EINVAL;
  pager->page_bytes = status.st_blksize == HUGE_PAGE ? HUGE_PAGE : 4096;
  pager->guard_fd = memfd_create("vortex-guard", MFD_CLOEXEC);
  pager->sink_fd = memfd_create("vortex-sink", MFD_CLOEXEC);
  pager->command = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (pager->guard_fd < 0 || pager->sink_fd < 0 || pager->command < 0) return -errno;
  if (ftruncate(pager->guard_fd, (off_t)pager->window_bytes) < 0) return -errno;
  if (ftruncate(pager->sink_fd, (off_t)pager->block_bytes) < 0) return -errno;
  const int protection = PROT_READ | PROT_WRITE;
  void *pool = mmap(NULL, (size_t)pager->pool_blocks * pager->block_bytes, protection, MAP_SHARED, pager->pool_fd, 0);
  if (pool == MAP_FAILED) return -errno;
  pager->pool = pool;
  const int result = reserve_window(pager);
  return result < 0 ? result : mr_pager_guard(pager, 0, pager->window_blocks);
}

// The thread takes no signals: those are Node's.
static int start_thread(struct mr_pager *pager) {
  sigset_t every, before;
  sigfillset(&every);
  pthread_sigmask(SIG_SETMASK, &every, &before);
  const int error = pthread_create(&pager->thread, NULL, mr_pager_run, pager);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (error == 0) pthread_setname_np(pager->thread, pager->is_producer ? "vortex-out" : "vortex-in");
  return -error;
}

static struct mr_pager *parse_start(napi_env env, napi_value *argv) {
  int32_t fds[6], ledger_fd, role, pool_blocks, revisit, ahead, timeout_ms, does_clear;
  size_t window_bytes, block_bytes;
  uint8_t *owners;
  size_t owner_bytes;
  for (int i = 0; i < 6; i++) {
    if (!mr_int(env, argv[i], &fds[i])) return NULL;
  }
  if (!mr_int(env, argv[6], &ledger_fd) || !mr_size(env, argv[7], &window_bytes) ||
      !mr_size(env, argv[8], &block_bytes) || !mr_int(env, argv[9], &pool_blocks) || !mr_int(env, argv[10], &role) ||
      !mr_int(env, argv[11], &revisit) || !mr_int(env, argv[12], &ahead) || !mr_int(env, argv[13], &timeout_ms) ||
      !mr_int(env, argv[14], &does_clear) || !mr_bytes(env, argv[15], &owners, &owner_bytes)) {
    return NULL;
  }
  if (block_bytes < 4096 || (block_bytes & (block_bytes - 1)) != 0 || window_bytes < block_bytes ||
      window_bytes % block_bytes != 0 || window_bytes / block_bytes > INT32_MAX || pool_blocks < 1 || revisit < 0 ||
      ahead < 0 || timeout_ms < 0 || owner_bytes > MR_PAGER_OWNERS * sizeof(int32_t)) {
    mr_throw_range(env, "a pager with these sizes cannot be");
    return NULL;
  }
  struct mr_pager *pager = calloc(1, sizeof(*pager));
  if (pager == NULL) {
    napi_throw_error(env, "ENOMEM", "no memory for a pager");
    return NULL;
  }
  memset(pager->owners, 0xff, sizeof(pager->owners));
  memcpy(pager->owners, owners, owner_bytes);
  pager->window_bytes = window_bytes;
  pager->window_blocks = (int64_t)(window_bytes / block_bytes);
  pager->block_bytes = block_bytes;
  pager->pool_blocks = pool_blocks;
  pager->is_producer = role != 0;
  pager->does_clear = does_clear != 0;
  pager->revisit = revisit;
  pager->ahead = ahead;
  pager->timeout_ms = timeout_ms;
  pager->top = -1;
  atomic_store(&pager->counters.top, -1);
  atomic_store(&pager->finish_end, -1);
  pager->guard_fd = pager->sink_fd = pager->command = -1;
  pager->uffd = duplicate(fds[0]);
  pager->pool_fd = duplicate(fds[1]);
  pager->own_event = duplicate(fds[2]);
  pager->other_event = duplicate(fds[3]);
  pager->doorbell = duplicate(fds[4]);
  pager->lifeline = duplicate(fds[5]);
  void *ledger = mmap(NULL, LEDGER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, ledger_fd, 0);
  pager->ledger = ledger == MAP_FAILED ? NULL : ledger;
  return pager;
}

static int start_all(struct mr_pager *pager) {
  if (pager->ledger == NULL || pager->uffd < 0 || pager->pool_fd < 0 || pager->own_event < 0 ||
      pager->other_event < 0 || pager->doorbell < 0) {
    return -EBADF;
  }
  int result = make_parts(pager);
  if (result < 0) return result;
  if (!enter_list(pager)) return -ECANCELED;
  result = start_thread(pager);
  if (result < 0) leave_list(pager);
  return result;
}

// userfault, pool, own event, other event, doorbell, lifeline (or -1), ledger, window bytes, block
// bytes, pool blocks, is a producer, revisit, ahead, timeout in ms, does clear, owners. All
// descriptors are duplicated. Returns [handle, ArrayBuffer] or -errno.
static napi_value pager_start(napi_env env, napi_callback_info info) {
  napi_value argv[16], buffer, external, result;
  if (!mr_args(env, info, 16, argv)) return NULL;
  struct mr_pager *pager = parse_start(env, argv);
  if (pager == NULL) return NULL;
  int error = start_all(pager);
  if (error < 0) {
    release_parts(pager);
    release_if_free(pager);
    return mr_return(env, error);
  }
  pager->is_running = pager->has_buffer = true;
  if (napi_create_external_arraybuffer(env, pager->window, pager->window_bytes, buffer_gone, pager, &buffer) !=
      napi_ok) {
    stop(pager);
    pager->has_buffer = false;
    let_go(pager);
    return mr_return(env, -ENOMEM);
  }
  napi_add_env_cleanup_hook(env, environment_ends, pager);
  napi_create_external(env, pager, NULL, NULL, &external);
  napi_type_tag_object(env, external, &pager_tag);
  napi_create_array_with_length(env, 2, &result);
  napi_set_element(env, result, 0, external);
  napi_set_element(env, result, 1, buffer);
  return result;
}

static struct mr_pager *pager_of(napi_env env, napi_value value) {
  napi_valuetype type = napi_undefined;
  bool is_ours = false;
  void *data = NULL;
  napi_typeof(env, value, &type);
  if (type == napi_external) napi_check_object_type_tag(env, value, &pager_tag, &is_ours);
  if (is_ours && napi_get_value_external(env, value, &data) == napi_ok) return data;
  napi_throw_type_error(env, "ERR_INVALID_ARG_TYPE", "expected a pager");
  return NULL;
}

// Handle, end: after the last touch, all blocks below `end` are given away as they can be.
static napi_value pager_finish(napi_env env, napi_callback_info info) {
  napi_value argv[2];
  size_t end;
  if (!mr_args(env, info, 2, argv)) return NULL;
  struct mr_pager *pager = pager_of(env, argv[0]);
  if (pager == NULL || !mr_size(env, argv[1], &end)) return NULL;
  atomic_store(&pager->finish_end, (int64_t)end);
  give_order(pager);
  return NULL;
}

// Handle, ArrayBuffer. Once only: the handle is dead afterwards. Detaches the buffer, so that every
// view of it has length 0, ends the thread and unmaps, unless the bytes were moved into another
// ArrayBuffer: then that one keeps the addresses.
static napi_value pager_stop(napi_env env, napi_callback_info info) {
  napi_value argv[2];
  void *data = NULL;
  size_t size = 0;
  if (!mr_args(env, info, 2, argv)) return NULL;
  struct mr_pager *pager = pager_of(env, argv[0]);
  if (pager == NULL) return NULL;
  napi_remove_env_cleanup_hook(env, environment_ends, pager);
  stop(pager);
  const bool is_attached = napi_get_arraybuffer_info(env, argv[1], &data, &size) == napi_ok && data == pager->window;
  if (is_attached && pager->has_buffer && napi_detach_arraybuffer(env, argv[1]) == napi_ok) {
    munmap(pager->window, pager->window_bytes);
    pager->window = NULL;
  }
  let_go(pager);
  return NULL;
}

// Handle: [faults, blocks mapped, zero blocks mapped, highest block touched, waits].
static napi_value pager_counters(napi_env env, napi_callback_info info) {
  napi_value argv[1], result;
  if (!mr_args(env, info, 1, argv)) return NULL;
  struct mr_pager *pager = pager_of(env, argv[0]);
  if (pager == NULL) return NULL;
  struct mr_pager_counters *counters = &pager->counters;
  const int64_t values[] = {(int64_t)atomic_load(&counters->faults), (int64_t)atomic_load(&counters->mapped),
                            (int64_t)atomic_load(&counters->sinks), atomic_load(&counters->top),
                            (int64_t)atomic_load(&counters->waits)};
  napi_create_array_with_length(env, 5, &result);
  for (uint32_t i = 0; i < 5; i++)
    napi_set_element(env, result, i, mr_return(env, values[i]));
  return result;
}

// Thread (-1: all), code: fails the streams whose windows belong to a thread, and those it may
// still open. From any thread. Returns how many there were.
static napi_value pagers_fail(napi_env env, napi_callback_info info) {
  int32_t arg[2];
  if (!mr_int_args(env, info, 2, arg)) return NULL;
  int count = 0;
  pthread_mutex_lock(&list_lock);
  if (arg[0] > 0) doomed[doomed_next++ % DOOMED] = arg[0];
  for (struct mr_pager *pager = all; pager != NULL; pager = pager->next) {
    if (arg[0] >= 0 && !is_owned_by(pager, arg[0])) continue;
    atomic_store(&pager->ordered_failure, arg[1]);
    give_order(pager);
    count++;
  }
  pthread_mutex_unlock(&list_lock);
  return mr_return(env, count);
}

MR_EXPORTS(pager) {
  const napi_property_descriptor functions[] = {
      MR_FUNCTION("pagerStart", pager_start), MR_FUNCTION("pagerFinish", pager_finish),
      MR_FUNCTION("pagerStop", pager_stop),   MR_FUNCTION("pagerCounters", pager_counters),
      MR_FUNCTION("pagersFail", pagers_fail),
  };
  return MR_DEFINE(env, exports, functions);
}
