// The data path of an RDMA device: rows of a batch become one chain of requests, completions become
// rows, and channels tell whose turn it is. One call for each batch.
#include "ibverbs.h"

#include <arpa/inet.h>

// Rows in 32-bit words, as src/verbs/work-request.ts lays them out. 64-bit values are low word,
// high word.
enum {
  SEND_OPCODE,
  SEND_FLAGS,
  SEND_WR_ID,
  SEND_SGE_COUNT = 4,
  SEND_IMM,
  SEND_REMOTE_ADDRESS,
  SEND_RKEY = 8,
  SEND_COMPARE_ADD,
  SEND_SWAP = 11,
  SEND_DEST_QP = 13,
  SEND_QKEY,
  SEND_ADDRESS_HANDLE,
  SEND_SGE, // the words before are a row's header
};
enum { RECEIVE_WR_ID, RECEIVE_SGE_COUNT = 2, RECEIVE_SGE = 4 };
enum { SGE_ADDRESS, SGE_LENGTH = 2, SGE_LKEY, SGE_WORDS };

// src/verbs/completion.ts.
enum {
  DONE_WR_ID,
  DONE_STATUS = 2,
  DONE_OPCODE,
  DONE_VENDOR_ERROR,
  DONE_BYTES,
  DONE_IMM,
  DONE_QP,
  DONE_SOURCE_QP,
  DONE_FLAGS,
  DONE_WORDS = 12,
};

enum { ROW_FLAG_SIGNALED = 1, ROW_FLAG_FENCE = 2, ROW_FLAG_SOLICITED = 4, ROW_FLAG_INLINE = 8 };

enum { CHAIN = 128, CHAIN_SGES = 512, MAX_SGES = 64, MAX_ROWS = 65536, POLL = 64 };

static const enum ibv_wr_opcode opcodes[] = {
    IBV_WR_SEND,      IBV_WR_SEND_WITH_IMM,        IBV_WR_RDMA_WRITE,         IBV_WR_RDMA_WRITE_WITH_IMM,
    IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP,
};

// A batch on its way. Its memory may be written by others meanwhile, so each word is read once.
struct batch {
  const volatile uint32_t *rows;
  uint32_t row_words;
  uint32_t count;
};

static uint64_t wide(const uint32_t *words) {
  return (uint64_t)words[1] << 32 | words[0];
}

static bool batch_of(napi_env env, const int32_t *memory_words_count, uint32_t header, struct batch *out) {
  uint32_t row_words = (uint32_t)memory_words_count[1], count = (uint32_t)memory_words_count[2];
  if (row_words < header || row_words > header + MAX_SGES * SGE_WORDS || count > MAX_ROWS) {
    mr_throw_range(env, "no batch has rows like these");
    return false;
  }
  uint8_t *start;
  if (!mr_range(env, memory_words_count[0], 0, (size_t)count * row_words * sizeof(uint32_t), &start)) return false;
  *out = (struct batch){(const volatile uint32_t *)(void *)start, row_words, count};
  return true;
}

// The scatter-gather entries of a row; returns the bytes they name.
static uint64_t take_sges(const volatile uint32_t *words, uint32_t count, struct ibv_sge *out) {
  uint64_t total = 0;
  for (uint32_t i = 0; i < count; i++, words += SGE_WORDS) {
    uint32_t address[2] = {words[SGE_ADDRESS], words[SGE_ADDRESS + 1]};
    out[i] = (struct ibv_sge){.addr = wide(address), .length = words[SGE_LENGTH], .lkey = words[SGE_LKEY]};
    total += out[i].length;
  }
  return total;
}

// Inline data is copied by this process: it must be mapped by this environment, whatever the row
// says.
static bool is_mapped(const struct mr_state *state, const struct ibv_sge *sge) {
  static _Thread_local uint32_t last; // most often the same mapping as before
  for (uint32_t i = 0; i < state->mapping_slots; i++) {
    uint32_t slot = (last + i) % state->mapping_slots;
    const struct mr_mapping *mapping = state->mappings[slot];
    if (mapping == NULL || mapping->addr == NULL) continue;
    uint64_t start = (uintptr_t)mapping->addr;
    if (sge->addr < start || sge->addr - start > mapping->size || sge->length > mapping->size - (sge->addr - start))
      continue;
    last = slot;
    return true;
  }
  return false;
}

