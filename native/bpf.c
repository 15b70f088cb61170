// BPF objects by libbpf: open from bytes, choose, load, attach. Links and maps are descriptors,
// owned like all others.
#include "addon.h"
#include "libbpf.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// What a JavaScript handle points at. The object is NULL once closed.
struct mr_bpf {
  struct bpf_object *object;
};

static const napi_type_tag handle_tag = {0x6d696c6c72616365, 0x6270662d6f626a65};

// What libbpf says during one call of this thread: for a refused program that includes the
// verifier's log.
struct mr_log {
  char *text; // NULL while empty; ends in NUL
  size_t length;
};

static _Thread_local struct mr_log *listener;

static int listen_to_libbpf(enum libbpf_print_level level, const char *format, va_list args) {
  if (listener == NULL || level == LIBBPF_DEBUG) return 0;
  va_list again;
  va_copy(again, args);
  int length = vsnprintf(NULL, 0, format, again);
  va_end(again);
  char *grown = length < 0 ? NULL : realloc(listener->text, listener->length + (size_t)length + 1);
  if (grown == NULL) return 0; // a log with a gap is better than none
  vsnprintf(grown + listener->length, (size_t)length + 1, format, args);
  listener->text = grown;
  listener->length += (size_t)length;
  return length;
}

// [-errno or 0, what libbpf said]. Frees the log.
static napi_value result_and_log(napi_env env, int result, struct mr_log *log) {
  napi_value pair, text;
  napi_create_array_with_length(env, 2, &pair);
  napi_create_string_utf8(env, log->text != NULL ? log->text : "", log->length, &text);
  napi_set_element(env, pair, 0, mr_return(env, result));
  napi_set_element(env, pair, 1, text);
  free(log->text);
  return pair;
}

static void handle_gone(napi_env env, void *data, void *hint) {
  struct mr_bpf *handle = data;
  mr_libbpf()->bpf_object__close(handle->object);
  free(handle);
}

// False with an exception pending when the machine has no libbpf. A function that gets a handle
// need not check: opening it has.
static bool has_libbpf(napi_env env) {
  if (mr_libbpf() != NULL) return true;
  napi_throw_error(env, "ERR_NO_LIBBPF", "there is no libbpf.so.1");
  return false;
}

static napi_value is_available(napi_env env, napi_callback_info info) {
  napi_value result;
  napi_get_boolean(env, mr_libbpf() != NULL, &result);
  return result;
}

// Returns a handle, or [-errno, log]. libbpf copies what it needs out of the bytes.
static napi_value open_object(napi_env env, napi_callback_info info) {
  napi_value argv[2], external;
  uint8_t *bytes;
  size_t size;
  char name[64];
  if (!mr_args(env, info, 2, argv) || !mr_bytes(env, argv[0], &bytes, &size) ||
      !mr_string(env, argv[1], name, sizeof(name))) {
    return NULL;
  }
  if (!has_libbpf(env)) return NULL;
  struct mr_bpf *handle = calloc(1, sizeof(*handle));
  struct mr_log log = {0};
  if (handle == NULL) return result_and_log(env, -ENOMEM, &log);
  LIBBPF_OPTS(bpf_object_open_opts, options, .object_name = name);
  listener = &log;
  handle->object = mr_libbpf()->bpf_object__open_mem(bytes, size, &options);
  int error = errno;
  listener = NULL;
  if (handle->object == NULL) {
    free(handle);
    return result_and_log(env, error > 0 ? -error : -EINVAL, &log);
  }
  free(log.text);
  if (napi_create_external(env, handle, handle_gone, NULL, &external) != napi_ok) {
    handle_gone(env, handle, NULL);
    return NULL;
  }
  napi_type_tag_object(env, external, &handle_tag);
  return external;
}

