// RDMA devices by libibverbs: the table of objects, the list of devices, what they are, and their
// events.
#include "ibverbs.h"

#include <assert.h>
#include <endian.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PLACE_BITS = 20, PLACES = (1 << PLACE_BITS) - 1, USES = 1 << 11 };

struct place {
  struct mr_ibv_object *object; // NULL when free
  uint32_t uses;
};

struct mr_ibv {
  struct place *places;
  uint32_t count;
  uint32_t first_free; // no free place is before this
};

const struct mr_libibverbs *mr_ibv_library(napi_env env) {
  const struct mr_libibverbs *library = mr_libibverbs();
  if (library == NULL) napi_throw_error(env, "ERR_NO_LIBIBVERBS", "there is no libibverbs.so.1");
  return library;
}

struct mr_ibv_object *mr_ibv_look(struct mr_state *state, int32_t handle, enum mr_ibv_kind kind) {
  uint32_t place = ((uint32_t)handle & PLACES) - 1; // 0 is nobody's, and becomes too large
  if (handle <= 0 || state->ibv == NULL || place >= state->ibv->count) return NULL;
  struct mr_ibv_object *object = state->ibv->places[place].object;
  return object != NULL && object->handle == handle && object->kind == kind ? object : NULL;
}

struct mr_ibv_object *mr_ibv_find(napi_env env, int32_t handle, enum mr_ibv_kind kind) {
  struct mr_ibv_object *object = mr_ibv_look(mr_state(env), handle, kind);
  if (object == NULL) mr_throw_range(env, "no such RDMA object, or it is closed");
  return object;
}

static struct place *free_place(struct mr_state *state) {
  if (state->ibv == NULL) state->ibv = calloc(1, sizeof(*state->ibv));
  struct mr_ibv *ibv = state->ibv;
  if (ibv == NULL) return NULL;
  while (ibv->first_free < ibv->count && ibv->places[ibv->first_free].object != NULL)
    ibv->first_free++;
  if (ibv->first_free == ibv->count) {
    uint32_t count = ibv->count == 0 ? 16 : ibv->count * 2;
    if (count > PLACES) count = PLACES;
    struct place *grown = count == ibv->count ? NULL : realloc(ibv->places, count * sizeof(*grown));
    if (grown == NULL) return NULL;
    memset(grown + ibv->count, 0, (count - ibv->count) * sizeof(*grown));
    ibv->places = grown;
    ibv->count = count;
  }
  return &ibv->places[ibv->first_free];
}

struct mr_ibv_object *mr_ibv_prepare(napi_env env, enum mr_ibv_kind kind, struct mr_ibv_object *const parents[4]) {
  struct mr_state *state = mr_state(env);
  struct mr_ibv_object *object = calloc(1, sizeof(*object));
  struct place *place = object == NULL ? NULL : free_place(state);
  if (place == NULL) {
    free(object);
    return NULL;
  }
  uint32_t number = (uint32_t)(place - state->ibv->places) + 1;
  object->kind = kind;
  object->handle = (int32_t)(number | (place->uses % USES) << PLACE_BITS);
  for (size_t i = 0; i < 4 && parents[i] != NULL; i++) {
    object->parents[i] = parents[i];
    parents[i]->users++;
  }
  place->object = object;
  place->uses++;
  return object;
}

static void forget(struct mr_state *state, struct mr_ibv_object *object) {
  uint32_t place = ((uint32_t)object->handle & PLACES) - 1;
  state->ibv->places[place].object = NULL;
  if (place < state->ibv->first_free) state->ibv->first_free = place;
  for (size_t i = 0; i < 4 && object->parents[i] != NULL; i++)
    object->parents[i]->users--;
  free(object);
}

int64_t mr_ibv_settle(napi_env env, struct mr_ibv_object *object, void *made) {
  object->any = made;
  if (made != NULL) return object->handle;
  int error = errno;
  forget(mr_state(env), object);
  return -(error != 0 ? error : EIO);
}

// 0 or an errno.
static int destroy(const struct mr_libibverbs *library, struct mr_ibv_object *object) {
  switch (object->kind) {
  case MR_IBV_CONTEXT:
    return library->ibv_close_device(object->context) == 0 ? 0 : errno;
  case MR_IBV_PD:
    return library->ibv_dealloc_pd(object->pd);
  case MR_IBV_MR:
    return library->ibv_dereg_mr(object->mr);
  case MR_IBV_CHANNEL:
    return library->ibv_destroy_comp_channel(object->channel);
  case MR_IBV_CQ:
    // It waits for acknowledgements of all events that were taken.
    library->ibv_ack_cq_events(object->cq, object->unacked);
    object->unacked = 0;
    return library->ibv_destroy_cq(object->cq);
  case MR_IBV_SRQ:
    return library->ibv_destroy_srq(object->srq);
  case MR_IBV_QP:
    return library->ibv_destroy_qp(object->qp);
  case MR_IBV_AH:
    return library->ibv_destroy_ah(object->ah);
  }
  return EINVAL;
}