// 0, or why the row is wrong.
static int check_inline(const struct mr_state *state, const struct mr_ibv_object *qp, const struct ibv_send_wr *request,
                        uint64_t bytes) {
  if (request->opcode == IBV_WR_RDMA_READ || request->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ||
      request->opcode == IBV_WR_ATOMIC_CMP_AND_SWP)
    return -EINVAL;
  if (bytes > qp->max_inline) return -EMSGSIZE;
  for (int i = 0; i < request->num_sge; i++) {
    if (request->sg_list[i].length > 0 && !is_mapped(state, &request->sg_list[i])) return -EFAULT;
  }
  return 0;
}

static int fill_destination(struct mr_state *state, const struct mr_ibv_object *qp, const uint32_t *row,
                            struct ibv_send_wr *out) {
  if (out->opcode != IBV_WR_SEND && out->opcode != IBV_WR_SEND_WITH_IMM) return -EOPNOTSUPP;
  const struct mr_ibv_object *ah = mr_ibv_look(state, (int32_t)row[SEND_ADDRESS_HANDLE], MR_IBV_AH);
  if (ah == NULL || ah->parents[0] != qp->parents[0]) return -EDESTADDRREQ;
  out->wr.ud.ah = ah->ah;
  out->wr.ud.remote_qpn = row[SEND_DEST_QP] & 0xffffff;
  out->wr.ud.remote_qkey = row[SEND_QKEY];
  return 0;
}

static void fill_remote(const uint32_t *row, struct ibv_send_wr *out) {
  if (out->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || out->opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
    out->wr.atomic.remote_addr = wide(row + SEND_REMOTE_ADDRESS);
    out->wr.atomic.rkey = row[SEND_RKEY];
    out->wr.atomic.compare_add = wide(row + SEND_COMPARE_ADD);
    out->wr.atomic.swap = wide(row + SEND_SWAP);
  } else {
    out->wr.rdma.remote_addr = wide(row + SEND_REMOTE_ADDRESS);
    out->wr.rdma.rkey = row[SEND_RKEY];
  }
}

// One row as a request with `sges` for its memory. 0, or why the row is wrong.
static int convert(struct mr_state *state, const struct mr_ibv_object *qp, const volatile uint32_t *words,
                   uint32_t row_words, struct ibv_sge *sges, struct ibv_send_wr *out) {
  uint32_t row[SEND_SGE];
  for (size_t i = 0; i < SEND_SGE; i++)
    row[i] = words[i];
  uint32_t count = row[SEND_SGE_COUNT], flags = row[SEND_FLAGS];
  if (row[SEND_OPCODE] >= sizeof(opcodes) / sizeof(opcodes[0])) return -EOPNOTSUPP;
  if (count > qp->max_sge || count > (row_words - SEND_SGE) / SGE_WORDS) return -E2BIG;
  uint64_t bytes = take_sges(words + SEND_SGE, count, sges);
  *out = (struct ibv_send_wr){
      .wr_id = wide(row + SEND_WR_ID),
      .sg_list = sges,
      .num_sge = (int)count,
      .opcode = opcodes[row[SEND_OPCODE]],
      .send_flags =
          (flags & ROW_FLAG_SIGNALED ? IBV_SEND_SIGNALED : 0u) | (flags & ROW_FLAG_FENCE ? IBV_SEND_FENCE : 0u) |
          (flags & ROW_FLAG_SOLICITED ? IBV_SEND_SOLICITED : 0u) | (flags & ROW_FLAG_INLINE ? IBV_SEND_INLINE : 0u),
      // On the wire, and for programs in C, immediate data is big-endian.
      .imm_data = htonl(row[SEND_IMM]),
  };
  int error = flags & ROW_FLAG_INLINE ? check_inline(state, qp, out, bytes) : 0;
  if (error != 0) return error;
  if (qp->qp->qp_type == IBV_QPT_UD) return fill_destination(state, qp, row, out);
  fill_remote(row, out);
  return 0;
}

