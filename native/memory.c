// Shared memory: memfds, mappings of them as ArrayBuffers, and copies between mappings.
#include "addon.h"

#include <fcntl.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define HUGE_BYTES ((size_t)2 << 20)
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 // Linux 6.1
#endif

static napi_value memfd_create_(napi_env env, napi_callback_info info) {
  napi_value argv[3];
  char name[64];
  size_t size;
  int32_t flags;
  if (!mr_args(env, info, 3, argv) || !mr_string(env, argv[0], name, sizeof(name)) || !mr_size(env, argv[1], &size) ||
      !mr_int(env, argv[2], &flags)) {
    return NULL;
  }
  int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | (unsigned)flags);
  if (fd < 0) return mr_return(env, -errno);
  // Sealed against shrinking: a peer that holds the descriptor cannot take pages away from under
  // our mapping (SIGBUS).
  if (ftruncate(fd, (off_t)size) < 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) < 0) {
    int error = errno;
    close(fd);
    return mr_return(env, -error);
  }
  return mr_own_result(env, fd);
}

// The bytes behind a descriptor: how much of it may be mapped, and whether it can shrink under us.
static napi_value memory_size(napi_env env, napi_callback_info info) {
  int32_t fd;
  if (!mr_int_args(env, info, 1, &fd)) return NULL;
  struct stat status;
  if (fstat(fd, &status) < 0) return mr_return(env, -errno);
  return mr_return(env, status.st_size);
}

static napi_value seals(napi_env env, napi_callback_info info) {
  int32_t fd;
  if (!mr_int_args(env, info, 1, &fd)) return NULL;
  return mr_result(env, fcntl(fd, F_GET_SEALS));
}

static napi_value add_seals(napi_env env, napi_callback_info info) {
  int32_t arg[2]; // memory, seals
  if (!mr_int_args(env, info, 2, arg)) return NULL;
  return mr_result(env, fcntl(arg[0], F_ADD_SEALS, arg[1]));
}

// 1 when pages of any arena were given back to the kernel.
static napi_value trim_malloc(napi_env env, napi_callback_info info) {
  (void)info;
  return mr_return(env, malloc_trim(0));
}

// Gives the pages of a range back to the system: they read as zero from now on. The range need not
// be mapped here.
static napi_value punch_hole(napi_env env, napi_callback_info info) {
  napi_value argv[3];
  int32_t fd;
  size_t offset, size;
  if (!mr_args(env, info, 3, argv) || !mr_int(env, argv[0], &fd) || !mr_size(env, argv[1], &offset) ||
      !mr_size(env, argv[2], &size)) {
    return NULL;
  }
  return mr_result(env, fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)size));
}

void mr_mapping_leave_table(struct mr_mapping *mapping) {
  mapping->is_in_table = false;
  if (!mapping->has_buffer) free(mapping);
}

// The last ArrayBuffer that could reach the memory is gone.
static void buffer_gone(napi_env env, void *data, void *hint) {
  struct mr_mapping *mapping = hint;
  if (mapping->addr != NULL) munmap(mapping->addr, mapping->size);
  mapping->addr = NULL;
  mapping->has_buffer = false;
  if (!mapping->is_in_table) free(mapping);
}

static int32_t free_slot(struct mr_state *state) {
  for (uint32_t i = 0; i < state->mapping_slots; i++) {
    if (state->mappings[i] == NULL) return (int32_t)i;
  }
  uint32_t slots = state->mapping_slots == 0 ? 16 : state->mapping_slots * 2;
  struct mr_mapping **grown = realloc(state->mappings, slots * sizeof(*grown));
  if (grown == NULL) return -1;
  memset(grown + state->mapping_slots, 0, (slots - state->mapping_slots) * sizeof(*grown));
  int32_t slot = (int32_t)state->mapping_slots;
  state->mappings = grown;
  state->mapping_slots = slots;
  return slot;
}