// The environment ends: children first, in as many rounds as there are generations. What cannot be
// destroyed is left to the kernel, which does so when the process ends.
void mr_ibv_release(struct mr_state *state) {
  const struct mr_libibverbs *library = mr_libibverbs();
  struct mr_ibv *ibv = state->ibv;
  for (bool is_changed = ibv != NULL; is_changed;) {
    is_changed = false;
    for (uint32_t i = 0; i < ibv->count; i++) {
      struct mr_ibv_object *object = ibv->places[i].object;
      if (object == NULL || object->users > 0 || destroy(library, object) != 0) continue;
      forget(state, object);
      is_changed = true;
    }
  }
  for (uint32_t i = 0; ibv != NULL && i < ibv->count; i++)
    free(ibv->places[i].object);
  if (ibv != NULL) free(ibv->places);
  free(ibv);
  state->ibv = NULL;
}

napi_value mr_ibv_array(napi_env env, const double *values, size_t count) {
  napi_value array, value;
  napi_create_array_with_length(env, count, &array);
  for (size_t i = 0; i < count; i++) {
    napi_create_double(env, values[i], &value);
    napi_set_element(env, array, (uint32_t)i, value);
  }
  return array;
}

static napi_value is_available(napi_env env, napi_callback_info info) {
  napi_value result;
  napi_get_boolean(env, mr_libibverbs() != NULL, &result);
  return result;
}

// [name, GUID in 16 digits, transport type] of each device, or -errno.
static napi_value devices(napi_env env, napi_callback_info info) {
  const struct mr_libibverbs *library = mr_ibv_library(env);
  if (library == NULL) return NULL;
  int count = 0;
  errno = 0;
  struct ibv_device **list = (library->ibv_get_device_list)(&count);
  if (list == NULL) return mr_return(env, -(errno != 0 ? errno : EIO));
  napi_value result;
  napi_create_array_with_length(env, (size_t)count, &result);
  for (int i = 0; i < count; i++) {
    napi_value device, name, guid_text;
    char guid[17];
    snprintf(guid, sizeof(guid), "%016llx", (unsigned long long)be64toh(library->ibv_get_device_guid(list[i])));
    napi_create_array_with_length(env, 3, &device);
    napi_create_string_utf8(env, library->ibv_get_device_name(list[i]), NAPI_AUTO_LENGTH, &name);
    napi_create_string_utf8(env, guid, NAPI_AUTO_LENGTH, &guid_text);
    napi_set_element(env, device, 0, name);
    napi_set_element(env, device, 1, guid_text);
    napi_set_element(env, device, 2, mr_return(env, list[i]->transport_type));
    napi_set_element(env, result, (uint32_t)i, device);
  }
  library->ibv_free_device_list(list);
  return result;
}

static struct ibv_context *open_named(const struct mr_libibverbs *library, const char *name) {
  struct ibv_context *context = NULL;
  struct ibv_device **list = (library->ibv_get_device_list)(NULL);
  if (list == NULL) return NULL;
  errno = ENODEV;
  for (size_t i = 0; list[i] != NULL && context == NULL; i++) {
    if (strcmp(library->ibv_get_device_name(list[i]), name) == 0) context = library->ibv_open_device(list[i]);
  }
  int error = errno;
  library->ibv_free_device_list(list);
  errno = error;
  return context;
}

static int never_block(int fd) {
  int flags = fcntl(fd, F_GETFL);
  return flags < 0 ? -1 : fcntl(fd, F_SETFL, flags | O_NONBLOCK);
}

// Returns [handle, descriptor of its events], or -errno.
static napi_value open_(napi_env env, napi_callback_info info) {
  napi_value argv[1];
  char name[64];
  if (!mr_args(env, info, 1, argv) || !mr_string(env, argv[0], name, sizeof(name))) return NULL;
  const struct mr_libibverbs *library = mr_ibv_library(env);
  if (library == NULL) return NULL;
  struct mr_ibv_object *object = mr_ibv_prepare(env, MR_IBV_CONTEXT, (struct mr_ibv_object *[4]){NULL});
  if (object == NULL) return mr_return(env, -ENOMEM);
  errno = 0;
  struct ibv_context *context = open_named(library, name);
  int64_t handle = mr_ibv_settle(env, object, context);
  if (handle < 0) return mr_return(env, handle);
  never_block(context->async_fd);
  return mr_ibv_array(env, (double[]){(double)handle, context->async_fd}, 2);
}