// Returns how many rows were taken. When it is fewer than there are, the reason is left in
// `scratch`: -ENOMEM when the queue is full.
static napi_value post_send(napi_env env, napi_callback_info info) {
  int32_t arg[4]; // QP, mapping, words of a row, rows
  struct batch batch;
  if (!mr_int_args(env, info, 4, arg)) return NULL;
  struct mr_state *state = mr_state(env);
  struct mr_ibv_object *qp = mr_ibv_find(env, arg[0], MR_IBV_QP);
  if (qp == NULL || !batch_of(env, arg + 1, SEND_SGE, &batch)) return NULL;
  struct ibv_send_wr chain[CHAIN];
  struct ibv_sge sges[CHAIN_SGES];
  uint32_t taken = 0;
  int error = 0;
  while (taken < batch.count && error == 0) {
    uint32_t length = 0, used = 0;
    int wrong = 0;
    while (taken + length < batch.count && length < CHAIN && used + MAX_SGES <= CHAIN_SGES) {
      const volatile uint32_t *row = batch.rows + (size_t)(taken + length) * batch.row_words;
      wrong = convert(state, qp, row, batch.row_words, sges + used, &chain[length]);
      if (wrong != 0) break;
      used += (uint32_t)chain[length].num_sge;
      if (length > 0) chain[length - 1].next = &chain[length];
      length++;
    }
    struct ibv_send_wr *bad = NULL;
    if (length > 0) error = ibv_post_send(qp->qp, chain, &bad);
    bool is_inside = error != 0 && bad >= chain && bad < chain + length;
    taken += is_inside ? (uint32_t)(bad - chain) : error != 0 ? 0 : length;
    if (error == 0) error = wrong;
  }
  *state->scratch = error > 0 ? -error : error;
  return mr_return(env, taken);
}

// Posts rows of receives by `post`, which takes a chain and returns an errno and the first that was
// not taken.
static napi_value post_receives(napi_env env, const struct mr_ibv_object *queue, const struct batch *batch,
                                int (*post)(const struct mr_ibv_object *, struct ibv_recv_wr *,
                                            struct ibv_recv_wr **)) {
  struct ibv_recv_wr chain[CHAIN];
  struct ibv_sge sges[CHAIN_SGES];
  uint32_t taken = 0;
  int error = 0;
  while (taken < batch->count && error == 0) {
    uint32_t length = 0, used = 0;
    int wrong = 0;
    while (taken + length < batch->count && length < CHAIN && used + MAX_SGES <= CHAIN_SGES) {
      const volatile uint32_t *row = batch->rows + (size_t)(taken + length) * batch->row_words;
      uint32_t id[2] = {row[RECEIVE_WR_ID], row[RECEIVE_WR_ID + 1]};
      uint32_t count = row[RECEIVE_SGE_COUNT];
      if (count > queue->max_sge || count > (batch->row_words - RECEIVE_SGE) / SGE_WORDS) {
        wrong = -E2BIG;
        break;
      }
      take_sges(row + RECEIVE_SGE, count, sges + used);
      chain[length] = (struct ibv_recv_wr){.wr_id = wide(id), .sg_list = sges + used, .num_sge = (int)count};
      used += count;
      if (length > 0) chain[length - 1].next = &chain[length];
      length++;
    }
    struct ibv_recv_wr *bad = NULL;
    if (length > 0) error = post(queue, chain, &bad);
    bool is_inside = error != 0 && bad >= chain && bad < chain + length;
    taken += is_inside ? (uint32_t)(bad - chain) : error != 0 ? 0 : length;
    if (error == 0) error = wrong;
  }
  *mr_state(env)->scratch = error > 0 ? -error : error;
  return mr_return(env, taken);
}

static int post_to_qp(const struct mr_ibv_object *queue, struct ibv_recv_wr *chain, struct ibv_recv_wr **bad) {
  return ibv_post_recv(queue->qp, chain, bad);
}

static int post_to_srq(const struct mr_ibv_object *queue, struct ibv_recv_wr *chain, struct ibv_recv_wr **bad) {
  return ibv_post_srq_recv(queue->srq, chain, bad);
}

static napi_value post_receive(napi_env env, napi_callback_info info) {
  int32_t arg[4]; // QP, mapping, words of a row, rows
  struct batch batch;
  if (!mr_int_args(env, info, 4, arg)) return NULL;
  struct mr_ibv_object *qp = mr_ibv_find(env, arg[0], MR_IBV_QP);
  if (qp == NULL || !batch_of(env, arg + 1, RECEIVE_SGE, &batch)) return NULL;
  // Drivers expect nobody to try this.
  if (qp->qp->srq != NULL) return mr_throw_range(env, "the QP receives from an SRQ");
  return post_receives(env, qp, &batch, post_to_qp);
}

