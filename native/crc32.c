// CRC-32, by carry-less multiplication where that is faster than tables. Which one is found out by
// a race: emulated processors offer the instruction and need far longer for it than for eight table
// look-ups.
#include "crc32.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { POLYNOMIAL = (int)0xEDB88320 };

static uint32_t tables[8][256];

static void fill_tables(void) {
  for (uint32_t i = 0; i < 256; i++) {
    uint32_t state = i;
    for (int bit = 0; bit < 8; bit++)
      state = (state >> 1) ^ (state & 1 ? (uint32_t)POLYNOMIAL : 0);
    tables[0][i] = state;
  }
  for (int t = 1; t < 8; t++) {
    for (uint32_t i = 0; i < 256; i++)
      tables[t][i] = (tables[t - 1][i] >> 8) ^ tables[0][tables[t - 1][i] & 0xff];
  }
}

// Eight bytes a step, one table for each.
static uint32_t by_tables(uint32_t state, const uint8_t *bytes, size_t size) {
  for (; size >= 8; size -= 8, bytes += 8) {
    uint32_t low, high;
    memcpy(&low, bytes, 4);
    memcpy(&high, bytes + 4, 4);
    low ^= state;
    state = tables[7][low & 0xff] ^ tables[6][(low >> 8) & 0xff] ^ tables[5][(low >> 16) & 0xff] ^
            tables[4][low >> 24] ^ tables[3][high & 0xff] ^ tables[2][(high >> 8) & 0xff] ^
            tables[1][(high >> 16) & 0xff] ^ tables[0][high >> 24];
  }
  for (; size > 0; size--, bytes++)
    state = (state >> 8) ^ tables[0][(state ^ *bytes) & 0xff];
  return state;
}

#if defined(__x86_64__)
// x^n modulo the polynomial, bits reflected: what 16 bytes at a distance of n bits weigh.
static uint64_t power(unsigned n) {
  uint32_t value = 0x80000000u; // x^0
  for (unsigned i = 0; i < n; i++)
    value = (value >> 1) ^ (value & 1 ? (uint32_t)POLYNOMIAL : 0);
  return (uint64_t)value << 1;
}

static uint64_t fold_64[2], fold_16[2];

// Moves 16 bytes on by the distance that the factors stand for.
__attribute__((target("pclmul,sse4.1"))) static inline __m128i fold(__m128i block, __m128i factors, __m128i next) {
  const __m128i low = _mm_clmulepi64_si128(block, factors, 0x00);
  const __m128i high = _mm_clmulepi64_si128(block, factors, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

// Four lanes of 16 bytes are folded forward until 16 bytes are left that have the same remainder as
// everything before; the tables take those and the rest.
__attribute__((target("pclmul,sse4.1"))) static uint32_t by_multiplication(uint32_t state, const uint8_t *bytes,
                                                                           size_t size) {
  if (size < 128) return by_tables(state, bytes, size);
  const __m128i *blocks = (const __m128i *)bytes;
  __m128i lanes[4];
  for (int i = 0; i < 4; i++)
    lanes[i] = _mm_loadu_si128(blocks + i);
  lanes[0] = _mm_xor_si128(lanes[0], _mm_cvtsi32_si128((int)state));
  blocks += 4;
  size -= 64;
  const __m128i by_64 = _mm_loadu_si128((const __m128i *)fold_64);
  for (; size >= 64; size -= 64, blocks += 4) {
    for (int i = 0; i < 4; i++)
      lanes[i] = fold(lanes[i], by_64, _mm_loadu_si128(blocks + i));
  }
  const __m128i by_16 = _mm_loadu_si128((const __m128i *)fold_16);
  __m128i sum = lanes[0];
  for (int i = 1; i < 4; i++)
    sum = fold(sum, by_16, lanes[i]);
  for (; size >= 16; size -= 16, blocks++)
    sum = fold(sum, by_16, _mm_loadu_si128(blocks));
  uint8_t left[16];
  _mm_storeu_si128((__m128i *)left, sum);
  return by_tables(by_tables(0, left, sizeof(left)), (const uint8_t *)blocks, size);
}

static double race(uint32_t (*run)(uint32_t, const uint8_t *, size_t)) {
  static uint8_t sample[4096];
  double best = 1e9;
  for (int round = 0; round < 4; round++) {
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    volatile uint32_t state = run(0, sample, sizeof(sample));
    (void)state;
    clock_gettime(CLOCK_MONOTONIC, &end);
    const double ns = (double)(end.tv_sec - start.tv_sec) * 1e9 + (double)(end.tv_nsec - start.tv_nsec);
    if (ns < best) best = ns;
  }
  return best;
}
#endif

static uint32_t (*chosen)(uint32_t, const uint8_t *, size_t) = by_tables;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void choose(void) {
  fill_tables();
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("pclmul") || !__builtin_cpu_supports("sse4.1")) return;
  // The lower half of a block is 64 bits further away from the end than the upper one; multiplying
  // reflected numbers of 33 bits costs 32 bits of distance less one, which is in `power`.
  fold_64[0] = power(512 + 32);
  fold_64[1] = power(512 - 32);
  fold_16[0] = power(128 + 32);
  fold_16[1] = power(128 - 32);
  if (race(by_multiplication) < race(by_tables)) chosen = by_multiplication;
#endif
}

uint32_t mr_crc32(uint32_t state, const uint8_t *bytes, size_t size) {
  pthread_once(&once, choose);
  return chosen(state, bytes, size);
}

// Product of two polynomials modulo the polynomial, bits reflected.
static uint32_t multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (int i = 0; i < 32; i++, a <<= 1) {
    if (a & 0x80000000u) product ^= b;
    b = (b >> 1) ^ (b & 1 ? (uint32_t)POLYNOMIAL : 0);
  }
  return product;
}

uint32_t mr_crc32_unwind(uint32_t state, size_t size) {
  // x^-8: one zero byte back. The polynomial's top bit, x^32, tells what a carry out at the bottom
  // came from.
  uint32_t factor = 0x80000000u;
  for (int i = 0; i < 8; i++)
    factor = (factor << 1) ^ (factor & 0x80000000u ? ((uint32_t)POLYNOMIAL << 1) | 1 : 0);
  for (; size > 0; size >>= 1) {
    if (size & 1) state = multiply(factor, state);
    factor = multiply(factor, factor);
  }
  return state;
}