static struct mr_bpf *handle_of(napi_env env, napi_value value) {
  napi_valuetype type = napi_undefined;
  bool is_ours = false;
  void *data = NULL;
  napi_typeof(env, value, &type);
  if (type == napi_external) napi_check_object_type_tag(env, value, &handle_tag, &is_ours);
  if (is_ours && napi_get_value_external(env, value, &data) == napi_ok) return data;
  napi_throw_type_error(env, "ERR_INVALID_ARG_TYPE", "expected a BPF object");
  return NULL;
}

// An open object; throws when it is closed.
static struct bpf_object *object_of(napi_env env, napi_value value) {
  const struct mr_bpf *handle = handle_of(env, value);
  if (handle == NULL) return NULL;
  if (handle->object == NULL) napi_throw_error(env, "ERR_BPF_CLOSED", "the BPF object is closed");
  return handle->object;
}

// Arguments that start with (object, name).
static struct bpf_object *object_and_name(napi_env env, const napi_value *argv, char *name, size_t capacity) {
  struct bpf_object *object = object_of(env, argv[0]);
  return object != NULL && mr_string(env, argv[1], name, capacity) ? object : NULL;
}

static napi_value close_object(napi_env env, napi_callback_info info) {
  napi_value argv[1];
  if (!mr_args(env, info, 1, argv)) return NULL;
  struct mr_bpf *handle = handle_of(env, argv[0]);
  if (handle == NULL) return NULL;
  mr_libbpf()->bpf_object__close(handle->object);
  handle->object = NULL;
  return NULL;
}

static void append_string(napi_env env, napi_value array, uint32_t index, const char *text) {
  napi_value value;
  if (napi_create_string_utf8(env, text, NAPI_AUTO_LENGTH, &value) == napi_ok)
    napi_set_element(env, array, index, value);
}

static napi_value programs(napi_env env, napi_callback_info info) {
  napi_value argv[1], names;
  if (!mr_args(env, info, 1, argv)) return NULL;
  struct bpf_object *object = object_of(env, argv[0]);
  if (object == NULL || napi_create_array(env, &names) != napi_ok) return NULL;
  struct bpf_program *program;
  uint32_t count = 0;
  for (program = mr_libbpf()->bpf_object__next_program(object, NULL); program != NULL;
       program = mr_libbpf()->bpf_object__next_program(object, program)) {
    append_string(env, names, count++, mr_libbpf()->bpf_program__name(program));
  }
  return names;
}

static napi_value maps(napi_env env, napi_callback_info info) {
  napi_value argv[1], names;
  if (!mr_args(env, info, 1, argv)) return NULL;
  struct bpf_object *object = object_of(env, argv[0]);
  if (object == NULL || napi_create_array(env, &names) != napi_ok) return NULL;
  struct bpf_map *map;
  uint32_t count = 0;
  for (map = mr_libbpf()->bpf_object__next_map(object, NULL); map != NULL;
       map = mr_libbpf()->bpf_object__next_map(object, map)) {
    append_string(env, names, count++, mr_libbpf()->bpf_map__name(map));
  }
  return names;
}

static bool is_wanted_arg(napi_env env, napi_value value, bool *out) {
  if (napi_get_value_bool(env, value, out) == napi_ok) return true;
  napi_throw_type_error(env, "ERR_INVALID_ARG_TYPE", "expected a boolean");
  return false;
}

static napi_value choose_program(napi_env env, napi_callback_info info) {
  napi_value argv[3];
  char name[256];
  bool is_wanted;
  if (!mr_args(env, info, 3, argv)) return NULL;
  struct bpf_object *object = object_and_name(env, argv, name, sizeof(name));
  if (object == NULL || !is_wanted_arg(env, argv[2], &is_wanted)) return NULL;
  struct bpf_program *program = mr_libbpf()->bpf_object__find_program_by_name(object, name);
  return mr_return(env, program == NULL ? -ENOENT : mr_libbpf()->bpf_program__set_autoload(program, is_wanted));
}

