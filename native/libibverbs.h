// libibverbs, opened at run time: a machine without it runs all the rest. Posting and polling are
// not here: they are inline functions of the header that go through the device's own table.
#pragma once

#include <infiniband/verbs.h>

#define MR_LIBIBVERBS_FUNCTIONS(X)                                                                                     \
  X(ibv_get_device_list)                                                                                               \
  X(ibv_free_device_list)                                                                                              \
  X(ibv_get_device_name)                                                                                               \
  X(ibv_get_device_guid)                                                                                               \
  X(ibv_open_device)                                                                                                   \
  X(ibv_close_device)                                                                                                  \
  X(ibv_query_device)                                                                                                  \
  X(ibv_query_port)                                                                                                    \
  X(_ibv_query_gid_table)                                                                                              \
  X(ibv_get_async_event)                                                                                               \
  X(ibv_ack_async_event)                                                                                               \
  X(ibv_alloc_pd)                                                                                                      \
  X(ibv_dealloc_pd)                                                                                                    \
  X(ibv_reg_mr)                                                                                                        \
  X(ibv_dereg_mr)                                                                                                      \
  X(ibv_create_comp_channel)                                                                                           \
  X(ibv_destroy_comp_channel)                                                                                          \
  X(ibv_create_cq)                                                                                                     \
  X(ibv_destroy_cq)                                                                                                    \
  X(ibv_get_cq_event)                                                                                                  \
  X(ibv_ack_cq_events)                                                                                                 \
  X(ibv_create_srq)                                                                                                    \
  X(ibv_modify_srq)                                                                                                    \
  X(ibv_destroy_srq)                                                                                                   \
  X(ibv_create_qp)                                                                                                     \
  X(ibv_modify_qp)                                                                                                     \
  X(ibv_query_qp)                                                                                                      \
  X(ibv_destroy_qp)                                                                                                    \
  X(ibv_create_ah)                                                                                                     \
  X(ibv_destroy_ah)

// Some of the names are also macros with arguments: call those as (library->name)(...).
#define MR_LIBIBVERBS_MEMBER(name) __typeof__(name) *name;
struct mr_libibverbs {
  MR_LIBIBVERBS_FUNCTIONS(MR_LIBIBVERBS_MEMBER)
};
#undef MR_LIBIBVERBS_MEMBER

// The functions, or NULL when the machine has no libibverbs of rdma-core 34 or later. Opened once
// for the process and never closed.
const struct mr_libibverbs *mr_libibverbs(void);