static napi_value post_srq(napi_env env, napi_callback_info info) {
  int32_t arg[4]; // SRQ, mapping, words of a row, rows
  struct batch batch;
  if (!mr_int_args(env, info, 4, arg)) return NULL;
  struct mr_ibv_object *srq = mr_ibv_find(env, arg[0], MR_IBV_SRQ);
  if (srq == NULL || !batch_of(env, arg + 1, RECEIVE_SGE, &batch)) return NULL;
  return post_receives(env, srq, &batch, post_to_srq);
}

static void fill_row(const struct ibv_wc *done, uint32_t *row) {
  row[DONE_WR_ID] = (uint32_t)done->wr_id;
  row[DONE_WR_ID + 1] = (uint32_t)(done->wr_id >> 32);
  row[DONE_STATUS] = done->status;
  row[DONE_OPCODE] = done->opcode;
  row[DONE_VENDOR_ERROR] = done->vendor_err;
  row[DONE_BYTES] = done->byte_len;
  row[DONE_IMM] = done->wc_flags & IBV_WC_WITH_IMM ? ntohl(done->imm_data) : 0;
  row[DONE_QP] = done->qp_num;
  row[DONE_SOURCE_QP] = done->src_qp;
  // IBV_WC_GRH and IBV_WC_WITH_IMM have the numbers that TypeScript knows.
  row[DONE_FLAGS] = done->status == IBV_WC_SUCCESS ? done->wc_flags & (IBV_WC_GRH | IBV_WC_WITH_IMM) : 0;
}

// Fills rows from the start of the mapping; returns how many, or -errno.
static napi_value poll(napi_env env, napi_callback_info info) {
  int32_t arg[3]; // CQ, mapping, rows there is room for
  uint8_t *start;
  if (!mr_int_args(env, info, 3, arg)) return NULL;
  struct mr_ibv_object *cq = mr_ibv_find(env, arg[0], MR_IBV_CQ);
  if (cq == NULL) return NULL;
  if (arg[2] < 0 || arg[2] > MAX_ROWS) return mr_throw_range(env, "no batch has as many rows");
  if (!mr_range(env, arg[1], 0, (size_t)arg[2] * DONE_WORDS * sizeof(uint32_t), &start)) return NULL;
  uint32_t *rows = (uint32_t *)(void *)start;
  struct ibv_wc done[POLL];
  int total = 0;
  while (total < arg[2]) {
    int wanted = arg[2] - total < POLL ? arg[2] - total : POLL;
    int count = ibv_poll_cq(cq->cq, wanted, done);
    if (count < 0) return mr_return(env, total > 0 ? total : -EIO);
    for (int i = 0; i < count; i++)
      fill_row(&done[i], rows + (size_t)(total + i) * DONE_WORDS);
    total += count;
    if (count < wanted) break;
  }
  return mr_return(env, total);
}

static napi_value arm(napi_env env, napi_callback_info info) {
  int32_t arg[2]; // CQ, solicited only
  if (!mr_int_args(env, info, 2, arg)) return NULL;
  struct mr_ibv_object *cq = mr_ibv_find(env, arg[0], MR_IBV_CQ);
  if (cq == NULL) return NULL;
  int error = ibv_req_notify_cq(cq->cq, arg[1] != 0);
  return mr_return(env, error > 0 ? -error : error);
}

// The handle of a CQ that had an event, or -EAGAIN.
static napi_value take_completion_event(napi_env env, napi_callback_info info) {
  int32_t handle;
  if (!mr_int_args(env, info, 1, &handle)) return NULL;
  struct mr_ibv_object *channel = mr_ibv_find(env, handle, MR_IBV_CHANNEL);
  if (channel == NULL) return NULL;
  struct ibv_cq *cq;
  void *object;
  if (mr_libibverbs()->ibv_get_cq_event(channel->channel, &cq, &object) != 0) return mr_return(env, -errno);
  struct mr_ibv_object *found = object;
  found->unacked++;
  return mr_return(env, found->handle);
}

MR_EXPORTS(ibverbs_data) {
  const napi_property_descriptor functions[] = {
      MR_FUNCTION("ibvPostSend", post_send),
      MR_FUNCTION("ibvPostReceive", post_receive),
      MR_FUNCTION("ibvPostSrq", post_srq),
      MR_FUNCTION("ibvPoll", poll),
      MR_FUNCTION("ibvArm", arm),
      MR_FUNCTION("ibvTakeCompletionEvent", take_completion_event),
  };
  return MR_DEFINE(env, exports, functions);
}
