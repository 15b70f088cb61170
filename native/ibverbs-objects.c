// What is made on an RDMA device: domains, regions, channels, queues, queue pairs and address
// handles; and the steps of a queue pair.
#include "ibverbs.h"

#include <fcntl.h>
#include <string.h>

#define PARENTS(...) ((struct mr_ibv_object *[4]){__VA_ARGS__})

static napi_value alloc_pd(napi_env env, napi_callback_info info) {
  int32_t handle;
  if (!mr_int_args(env, info, 1, &handle)) return NULL;
  struct mr_ibv_object *context = mr_ibv_find(env, handle, MR_IBV_CONTEXT);
  if (context == NULL) return NULL;
  struct mr_ibv_object *object = mr_ibv_prepare(env, MR_IBV_PD, PARENTS(context));
  if (object == NULL) return mr_return(env, -ENOMEM);
  errno = 0;
  return mr_return(env, mr_ibv_settle(env, object, mr_libibverbs()->ibv_alloc_pd(context->context)));
}

// Returns [handle, lkey, rkey, address], or -errno. The pages stay with the device until the region
// is closed, also when the memory is unmapped before.
static napi_value register_mr(napi_env env, napi_callback_info info) {
  napi_value argv[5];
  int32_t handle, access;
  uint8_t *start;
  size_t length;
  if (!mr_args(env, info, 5, argv) || !mr_int(env, argv[0], &handle) ||
      !mr_range_args(env, argv + 1, &start, &length) || !mr_int(env, argv[4], &access)) {
    return NULL;
  }
  struct mr_ibv_object *pd = mr_ibv_find(env, handle, MR_IBV_PD);
  if (pd == NULL) return NULL;
  struct mr_ibv_object *object = mr_ibv_prepare(env, MR_IBV_MR, PARENTS(pd));
  if (object == NULL) return mr_return(env, -ENOMEM);
  errno = 0;
  struct ibv_mr *mr = (mr_libibverbs()->ibv_reg_mr)(pd->pd, start, length, access);
  int64_t result = mr_ibv_settle(env, object, mr);
  if (result < 0) return mr_return(env, result);
  return mr_ibv_array(env, (double[]){(double)result, mr->lkey, mr->rkey, (double)(uintptr_t)start}, 4);
}

// Returns [handle, descriptor], or -errno.
static napi_value create_channel(napi_env env, napi_callback_info info) {
  int32_t handle;
  if (!mr_int_args(env, info, 1, &handle)) return NULL;
  struct mr_ibv_object *context = mr_ibv_find(env, handle, MR_IBV_CONTEXT);
  if (context == NULL) return NULL;
  struct mr_ibv_object *object = mr_ibv_prepare(env, MR_IBV_CHANNEL, PARENTS(context));
  if (object == NULL) return mr_return(env, -ENOMEM);
  errno = 0;
  struct ibv_comp_channel *channel = mr_libibverbs()->ibv_create_comp_channel(context->context);
  int64_t result = mr_ibv_settle(env, object, channel);
  if (result < 0) return mr_return(env, result);
  // Taking events never blocks.
  fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK);
  return mr_ibv_array(env, (double[]){(double)result, channel->fd}, 2);
}

static napi_value create_cq(napi_env env, napi_callback_info info) {
  int32_t arg[3]; // context, entries, channel or 0
  if (!mr_int_args(env, info, 3, arg)) return NULL;
  struct mr_ibv_object *context = mr_ibv_find(env, arg[0], MR_IBV_CONTEXT);
  if (context == NULL) return NULL;
  struct mr_ibv_object *channel = arg[2] == 0 ? NULL : mr_ibv_find(env, arg[2], MR_IBV_CHANNEL);
  if (channel == NULL && arg[2] != 0) return NULL;
  if (channel != NULL && channel->parents[0] != context) return mr_return(env, -EINVAL);
  struct mr_ibv_object *object = mr_ibv_prepare(env, MR_IBV_CQ, PARENTS(context, channel));
  if (object == NULL) return mr_return(env, -ENOMEM);
  errno = 0;
  struct ibv_comp_channel *events = channel == NULL ? NULL : channel->channel;
  return mr_return(
      env, mr_ibv_settle(env, object, mr_libibverbs()->ibv_create_cq(context->context, arg[1], object, events, 0)));
}

static napi_value create_srq(napi_env env, napi_callback_info info) {
  int32_t arg[3]; // domain, receives, scatter-gather entries
  if (!mr_int_args(env, info, 3, arg)) return NULL;
  struct mr_ibv_object *pd = mr_ibv_find(env, arg[0], MR_IBV_PD);
  if (pd == NULL) return NULL;
  struct mr_ibv_object *object = mr_ibv_prepare(env, MR_IBV_SRQ, PARENTS(pd));
  if (object == NULL) return mr_return(env, -ENOMEM);
  struct ibv_srq_init_attr attributes = {
      .srq_context = object,
      .attr = {.max_wr = (uint32_t)arg[1], .max_sge = (uint32_t)arg[2]},
  };
  object->max_sge = (uint32_t)arg[2];
  errno = 0;
  return mr_return(env, mr_ibv_settle(env, object, mr_libibverbs()->ibv_create_srq(pd->pd, &attributes)));
}

