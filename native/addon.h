// What every facility file shares: the per-environment state, argument parsing, and how a function
// is exported.
//
// The rules of this layer: parse, make one call, convert, return. A function that makes a system
// call returns its result as a number, or -errno; TypeScript decides what is an error. A function
// given wrong arguments (a wrong type, a range outside its memory) throws and touches nothing.
// Everything belongs to one napi_env, so each worker thread has its own tables and nothing here
// needs a lock.
#pragma once

#include <errno.h>
#include <node_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

// A mapping has two holders: the environment's table, through which calls find it by number, and
// the ArrayBuffer over it. Whichever lets go last frees this struct. Both run on the environment's
// own thread.
struct mr_mapping {
  uint8_t *addr; // NULL once unmapped
  size_t size;
  bool is_in_table;
  bool has_buffer;
};

struct mr_state {
  struct mr_mapping **mappings;
  uint32_t mapping_slots;
  uint8_t *owned_fds; // bitmap: descriptors this environment opened and closes when it ends
  uint32_t owned_bytes;
  struct mr_ibv *ibv; // objects of libibverbs; NULL while there are none
  double *scratch;    // one double shared with TypeScript, for results that must not allocate
};

#define MR_FUNCTION(js, c) {js, NULL, c, NULL, NULL, NULL, napi_default, NULL}

// Each facility file exports its functions through one of these.
#define MR_EXPORTS(facility) napi_status mr_export_##facility(napi_env env, napi_value exports)
#define MR_DEFINE(env, exports, table) napi_define_properties(env, exports, sizeof(table) / sizeof((table)[0]), table)

MR_EXPORTS(memory);
MR_EXPORTS(futex);
MR_EXPORTS(fd);
MR_EXPORTS(epoll);
MR_EXPORTS(socket);
MR_EXPORTS(fdpass);
MR_EXPORTS(thread);
MR_EXPORTS(bpf);
MR_EXPORTS(bpf_map);
MR_EXPORTS(userfault);
MR_EXPORTS(pager);
MR_EXPORTS(kvm);
MR_EXPORTS(library);
MR_EXPORTS(watch);
MR_EXPORTS(atomic);
MR_EXPORTS(ibverbs);
MR_EXPORTS(ibverbs_objects);
MR_EXPORTS(ibverbs_data);
MR_EXPORTS(datagram);
MR_EXPORTS(icrc);
MR_EXPORTS(netlink);
MR_EXPORTS(privileges);
MR_EXPORTS(exec);
MR_EXPORTS(aside);

struct mr_state *mr_state(napi_env env);

// Arguments. Each returns false with a JavaScript exception pending.
bool mr_args(napi_env env, napi_callback_info info, size_t count, napi_value *argv);
bool mr_int(napi_env env, napi_value value, int32_t *out);
// all arguments, at most 5
bool mr_int_args(napi_env env, napi_callback_info info, size_t count, int32_t *out);
bool mr_size(napi_env env, napi_value value, size_t *out);   // 0 … 2^53-1
bool mr_double(napi_env env, napi_value value, double *out); // not NaN
// what is out of reach becomes the nearest there is
struct timespec mr_timespec(double ns);
// Uint8Array, valid during the call
bool mr_bytes(napi_env env, napi_value value, uint8_t **data, size_t *size);
bool mr_string(napi_env env, napi_value value, char *out, size_t capacity);

// A range of a mapping, checked: throws RangeError when the mapping is closed or the range is not
// inside it.
bool mr_range(napi_env env, int32_t id, size_t offset, size_t length, uint8_t **out);
bool mr_range_args(napi_env env, const napi_value *id_offset_length, uint8_t **out, size_t *length);

// Results.
napi_value mr_return(napi_env env, int64_t result);
napi_value mr_result(napi_env env, int64_t result); // -1 becomes -errno
napi_value mr_throw_range(napi_env env, const char *message);

void mr_mapping_leave_table(struct mr_mapping *mapping);
void mr_ibv_release(struct mr_state *state); // closes all of it, children first

// Descriptors this environment is responsible for.
napi_value mr_own_result(napi_env env, int fd); // a new descriptor, or -1 which becomes -errno
int mr_own(struct mr_state *state, int fd);     // 0, or -ENOMEM after closing the descriptor
bool mr_disown(struct mr_state *state, int fd); // false when it was not ours
