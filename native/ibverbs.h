// Objects of libibverbs by number: what the files of this facility share.
//
// A handle is a place in the environment's table and the number of times that place was used
// before, so that the handle of something closed is refused rather than taken for its successor. An
// object counts those made from it, and is not closed before them.
#pragma once

#include "addon.h"
#include "libibverbs.h"

enum mr_ibv_kind { MR_IBV_CONTEXT, MR_IBV_PD, MR_IBV_MR, MR_IBV_CHANNEL, MR_IBV_CQ, MR_IBV_SRQ, MR_IBV_QP, MR_IBV_AH };

struct mr_ibv_object {
  enum mr_ibv_kind kind;
  int32_t handle;
  uint32_t users;                   // objects made from this one
  struct mr_ibv_object *parents[4]; // what this was made from; unused ones are NULL
  union {
    void *any;
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_mr *mr;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_srq *srq;
    struct ibv_qp *qp;
    struct ibv_ah *ah;
  };
  uint32_t max_sge;    // SRQ and QP: of a request
  uint32_t max_inline; // QP: bytes
  uint32_t unacked;    // CQ: events taken, which must be acknowledged before it goes
};

// Both return NULL with an exception pending.
const struct mr_libibverbs *mr_ibv_library(napi_env env);
struct mr_ibv_object *mr_ibv_find(napi_env env, int32_t handle, enum mr_ibv_kind kind);

// As mr_ibv_find, for a number that may be anything: NULL, without an exception.
struct mr_ibv_object *mr_ibv_look(struct mr_state *state, int32_t handle, enum mr_ibv_kind kind);

// An object that will be a child of `parents`, up to the first NULL. NULL when there is no memory
// or no number left.
struct mr_ibv_object *mr_ibv_prepare(napi_env env, enum mr_ibv_kind kind, struct mr_ibv_object *const parents[4]);
// What the library made, or NULL with errno set: the handle, or -errno after forgetting the object.
int64_t mr_ibv_settle(napi_env env, struct mr_ibv_object *object, void *made);

napi_value mr_ibv_array(napi_env env, const double *values, size_t count);
