// 64-bit atomic operations on mapped memory, for which JavaScript would need a BigInt. Really
// atomic: between threads, processes that map the bytes. What was there goes to the scratch double,
// as bits.
#include "addon.h"

#include <string.h>

static bool operand(napi_env env, const napi_value *low_high, uint64_t *out) {
  int32_t low, high;
  if (!mr_int(env, low_high[0], &low) || !mr_int(env, low_high[1], &high)) return false;
  *out = (uint64_t)(uint32_t)high << 32 | (uint32_t)low;
  return true;
}

static bool target(napi_env env, const napi_value *id_offset, uint64_t **out) {
  int32_t id;
  size_t offset;
  uint8_t *address;
  if (!mr_int(env, id_offset[0], &id) || !mr_size(env, id_offset[1], &offset) ||
      !mr_range(env, id, offset, sizeof(uint64_t), &address)) {
    return false;
  }
  if ((uintptr_t)address % sizeof(uint64_t) != 0) {
    mr_throw_range(env, "an atomic needs eight aligned bytes");
    return false;
  }
  *out = (uint64_t *)address;
  return true;
}

static napi_value fetch_add(napi_env env, napi_callback_info info) {
  napi_value argv[4];
  uint64_t *word, add;
  if (!mr_args(env, info, 4, argv) || !target(env, argv, &word) || !operand(env, argv + 2, &add)) return NULL;
  uint64_t before = __atomic_fetch_add(word, add, __ATOMIC_SEQ_CST);
  memcpy(mr_state(env)->scratch, &before, sizeof(before));
  return NULL;
}

static napi_value compare_swap(napi_env env, napi_callback_info info) {
  napi_value argv[6];
  uint64_t *word, before, swap;
  if (!mr_args(env, info, 6, argv) || !target(env, argv, &word) || !operand(env, argv + 2, &before) ||
      !operand(env, argv + 4, &swap)) {
    return NULL;
  }
  // On failure this leaves what was there in `before`; on success that is what was compared with.
  __atomic_compare_exchange_n(word, &before, swap, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  memcpy(mr_state(env)->scratch, &before, sizeof(before));
  return NULL;
}

MR_EXPORTS(atomic) {
  const napi_property_descriptor functions[] = {
      MR_FUNCTION("fetchAdd64", fetch_add),
      MR_FUNCTION("compareSwap64", compare_swap),
  };
  return MR_DEFINE(env, exports, functions);
}
