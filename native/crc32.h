// CRC-32 as in zlib and Ethernet: reflected, polynomial 0x04C11DB7.
#pragma once

#include <stddef.h>
#include <stdint.h>

// Goes on from `state`, which starts as ~0; the checksum is the inverse of the last state.
uint32_t mr_crc32(uint32_t state, const uint8_t *bytes, size_t size);

// Takes the state back by `size` zero bytes: what it must have been before them.
uint32_t mr_crc32_unwind(uint32_t state, size_t size);
