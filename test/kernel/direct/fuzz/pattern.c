// Bytes that depend on their place in the stream, and random numbers.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"

static uint8_t byte_at(uint64_t pattern, uint64_t position) {
  return (uint8_t)(((position + pattern) * UINT64_C(0x9E3779B97F4A7C15)) >> 56);
}

void fill(uint8_t *bytes, size_t length, uint64_t pattern, uint64_t position) {
  for (size_t i = 0; i < length; i++)
    bytes[i] = byte_at(pattern, position + i);
}

// The first place that is wrong, or -1.
long mismatch(const uint8_t *bytes, size_t length, uint64_t pattern, uint64_t position) {
  for (size_t i = 0; i < length; i++) {
    if (bytes[i] != byte_at(pattern, position + i)) return (long)i;
  }
  return -1;
}

// splitmix64.
uint64_t draw(uint64_t *state) {
  uint64_t value = *state += UINT64_C(0x9E3779B97F4A7C15);
  value = (value ^ (value >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
  value = (value ^ (value >> 27)) * UINT64_C(0x94D049BB133111EB);
  return value ^ (value >> 31);
}

void die(const char *what) {
  fprintf(stderr, "fuzz: %s: %s\n", what, strerror(errno));
  exit(2);
}