static void set_number(napi_env env, napi_value object, const char *name, double number) {
  napi_value value;
  napi_create_double(env, number, &value);
  napi_set_named_property(env, object, name, value);
}

static napi_value query_device(napi_env env, napi_callback_info info) {
  int32_t handle;
  if (!mr_int_args(env, info, 1, &handle)) return NULL;
  struct mr_ibv_object *object = mr_ibv_find(env, handle, MR_IBV_CONTEXT);
  if (object == NULL) return NULL;
  struct ibv_device_attr device = {0};
  int error = mr_libibverbs()->ibv_query_device(object->context, &device);
  if (error != 0) return mr_return(env, -error);
  napi_value result, firmware;
  napi_create_object(env, &result);
  napi_create_string_utf8(env, device.fw_ver, strnlen(device.fw_ver, sizeof(device.fw_ver)), &firmware);
  napi_set_named_property(env, result, "firmware", firmware);
  set_number(env, result, "vendorId", device.vendor_id);
  set_number(env, result, "maxQps", device.max_qp);
  set_number(env, result, "maxQpRequests", device.max_qp_wr);
  set_number(env, result, "maxSge", device.max_sge);
  set_number(env, result, "maxCqs", device.max_cq);
  set_number(env, result, "maxCqEntries", device.max_cqe);
  set_number(env, result, "maxMrs", device.max_mr);
  set_number(env, result, "maxMrBytes", (double)device.max_mr_size);
  set_number(env, result, "maxPds", device.max_pd);
  set_number(env, result, "maxSrqs", device.max_srq);
  set_number(env, result, "maxSrqRequests", device.max_srq_wr);
  set_number(env, result, "maxSrqSge", device.max_srq_sge);
  set_number(env, result, "maxRdAtomic", device.max_qp_rd_atom);
  set_number(env, result, "maxInitRdAtomic", device.max_qp_init_rd_atom);
  set_number(env, result, "atomics", device.atomic_cap);
  set_number(env, result, "ports", device.phys_port_cnt);
  return result;
}

// The header's own wrapper, with the library's function from the table.
static int port_attributes(struct ibv_context *context, uint8_t number, struct ibv_port_attr *out) {
  struct verbs_context *extended = verbs_get_ctx_op(context, query_port);
  if (extended != NULL) return extended->query_port(context, number, out, sizeof(*out));
  return (mr_libibverbs()->ibv_query_port)(context, number, (struct _compat_ibv_port_attr *)out);
}

static napi_value query_port(napi_env env, napi_callback_info info) {
  int32_t arg[2]; // context, port
  if (!mr_int_args(env, info, 2, arg)) return NULL;
  struct mr_ibv_object *object = mr_ibv_find(env, arg[0], MR_IBV_CONTEXT);
  if (object == NULL) return NULL;
  if (arg[1] < 1 || arg[1] > 255) return mr_return(env, -EINVAL);
  struct ibv_port_attr port = {0};
  int error = port_attributes(object->context, (uint8_t)arg[1], &port);
  if (error != 0) return mr_return(env, -error);
  napi_value result;
  napi_create_object(env, &result);
  set_number(env, result, "state", port.state);
  set_number(env, result, "lid", port.lid);
  set_number(env, result, "maxMtu", port.max_mtu);
  set_number(env, result, "activeMtu", port.active_mtu);
  set_number(env, result, "maxMessageBytes", port.max_msg_sz);
  set_number(env, result, "gids", port.gid_tbl_len);
  set_number(env, result, "linkLayer", port.link_layer);
  return result;
}

// TypeScript reads the entries where the library puts them.
static_assert(sizeof(struct ibv_gid_entry) == 32 && offsetof(struct ibv_gid_entry, gid_index) == 16 &&
                  offsetof(struct ibv_gid_entry, port_num) == 20 && offsetof(struct ibv_gid_entry, gid_type) == 24,
              "the layout of gidEntry in src/native/ibverbs.ts");

