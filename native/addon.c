// The module itself: one state per environment, argument parsing, and the release of all that an
// environment leaves.
#include "addon.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const double max_safe = 9007199254740991.0;

struct mr_state *mr_state(napi_env env) {
  void *data = NULL;
  napi_get_instance_data(env, &data);
  return data;
}

bool mr_args(napi_env env, napi_callback_info info, size_t count, napi_value *argv) {
  size_t got = count;
  if (napi_get_cb_info(env, info, &got, argv, NULL, NULL) == napi_ok && got >= count) return true;
  napi_throw_type_error(env, "ERR_MISSING_ARGS", "too few arguments");
  return false;
}

static bool wrong_type(napi_env env, const char *expected) {
  napi_throw_type_error(env, "ERR_INVALID_ARG_TYPE", expected);
  return false;
}

// napi_get_value_int32 makes 0 of NaN, and 0 may be an open descriptor: only whole numbers pass
// here. Flags may use the top bit, so both ways to write 32 bits are taken.
bool mr_int(napi_env env, napi_value value, int32_t *out) {
  double number;
  if (napi_get_value_double(env, value, &number) != napi_ok) return wrong_type(env, "expected an integer");
  if (!(number >= INT32_MIN && number <= UINT32_MAX) || number != (double)(int64_t)number) {
    mr_throw_range(env, "expected a whole number of 32 bits");
    return false;
  }
  *out = (int32_t)(uint32_t)(int64_t)number;
  return true;
}

bool mr_int_args(napi_env env, napi_callback_info info, size_t count, int32_t *out) {
  napi_value argv[5];
  if (!mr_args(env, info, count, argv)) return false;
  for (size_t i = 0; i < count; i++) {
    if (!mr_int(env, argv[i], &out[i])) return false;
  }
  return true;
}

bool mr_double(napi_env env, napi_value value, double *out) {
  if (napi_get_value_double(env, value, out) == napi_ok && !isnan(*out)) return true;
  return wrong_type(env, "expected a number");
}

struct timespec mr_timespec(double ns) {
  if (!(ns > 0)) return (struct timespec){0};
  double clamped = ns < 1e18 ? ns : 1e18;
  time_t seconds = (time_t)(clamped / 1e9);
  // Close below a whole second the division may round up to it.
  double rest = clamped - (double)seconds * 1e9;
  return (struct timespec){.tv_sec = seconds, .tv_nsec = rest > 0 ? (long)rest : 0};
}

bool mr_size(napi_env env, napi_value value, size_t *out) {
  double number;
  if (napi_get_value_double(env, value, &number) != napi_ok) return wrong_type(env, "expected a size");
  if (!(number >= 0 && number <= max_safe) || number != (double)(size_t)number) {
    mr_throw_range(env, "a size or offset must be a whole number from 0 to 2^53-1");
    return false;
  }
  *out = (size_t)number;
  return true;
}

bool mr_bytes(napi_env env, napi_value value, uint8_t **data, size_t *size) {
  napi_typedarray_type type;
  void *start = NULL;
  bool is_typed = false;
  napi_is_typedarray(env, value, &is_typed);
  if (!is_typed || napi_get_typedarray_info(env, value, &type, size, &start, NULL, NULL) != napi_ok ||
      type != napi_uint8_array) {
    return wrong_type(env, "expected a Uint8Array");
  }
  // An empty array has no storage; give the kernel a valid address all the same.
  static uint8_t nothing;
  *data = start != NULL ? start : &nothing;
  return true;
}

bool mr_string(napi_env env, napi_value value, char *out, size_t capacity) {
  size_t length = 0;
  if (napi_get_value_string_utf8(env, value, NULL, 0, &length) != napi_ok) return wrong_type(env, "expected a string");
  if (length >= capacity) {
    mr_throw_range(env, "string too long");
    return false;
  }
  napi_get_value_string_utf8(env, value, out, capacity, &length);
  if (strlen(out) != length) return wrong_type(env, "expected a string without NUL");
  return true;
}

napi_value mr_throw_range(napi_env env, const char *message) {
  napi_throw_range_error(env, "ERR_OUT_OF_RANGE", message);
  return NULL;
}

bool mr_range(napi_env env, int32_t id, size_t offset, size_t length, uint8_t **out) {
  struct mr_state *state = mr_state(env);
  const struct mr_mapping *mapping = NULL;
  if (id >= 0 && (uint32_t)id < state->mapping_slots) mapping = state->mappings[id];
  if (mapping == NULL || mapping->addr == NULL) {
    napi_throw_error(env, "ERR_MEMORY_CLOSED", "the memory is closed");
    return false;
  }
  if (offset > mapping->size || length > mapping->size - offset) {
    mr_throw_range(env, "the range is not inside the memory");
    return false;
  }
  *out = mapping->addr + offset;
  return true;
}