static napi_value srq_limit(napi_env env, napi_callback_info info) {
  int32_t arg[2]; // SRQ, limit
  if (!mr_int_args(env, info, 2, arg)) return NULL;
  struct mr_ibv_object *srq = mr_ibv_find(env, arg[0], MR_IBV_SRQ);
  if (srq == NULL) return NULL;
  struct ibv_srq_attr attributes = {.srq_limit = (uint32_t)arg[1]};
  return mr_return(env, -mr_libibverbs()->ibv_modify_srq(srq->srq, &attributes, IBV_SRQ_LIMIT));
}

enum { QP_ARGUMENTS = 10 };

// Returns [handle, number], or -errno.
static napi_value create_qp(napi_env env, napi_callback_info info) {
  napi_value argv[QP_ARGUMENTS];
  // domain, type, send CQ, receive CQ, SRQ or 0, sends, receives, scatter-gather entries, inline
  // bytes, signal all
  int32_t arg[QP_ARGUMENTS];
  if (!mr_args(env, info, QP_ARGUMENTS, argv)) return NULL;
  for (size_t i = 0; i < QP_ARGUMENTS; i++) {
    if (!mr_int(env, argv[i], &arg[i])) return NULL;
  }
  struct mr_ibv_object *pd = mr_ibv_find(env, arg[0], MR_IBV_PD);
  struct mr_ibv_object *send_cq = pd == NULL ? NULL : mr_ibv_find(env, arg[2], MR_IBV_CQ);
  struct mr_ibv_object *receive_cq = send_cq == NULL ? NULL : mr_ibv_find(env, arg[3], MR_IBV_CQ);
  if (receive_cq == NULL) return NULL;
  struct mr_ibv_object *srq = arg[4] == 0 ? NULL : mr_ibv_find(env, arg[4], MR_IBV_SRQ);
  if (srq == NULL && arg[4] != 0) return NULL;
  struct mr_ibv_object *object = mr_ibv_prepare(env, MR_IBV_QP, PARENTS(pd, send_cq, receive_cq, srq));
  if (object == NULL) return mr_return(env, -ENOMEM);
  struct ibv_qp_init_attr attributes = {
      .qp_context = object,
      .send_cq = send_cq->cq,
      .recv_cq = receive_cq->cq,
      .srq = srq == NULL ? NULL : srq->srq,
      .cap =
          {
              .max_send_wr = (uint32_t)arg[5],
              .max_recv_wr = srq == NULL ? (uint32_t)arg[6] : 0,
              .max_send_sge = (uint32_t)arg[7],
              .max_recv_sge = srq == NULL ? (uint32_t)arg[7] : 0,
              .max_inline_data = (uint32_t)arg[8],
          },
      .qp_type = (enum ibv_qp_type)arg[1],
      .sq_sig_all = arg[9] != 0,
  };
  // What was asked for, not what the device makes of it: a wrong request is the same on every
  // device.
  object->max_sge = (uint32_t)arg[7];
  object->max_inline = (uint32_t)arg[8];
  errno = 0;
  struct ibv_qp *qp = mr_libibverbs()->ibv_create_qp(pd->pd, &attributes);
  int64_t result = mr_ibv_settle(env, object, qp);
  if (result < 0) return mr_return(env, result);
  return mr_ibv_array(env, (double[]){(double)result, qp->qp_num}, 2);
}

// Words that TypeScript fills: `stepWords` in src/native/ibverbs.ts.
enum {
  STEP_MASK,
  STEP_STATE,
  STEP_PORT,
  STEP_PKEY,
  STEP_ACCESS,
  STEP_QKEY,
  STEP_MTU,
  STEP_DEST_QP,
  STEP_RQ_PSN,
  STEP_SQ_PSN,
  STEP_MAX_DEST_RD_ATOMIC,
  STEP_MAX_RD_ATOMIC,
  STEP_MIN_RNR_TIMER,
  STEP_TIMEOUT,
  STEP_RETRY_COUNT,
  STEP_RNR_RETRY,
  STEP_WORDS,
};

// `pathWords`: where a peer is.
enum { PATH_PORT, PATH_LID, PATH_IS_GLOBAL, PATH_GID_INDEX, PATH_HOP_LIMIT, PATH_GID, PATH_WORDS = PATH_GID + 4 };

static bool words_of(napi_env env, napi_value value, uint32_t *out, size_t count) {
  uint8_t *bytes;
  size_t size;
  if (!mr_bytes(env, value, &bytes, &size)) return false;
  if (size != count * sizeof(uint32_t)) {
    mr_throw_range(env, "the array has another length than its layout");
    return false;
  }
  memcpy(out, bytes, size);
  return true;
}

