// What user space does with BPF maps, links and pins while programs run.
#include "addon.h"
#include "libbpf.h"

#include <limits.h>

// Throws when the machine has no libbpf.
static const struct mr_libbpf *library(napi_env env) {
  const struct mr_libbpf *functions = mr_libbpf();
  if (functions == NULL) napi_throw_error(env, "MILLRACE_ERR_UNSUPPORTED", "there is no libbpf.so.1 here");
  return functions;
}

// The kernel takes pointers and trusts the map's own sizes: src/native/bpf-map.ts has checked key
// and value against them.
struct entry {
  int32_t fd;
  uint8_t *key, *value;
  size_t key_bytes, value_bytes;
};

static bool entry_args(napi_env env, napi_callback_info info, size_t count, napi_value *argv, bool has_value,
                       struct entry *entry) {
  return mr_args(env, info, count, argv) && mr_int(env, argv[0], &entry->fd) &&
         mr_bytes(env, argv[1], &entry->key, &entry->key_bytes) &&
         (!has_value || mr_bytes(env, argv[2], &entry->value, &entry->value_bytes));
}

static napi_value map_lookup(napi_env env, napi_callback_info info) {
  napi_value argv[3];
  struct entry entry;
  const struct mr_libbpf *bpf;
  if (!entry_args(env, info, 3, argv, true, &entry) || (bpf = library(env)) == NULL) return NULL;
  return mr_return(env, bpf->bpf_map_lookup_elem(entry.fd, entry.key, entry.value) < 0 ? -errno : 0);
}

static napi_value map_update(napi_env env, napi_callback_info info) {
  napi_value argv[4];
  struct entry entry;
  int32_t flags;
  const struct mr_libbpf *bpf;
  if (!entry_args(env, info, 4, argv, true, &entry) || !mr_int(env, argv[3], &flags) || (bpf = library(env)) == NULL) {
    return NULL;
  }
  int result = bpf->bpf_map_update_elem(entry.fd, entry.key, entry.value, (uint64_t)flags) < 0 ? -errno : 0;
  return mr_return(env, result);
}

static napi_value map_delete(napi_env env, napi_callback_info info) {
  napi_value argv[2];
  struct entry entry;
  const struct mr_libbpf *bpf;
  if (!entry_args(env, info, 2, argv, false, &entry) || (bpf = library(env)) == NULL) return NULL;
  return mr_return(env, bpf->bpf_map_delete_elem(entry.fd, entry.key) < 0 ? -errno : 0);
}

// The key after `key`, or the first one when `isFirst`; to `next`.
static napi_value map_next_key(napi_env env, napi_callback_info info) {
  napi_value argv[4];
  struct entry entry;
  uint8_t *next;
  size_t next_bytes;
  int32_t is_first;
  const struct mr_libbpf *bpf;
  if (!entry_args(env, info, 4, argv, false, &entry) || !mr_bytes(env, argv[2], &next, &next_bytes) ||
      !mr_int(env, argv[3], &is_first) || (bpf = library(env)) == NULL) {
    return NULL;
  }
  int result = next_bytes == entry.key_bytes ? 0 : -EINVAL;
  if (result == 0 && bpf->bpf_map_get_next_key(entry.fd, is_first ? NULL : entry.key, next) < 0) result = -errno;
  return mr_return(env, result);
}

// [type, key bytes, value bytes, entries, id], or -errno.
static napi_value map_info(napi_env env, napi_callback_info info) {
  int32_t fd;
  const struct mr_libbpf *bpf;
  if (!mr_int_args(env, info, 1, &fd) || (bpf = library(env)) == NULL) return NULL;
  struct bpf_map_info map = {0};
  uint32_t size = sizeof(map);
  if (bpf->bpf_obj_get_info_by_fd(fd, &map, &size) < 0) return mr_return(env, -errno);
  const uint32_t fields[] = {map.type, map.key_size, map.value_size, map.max_entries, map.id};
  napi_value result;
  napi_create_array_with_length(env, 5, &result);
  for (uint32_t i = 0; i < 5; i++)
    napi_set_element(env, result, i, mr_return(env, fields[i]));
  return result;
}

static napi_value pin(napi_env env, napi_callback_info info) {
  napi_value argv[2];
  int32_t fd;
  char path[PATH_MAX];
  const struct mr_libbpf *bpf;
  if (!mr_args(env, info, 2, argv) || !mr_int(env, argv[0], &fd) || !mr_string(env, argv[1], path, sizeof(path)) ||
      (bpf = library(env)) == NULL) {
    return NULL;
  }
  return mr_return(env, bpf->bpf_obj_pin(fd, path) < 0 ? -errno : 0);
}

static napi_value get_pinned(napi_env env, napi_callback_info info) {
  napi_value argv[1];
  char path[PATH_MAX];
  const struct mr_libbpf *bpf;
  if (!mr_args(env, info, 1, argv) || !mr_string(env, argv[0], path, sizeof(path)) || (bpf = library(env)) == NULL) {
    return NULL;
  }
  int fd = bpf->bpf_obj_get(path);
  return fd < 0 ? mr_return(env, -errno) : mr_own_result(env, fd);
}

static napi_value map_by_id(napi_env env, napi_callback_info info) {
  int32_t id;
  const struct mr_libbpf *bpf;
  if (!mr_int_args(env, info, 1, &id) || (bpf = library(env)) == NULL) return NULL;
  int fd = bpf->bpf_map_get_fd_by_id((uint32_t)id);
  return fd < 0 ? mr_return(env, -errno) : mr_own_result(env, fd);
}

// Puts another program behind a link, without a moment in which there is none.
static napi_value link_update(napi_env env, napi_callback_info info) {
  int32_t arg[2]; // link, program
  const struct mr_libbpf *bpf;
  if (!mr_int_args(env, info, 2, arg) || (bpf = library(env)) == NULL) return NULL;
  return mr_return(env, bpf->bpf_link_update(arg[0], arg[1], NULL) < 0 ? -errno : 0);
}

// A descriptor that gives what an iterator's program writes, once.
static napi_value iter_create(napi_env env, napi_callback_info info) {
  int32_t link;
  const struct mr_libbpf *bpf;
  if (!mr_int_args(env, info, 1, &link) || (bpf = library(env)) == NULL) return NULL;
  int fd = bpf->bpf_iter_create(link);
  return fd < 0 ? mr_return(env, -errno) : mr_own_result(env, fd);
}

MR_EXPORTS(bpf_map) {
  const napi_property_descriptor functions[] = {
      MR_FUNCTION("bpfMapLookup", map_lookup),   MR_FUNCTION("bpfMapUpdate", map_update),
      MR_FUNCTION("bpfMapDelete", map_delete),   MR_FUNCTION("bpfMapNextKey", map_next_key),
      MR_FUNCTION("bpfMapInfo", map_info),       MR_FUNCTION("bpfPin", pin),
      MR_FUNCTION("bpfGetPinned", get_pinned),   MR_FUNCTION("bpfLinkUpdate", link_update),
      MR_FUNCTION("bpfIterCreate", iter_create), MR_FUNCTION("bpfMapById", map_by_id),
  };
  return MR_DEFINE(env, exports, functions);
}