bool mr_range_args(napi_env env, const napi_value *argv, uint8_t **out, size_t *length) {
  int32_t id;
  size_t offset;
  return mr_int(env, argv[0], &id) && mr_size(env, argv[1], &offset) && mr_size(env, argv[2], length) &&
         mr_range(env, id, offset, *length, out);
}

napi_value mr_return(napi_env env, int64_t result) {
  napi_value value = NULL;
  // Small integers are not allocated on the JavaScript heap.
  if (result >= INT32_MIN && result <= INT32_MAX)
    napi_create_int32(env, (int32_t)result, &value);
  else
    napi_create_int64(env, result, &value);
  return value;
}

napi_value mr_result(napi_env env, int64_t result) {
  return mr_return(env, result < 0 ? -errno : result);
}

int mr_own(struct mr_state *state, int fd) {
  uint32_t byte = (uint32_t)fd / 8;
  if (byte >= state->owned_bytes) {
    uint32_t bytes = (byte + 1) * 2;
    uint8_t *grown = realloc(state->owned_fds, bytes);
    if (grown == NULL) {
      close(fd);
      return -ENOMEM;
    }
    memset(grown + state->owned_bytes, 0, bytes - state->owned_bytes);
    state->owned_fds = grown;
    state->owned_bytes = bytes;
  }
  state->owned_fds[byte] |= (uint8_t)(1u << (fd % 8));
  return 0;
}

bool mr_disown(struct mr_state *state, int fd) {
  uint32_t byte = (uint32_t)fd / 8;
  uint8_t bit = (uint8_t)(1u << (fd & 7));
  if (fd < 0 || byte >= state->owned_bytes || (state->owned_fds[byte] & bit) == 0) return false;
  state->owned_fds[byte] &= (uint8_t)~bit;
  return true;
}

napi_value mr_own_result(napi_env env, int fd) {
  if (fd < 0) return mr_return(env, -errno);
  int owned = mr_own(mr_state(env), fd);
  return mr_return(env, owned < 0 ? owned : fd);
}

// Runs when the environment ends, also for a worker that was terminated in the middle of something.
// What is mapped is unmapped by the finalizer of its ArrayBuffer, once nothing can reach it any
// more; that may be before or after this.
static void release(napi_env env, void *data, void *hint) {
  struct mr_state *state = data;
  mr_ibv_release(state);
  for (uint32_t fd = 0; fd < state->owned_bytes * 8; fd++) {
    if (state->owned_fds[fd / 8] & (1u << (fd % 8))) close((int)fd);
  }
  for (uint32_t i = 0; i < state->mapping_slots; i++) {
    if (state->mappings[i] != NULL) mr_mapping_leave_table(state->mappings[i]);
  }
  free(state->owned_fds);
  free(state->mappings);
  free(state);
}

static napi_status create_scratch(napi_env env, napi_value exports, struct mr_state *state) {
  napi_value buffer, array;
  void *data;
  napi_status status = napi_create_arraybuffer(env, sizeof(double), &data, &buffer);
  if (status == napi_ok) status = napi_create_typedarray(env, napi_float64_array, 1, buffer, 0, &array);
  if (status != napi_ok) return status;
  state->scratch = data;
  napi_property_descriptor property = {"scratch", NULL, NULL, NULL, NULL, array, napi_enumerable, NULL};
  return napi_define_properties(env, exports, 1, &property);
}

NAPI_MODULE_INIT() {
  struct mr_state *state = calloc(1, sizeof(*state));
  if (state == NULL || napi_set_instance_data(env, state, release, NULL) != napi_ok) {
    free(state);
    napi_throw_error(env, "ENOMEM", "no memory for the addon's state");
    return NULL;
  }
  napi_status (*const facilities[])(napi_env, napi_value) = {
      mr_export_memory,       mr_export_futex,      mr_export_fd,      mr_export_epoll,
      mr_export_socket,       mr_export_fdpass,     mr_export_thread,  mr_export_bpf,
      mr_export_bpf_map,      mr_export_userfault,  mr_export_kvm,     mr_export_library,
      mr_export_watch,        mr_export_atomic,     mr_export_ibverbs, mr_export_ibverbs_objects,
      mr_export_ibverbs_data, mr_export_datagram,   mr_export_icrc,    mr_export_pager,
      mr_export_netlink,      mr_export_privileges, mr_export_exec,    mr_export_aside,
  };
  napi_status status = create_scratch(env, exports, state);
  for (size_t i = 0; status == napi_ok && i < sizeof(facilities) / sizeof(facilities[0]); i++) {
    status = facilities[i](env, exports);
  }
  if (status != napi_ok) napi_throw_error(env, NULL, "the addon could not export its functions");
  return exports;
}