static struct ibv_ah_attr path_of(const uint32_t *path) {
  struct ibv_ah_attr attributes = {
      .grh = {.sgid_index = (uint8_t)path[PATH_GID_INDEX], .hop_limit = (uint8_t)path[PATH_HOP_LIMIT]},
      .dlid = (uint16_t)path[PATH_LID],
      .is_global = path[PATH_IS_GLOBAL] != 0,
      .port_num = (uint8_t)path[PATH_PORT],
  };
  memcpy(attributes.grh.dgid.raw, path + PATH_GID, sizeof(attributes.grh.dgid.raw));
  return attributes;
}

static napi_value modify_qp(napi_env env, napi_callback_info info) {
  napi_value argv[3]; // QP, step, path
  int32_t handle;
  uint32_t step[STEP_WORDS], path[PATH_WORDS];
  if (!mr_args(env, info, 3, argv) || !mr_int(env, argv[0], &handle) || !words_of(env, argv[1], step, STEP_WORDS) ||
      !words_of(env, argv[2], path, PATH_WORDS)) {
    return NULL;
  }
  struct mr_ibv_object *qp = mr_ibv_find(env, handle, MR_IBV_QP);
  if (qp == NULL) return NULL;
  struct ibv_qp_attr attributes = {
      .qp_state = (enum ibv_qp_state)step[STEP_STATE],
      .port_num = (uint8_t)step[STEP_PORT],
      .pkey_index = (uint16_t)step[STEP_PKEY],
      .qp_access_flags = step[STEP_ACCESS],
      .qkey = step[STEP_QKEY],
      .path_mtu = (enum ibv_mtu)step[STEP_MTU],
      .dest_qp_num = step[STEP_DEST_QP],
      .rq_psn = step[STEP_RQ_PSN],
      .sq_psn = step[STEP_SQ_PSN],
      .max_dest_rd_atomic = (uint8_t)step[STEP_MAX_DEST_RD_ATOMIC],
      .max_rd_atomic = (uint8_t)step[STEP_MAX_RD_ATOMIC],
      .min_rnr_timer = (uint8_t)step[STEP_MIN_RNR_TIMER],
      .timeout = (uint8_t)step[STEP_TIMEOUT],
      .retry_cnt = (uint8_t)step[STEP_RETRY_COUNT],
      .rnr_retry = (uint8_t)step[STEP_RNR_RETRY],
      .ah_attr = path_of(path),
  };
  int error = mr_libibverbs()->ibv_modify_qp(qp->qp, &attributes, (int)step[STEP_MASK]);
  return mr_return(env, error > 0 ? -error : error);
}

// Where the QP is now, as the device sees it, or -errno.
static napi_value query_state(napi_env env, napi_callback_info info) {
  int32_t handle;
  if (!mr_int_args(env, info, 1, &handle)) return NULL;
  struct mr_ibv_object *qp = mr_ibv_find(env, handle, MR_IBV_QP);
  if (qp == NULL) return NULL;
  struct ibv_qp_attr attributes = {0};
  struct ibv_qp_init_attr initial = {0};
  int error = mr_libibverbs()->ibv_query_qp(qp->qp, &attributes, IBV_QP_STATE, &initial);
  return mr_return(env, error != 0 ? -error : (int64_t)attributes.qp_state);
}

static napi_value create_ah(napi_env env, napi_callback_info info) {
  napi_value argv[2]; // domain, path
  int32_t handle;
  uint32_t path[PATH_WORDS];
  if (!mr_args(env, info, 2, argv) || !mr_int(env, argv[0], &handle) || !words_of(env, argv[1], path, PATH_WORDS)) {
    return NULL;
  }
  struct mr_ibv_object *pd = mr_ibv_find(env, handle, MR_IBV_PD);
  if (pd == NULL) return NULL;
  struct mr_ibv_object *object = mr_ibv_prepare(env, MR_IBV_AH, PARENTS(pd));
  if (object == NULL) return mr_return(env, -ENOMEM);
  struct ibv_ah_attr attributes = path_of(path);
  errno = 0;
  return mr_return(env, mr_ibv_settle(env, object, mr_libibverbs()->ibv_create_ah(pd->pd, &attributes)));
}

MR_EXPORTS(ibverbs_objects) {
  const napi_property_descriptor functions[] = {
      MR_FUNCTION("ibvAllocPd", alloc_pd),
      MR_FUNCTION("ibvRegister", register_mr),
      MR_FUNCTION("ibvCreateChannel", create_channel),
      MR_FUNCTION("ibvCreateCq", create_cq),
      MR_FUNCTION("ibvCreateSrq", create_srq),
      MR_FUNCTION("ibvSrqLimit", srq_limit),
      MR_FUNCTION("ibvCreateQp", create_qp),
      MR_FUNCTION("ibvModifyQp", modify_qp),
      MR_FUNCTION("ibvQueryState", query_state),
      MR_FUNCTION("ibvCreateAh", create_ah),
  };
  return MR_DEFINE(env, exports, functions);
}