static napi_value choose_map(napi_env env, napi_callback_info info) {
  napi_value argv[3];
  char name[256];
  bool is_wanted;
  if (!mr_args(env, info, 3, argv)) return NULL;
  struct bpf_object *object = object_and_name(env, argv, name, sizeof(name));
  if (object == NULL || !is_wanted_arg(env, argv[2], &is_wanted)) return NULL;
  struct bpf_map *map = mr_libbpf()->bpf_object__find_map_by_name(object, name);
  return mr_return(env, map == NULL ? -ENOENT : mr_libbpf()->bpf_map__set_autocreate(map, is_wanted));
}

// [0 or -errno, log]. An object that failed to load can only be closed.
static napi_value load(napi_env env, napi_callback_info info) {
  napi_value argv[1];
  if (!mr_args(env, info, 1, argv)) return NULL;
  struct bpf_object *object = object_of(env, argv[0]);
  if (object == NULL) return NULL;
  struct mr_log log = {0};
  listener = &log;
  int result = mr_libbpf()->bpf_object__load(object);
  listener = NULL;
  return result_and_log(env, result, &log);
}

// A descriptor of its own, which outlives the object.
static napi_value program_fd(napi_env env, napi_callback_info info) {
  napi_value argv[2];
  char name[256];
  if (!mr_args(env, info, 2, argv)) return NULL;
  struct bpf_object *object = object_and_name(env, argv, name, sizeof(name));
  if (object == NULL) return NULL;
  const struct bpf_program *program = mr_libbpf()->bpf_object__find_program_by_name(object, name);
  if (program == NULL) return mr_return(env, -ENOENT);
  return mr_own_result(env, fcntl(mr_libbpf()->bpf_program__fd(program), F_DUPFD_CLOEXEC, 0));
}

static napi_value map_fd(napi_env env, napi_callback_info info) {
  napi_value argv[2];
  char name[256];
  if (!mr_args(env, info, 2, argv)) return NULL;
  struct bpf_object *object = object_and_name(env, argv, name, sizeof(name));
  if (object == NULL) return NULL;
  const struct bpf_map *map = mr_libbpf()->bpf_object__find_map_by_name(object, name);
  if (map == NULL) return mr_return(env, -ENOENT);
  return mr_own_result(env, fcntl(mr_libbpf()->bpf_map__fd(map), F_DUPFD_CLOEXEC, 0));
}

// enum bpf_attach_type, from the section the program is in.
static napi_value attach_type(napi_env env, napi_callback_info info) {
  napi_value argv[2];
  char name[256];
  if (!mr_args(env, info, 2, argv)) return NULL;
  struct bpf_object *object = object_and_name(env, argv, name, sizeof(name));
  if (object == NULL) return NULL;
  const struct bpf_program *program = mr_libbpf()->bpf_object__find_program_by_name(object, name);
  return mr_return(env, program == NULL ? -ENOENT : (int64_t)mr_libbpf()->bpf_program__expected_attach_type(program));
}

// Closing the descriptor detaches.
static napi_value link_create(napi_env env, napi_callback_info info) {
  int32_t arg[3]; // program, target, attach type
  if (!mr_int_args(env, info, 3, arg) || !has_libbpf(env)) return NULL;
  return mr_own_result(env, mr_libbpf()->bpf_link_create(arg[0], arg[1], (enum bpf_attach_type)arg[2], NULL));
}

// An iterator's program, over the entries of a map. bpf_iter_create() of the link then runs it.
static napi_value link_iterator(napi_env env, napi_callback_info info) {
  int32_t arg[2]; // program, map
  if (!mr_int_args(env, info, 2, arg) || !has_libbpf(env)) return NULL;
  union bpf_iter_link_info over = {.map = {.map_fd = (uint32_t)arg[1]}};
  LIBBPF_OPTS(bpf_link_create_opts, options, .iter_info = &over, .iter_info_len = sizeof(over));
  return mr_own_result(env, mr_libbpf()->bpf_link_create(arg[0], 0, BPF_TRACE_ITER, &options));
}