// Where a huge page could lie, if the memory is large enough for one. Only a hint: another thread
// may be quicker.
static void *place_for(size_t size) {
  if (size < HUGE_BYTES) return NULL;
  uint8_t *room = mmap(NULL, size + HUGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return NULL;
  munmap(room, size + HUGE_BYTES);
  return room + (HUGE_BYTES - (uintptr_t)room % HUGE_BYTES) % HUGE_BYTES;
}

// Returns [number, ArrayBuffer], or -errno. The ArrayBuffer shows `view` bytes, from the first one.
static napi_value map(napi_env env, napi_callback_info info) {
  napi_value argv[6], buffer, result;
  int32_t fd, protection, flags;
  size_t offset, size, view;
  if (!mr_args(env, info, 6, argv) || !mr_int(env, argv[0], &fd) || !mr_size(env, argv[1], &offset) ||
      !mr_size(env, argv[2], &size) || !mr_int(env, argv[3], &protection) || !mr_int(env, argv[4], &flags) ||
      !mr_size(env, argv[5], &view)) {
    return NULL;
  }
  if (view > size) return mr_return(env, -EINVAL);
  struct mr_state *state = mr_state(env);
  int32_t id = free_slot(state);
  struct mr_mapping *mapping = calloc(1, sizeof(*mapping));
  if (id < 0 || mapping == NULL) {
    free(mapping);
    return mr_return(env, -ENOMEM);
  }
  void *addr = mmap(place_for(size), size, protection, MAP_SHARED | flags, fd, (off_t)offset);
  if (addr == MAP_FAILED) {
    int error = errno;
    free(mapping);
    return mr_return(env, -error);
  }
  *mapping = (struct mr_mapping){.addr = addr, .size = size, .is_in_table = true, .has_buffer = true};
  if (napi_create_external_arraybuffer(env, addr, view, buffer_gone, mapping, &buffer) != napi_ok) {
    munmap(addr, size);
    free(mapping);
    return mr_return(env, -ENOMEM);
  }
  state->mappings[id] = mapping;
  napi_create_array_with_length(env, 2, &result);
  napi_set_element(env, result, 0, mr_return(env, id));
  napi_set_element(env, result, 1, buffer);
  return result;
}

// Range, is_now: asks for transparent huge pages, where what is touched later gets them; or makes
// them now, for all who have mapped it. -EINVAL where the kernel has none, another -errno where
// some of it could not be.
static napi_value advise_huge(napi_env env, napi_callback_info info) {
  napi_value argv[4];
  uint8_t *start;
  size_t length;
  int32_t is_now;
  if (!mr_args(env, info, 4, argv) || !mr_range_args(env, argv, &start, &length) || !mr_int(env, argv[3], &is_now)) {
    return NULL;
  }
  return mr_result(env, madvise(start, length, is_now ? MADV_COLLAPSE : MADV_HUGEPAGE));
}

static struct mr_mapping *take_from_table(napi_env env, napi_value number) {
  int32_t id;
  if (!mr_int(env, number, &id)) return NULL;
  struct mr_state *state = mr_state(env);
  if (id < 0 || (uint32_t)id >= state->mapping_slots || state->mappings[id] == NULL) {
    mr_throw_range(env, "no such mapping");
    return NULL;
  }
  struct mr_mapping *mapping = state->mappings[id];
  state->mappings[id] = NULL;
  return mapping;
}

// Detaches the ArrayBuffer, so that every view of it has length 0, then unmaps at once. Where the
// program has moved the bytes into another ArrayBuffer (`transfer()`), that one keeps the mapping
// alive until it is collected.
static napi_value unmap(napi_env env, napi_callback_info info) {
  napi_value argv[2];
  void *data = NULL;
  size_t size = 0;
  if (!mr_args(env, info, 2, argv)) return NULL;
  struct mr_mapping *mapping = take_from_table(env, argv[0]);
  if (mapping == NULL) return NULL;
  bool is_attached = mapping->addr != NULL && napi_get_arraybuffer_info(env, argv[1], &data, &size) == napi_ok &&
                     data == mapping->addr;
  if (is_attached && napi_detach_arraybuffer(env, argv[1]) == napi_ok) {
    munmap(mapping->addr, mapping->size);
    mapping->addr = NULL;
  }
  mr_mapping_leave_table(mapping);
  return NULL;
}

// For a mapping whose owner was collected without closing it: views that are still alive keep the
// memory.
static napi_value forget_mapping(napi_env env, napi_callback_info info) {
  napi_value argv[1];
  if (!mr_args(env, info, 1, argv)) return NULL;
  struct mr_mapping *mapping = take_from_table(env, argv[0]);
  if (mapping != NULL) mr_mapping_leave_table(mapping);
  return NULL;
}

// The ranges may overlap.
static napi_value copy(napi_env env, napi_callback_info info) {
  napi_value argv[5];
  int32_t to_id, from_id;
  size_t to_offset, from_offset, length;
  uint8_t *to, *from;
  if (!mr_args(env, info, 5, argv) || !mr_int(env, argv[0], &to_id) || !mr_size(env, argv[1], &to_offset) ||
      !mr_int(env, argv[2], &from_id) || !mr_size(env, argv[3], &from_offset) || !mr_size(env, argv[4], &length) ||
      !mr_range(env, to_id, to_offset, length, &to) || !mr_range(env, from_id, from_offset, length, &from)) {
    return NULL;
  }
  memmove(to, from, length);
  return NULL;
}

// A row of a list of copies, as in src/native/copies.ts.
struct copy_row {
  uint32_t from_id, to_id, from_low, from_high, to_low, to_high, length, unused;
};

static bool copy_range(napi_env env, uint32_t id, uint32_t low, uint32_t high, uint32_t length, uint8_t **out) {
  const uint64_t offset = low | (uint64_t)high << 32;
  if (id > INT32_MAX || offset > (uint64_t)1 << 53) {
    mr_throw_range(env, "a list of copies holds a row that is no range");
    return false;
  }
  return mr_range(env, (int32_t)id, (size_t)offset, length, out);
}

// Rows, count: many copies in one call, in order. Each row is checked when its turn comes.
static napi_value copy_ranges(napi_env env, napi_callback_info info) {
  int32_t arg[2];
  uint8_t *rows;
  if (!mr_int_args(env, info, 2, arg)) return NULL;
  if (arg[1] < 1) return mr_throw_range(env, "a list of copies has at least one row");
  if (!mr_range(env, arg[0], 0, (size_t)arg[1] * sizeof(struct copy_row), &rows)) return NULL;
  for (int32_t i = 0; i < arg[1]; i++) {
    struct copy_row row;
    uint8_t *from, *to;
    memcpy(&row, rows + (size_t)i * sizeof(row), sizeof(row));
    if (!copy_range(env, row.from_id, row.from_low, row.from_high, row.length, &from) ||
        !copy_range(env, row.to_id, row.to_low, row.to_high, row.length, &to)) {
      return NULL;
    }
    memmove(to, from, row.length);
  }
  return mr_return(env, arg[1]);
}

MR_EXPORTS(memory) {
  const napi_property_descriptor functions[] = {
      MR_FUNCTION("memfdCreate", memfd_create_),
      MR_FUNCTION("memorySize", memory_size),
      MR_FUNCTION("seals", seals),
      MR_FUNCTION("addSeals", add_seals),
      MR_FUNCTION("punchHole", punch_hole),
      MR_FUNCTION("trimMalloc", trim_malloc),
      MR_FUNCTION("map", map),
      MR_FUNCTION("adviseHuge", advise_huge),
      MR_FUNCTION("unmap", unmap),
      MR_FUNCTION("forgetMapping", forget_mapping),
      MR_FUNCTION("copy", copy),
      MR_FUNCTION("copyRanges", copy_ranges),
  };
  return MR_DEFINE(env, exports, functions);
}