// Fills the bytes with entries; returns how many, or -errno.
static napi_value query_gids(napi_env env, napi_callback_info info) {
  napi_value argv[2];
  int32_t handle;
  uint8_t *bytes;
  size_t size;
  if (!mr_args(env, info, 2, argv) || !mr_int(env, argv[0], &handle) || !mr_bytes(env, argv[1], &bytes, &size)) {
    return NULL;
  }
  struct mr_ibv_object *object = mr_ibv_find(env, handle, MR_IBV_CONTEXT);
  if (object == NULL) return NULL;
  size_t capacity = size / sizeof(struct ibv_gid_entry);
  // The bytes may start anywhere; entries may not.
  struct ibv_gid_entry *entries = calloc(capacity + 1, sizeof(*entries));
  if (entries == NULL) return mr_return(env, -ENOMEM);
  ssize_t count =
      mr_libibverbs()->_ibv_query_gid_table(object->context, entries, capacity, 0, sizeof(struct ibv_gid_entry));
  if (count > 0) memcpy(bytes, entries, (size_t)count * sizeof(*entries));
  free(entries);
  return mr_return(env, count);
}

static int32_t handle_of(const void *object) {
  return object == NULL ? 0 : ((const struct mr_ibv_object *)object)->handle;
}

// Returns [type, handle or port, QP number], acknowledged; -EAGAIN when there is none.
static napi_value take_event(napi_env env, napi_callback_info info) {
  int32_t handle;
  if (!mr_int_args(env, info, 1, &handle)) return NULL;
  struct mr_ibv_object *object = mr_ibv_find(env, handle, MR_IBV_CONTEXT);
  if (object == NULL) return NULL;
  struct ibv_async_event event;
  if (mr_libibverbs()->ibv_get_async_event(object->context, &event) != 0) return mr_return(env, -errno);
  double subject = 0, qp_number = 0;
  switch (event.event_type) {
  case IBV_EVENT_CQ_ERR:
    subject = handle_of(event.element.cq->cq_context);
    break;
  case IBV_EVENT_SRQ_ERR:
  case IBV_EVENT_SRQ_LIMIT_REACHED:
    subject = handle_of(event.element.srq->srq_context);
    break;
  case IBV_EVENT_QP_FATAL:
  case IBV_EVENT_QP_REQ_ERR:
  case IBV_EVENT_QP_ACCESS_ERR:
  case IBV_EVENT_COMM_EST:
  case IBV_EVENT_SQ_DRAINED:
  case IBV_EVENT_PATH_MIG:
  case IBV_EVENT_PATH_MIG_ERR:
  case IBV_EVENT_QP_LAST_WQE_REACHED:
    subject = handle_of(event.element.qp->qp_context);
    qp_number = event.element.qp->qp_num;
    break;
  case IBV_EVENT_PORT_ACTIVE:
  case IBV_EVENT_PORT_ERR:
  case IBV_EVENT_LID_CHANGE:
  case IBV_EVENT_PKEY_CHANGE:
  case IBV_EVENT_SM_CHANGE:
  case IBV_EVENT_CLIENT_REREGISTER:
  case IBV_EVENT_GID_CHANGE:
    subject = event.element.port_num;
    break;
  default:
    break;
  }
  double type = event.event_type;
  mr_libibverbs()->ibv_ack_async_event(&event);
  return mr_ibv_array(env, (double[]){type, subject, qp_number}, 3);
}

// Any object, by its handle. -EBUSY while others use it.
static napi_value close_(napi_env env, napi_callback_info info) {
  int32_t arg[2]; // handle, kind
  if (!mr_int_args(env, info, 2, arg)) return NULL;
  if (arg[1] < MR_IBV_CONTEXT || arg[1] > MR_IBV_AH) return mr_throw_range(env, "no such kind of RDMA object");
  struct mr_ibv_object *object = mr_ibv_find(env, arg[0], (enum mr_ibv_kind)arg[1]);
  if (object == NULL) return NULL;
  if (object->users > 0) return mr_return(env, -EBUSY);
  int error = destroy(mr_libibverbs(), object);
  if (error == 0) forget(mr_state(env), object);
  return mr_return(env, -abs(error));
}

MR_EXPORTS(ibverbs) {
  const napi_property_descriptor functions[] = {
      MR_FUNCTION("ibvIsAvailable", is_available),
      MR_FUNCTION("ibvDevices", devices),
      MR_FUNCTION("ibvOpen", open_),
      MR_FUNCTION("ibvQueryDevice", query_device),
      MR_FUNCTION("ibvQueryPort", query_port),
      MR_FUNCTION("ibvQueryGids", query_gids),
      MR_FUNCTION("ibvTakeEvent", take_event),
      MR_FUNCTION("ibvClose", close_),
  };
  return MR_DEFINE(env, exports, functions);
}