static napi_value prog_attach(napi_env env, napi_callback_info info) {
  int32_t arg[3]; // program, target, attach type
  if (!mr_int_args(env, info, 3, arg) || !has_libbpf(env)) return NULL;
  return mr_return(env, mr_libbpf()->bpf_prog_attach(arg[0], arg[1], (enum bpf_attach_type)arg[2], 0));
}

static napi_value prog_detach(napi_env env, napi_callback_info info) {
  int32_t arg[3]; // program, target, attach type
  if (!mr_int_args(env, info, 3, arg) || !has_libbpf(env)) return NULL;
  return mr_return(env, mr_libbpf()->bpf_prog_detach2(arg[0], arg[1], (enum bpf_attach_type)arg[2]));
}

// Runs a `syscall` program on this thread; it may change its context, in place. Returns what the
// program returned.
static napi_value prog_run(napi_env env, napi_callback_info info) {
  napi_value argv[2];
  int32_t fd;
  uint8_t *context;
  size_t size;
  if (!mr_args(env, info, 2, argv) || !mr_int(env, argv[0], &fd) || !mr_bytes(env, argv[1], &context, &size)) {
    return NULL;
  }
  if (size > UINT16_MAX) return mr_throw_range(env, "a context has at most 65535 bytes");
  if (!has_libbpf(env)) return NULL;
  LIBBPF_OPTS(bpf_test_run_opts, options, .ctx_in = size > 0 ? context : NULL, .ctx_size_in = (uint32_t)size);
  int result = mr_libbpf()->bpf_prog_test_run_opts(fd, &options);
  return mr_return(env, result < 0 ? result : (int64_t)options.retval);
}

static napi_value map_create(napi_env env, napi_callback_info info) {
  napi_value argv[6];
  char name[16];  // BPF_OBJ_NAME_LEN
  int32_t arg[5]; // type, key bytes, value bytes, entries, flags
  if (!mr_args(env, info, 6, argv) || !mr_string(env, argv[0], name, sizeof(name))) return NULL;
  for (size_t i = 0; i < 5; i++) {
    if (!mr_int(env, argv[i + 1], &arg[i])) return NULL;
  }
  if (!has_libbpf(env)) return NULL;
  LIBBPF_OPTS(bpf_map_create_opts, options, .map_flags = (uint32_t)arg[4]);
  return mr_own_result(env, mr_libbpf()->bpf_map_create((enum bpf_map_type)arg[0], name, (uint32_t)arg[1],
                                                        (uint32_t)arg[2], (uint32_t)arg[3], &options));
}

MR_EXPORTS(bpf) {
  const napi_property_descriptor functions[] = {
      MR_FUNCTION("bpfIsAvailable", is_available),
      MR_FUNCTION("bpfOpen", open_object),
      MR_FUNCTION("bpfClose", close_object),
      MR_FUNCTION("bpfPrograms", programs),
      MR_FUNCTION("bpfMaps", maps),
      MR_FUNCTION("bpfChooseProgram", choose_program),
      MR_FUNCTION("bpfChooseMap", choose_map),
      MR_FUNCTION("bpfLoad", load),
      MR_FUNCTION("bpfProgramFd", program_fd),
      MR_FUNCTION("bpfMapFd", map_fd),
      MR_FUNCTION("bpfAttachType", attach_type),
      MR_FUNCTION("bpfLinkCreate", link_create),
      MR_FUNCTION("bpfLinkIterator", link_iterator),
      MR_FUNCTION("bpfProgAttach", prog_attach),
      MR_FUNCTION("bpfProgDetach", prog_detach),
      MR_FUNCTION("bpfProgRun", prog_run),
      MR_FUNCTION("bpfMapCreate", map_create),
  };
  // One for the process; every thread's environment sets the same, and it listens for the calling
  // thread only.
  if (mr_libbpf() != NULL) mr_libbpf()->libbpf_set_print(listen_to_libbpf);
  return MR_DEFINE(env, exports, functions);
}
