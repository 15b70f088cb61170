// The invariant CRC of RoCEv2: completes packets to be sent, and checks packets that came.
//
// It covers the packet as no UDP socket shows it, with IP and UDP headers, less what routers
// change. So those headers are made up here from the two addresses. What a receiver cannot know is
// the IPv4 identification the sender chose; but a CRC is linear, so the difference between the sum
// that came and the sum for identification 0 tells which one it was, or that there is none with
// which the packet is whole.
#include "addon.h"
#include "crc32.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

enum {
  PACKETS_MAX = 4096,
  PIECES_MAX = 65536,
  BTH_BYTES = 12,
  ICRC_BYTES = 4,
  DATAGRAM_MAX = 65507,
  IDENTIFICATION_AT = 8 + 4, // of an IPv4 header, after 8 bytes of ones
};

// As in src/native/packets.ts. Packets, addresses: places in the slab.
struct seal_row {
  uint32_t offset, header_bytes, payload_bytes, pad_bytes, remote_offset, identification, first_piece, piece_count;
};
struct piece_row {
  uint32_t id, offset_low, offset_high, length;
};
struct check_row {
  uint32_t offset, length, remote_offset, result;
};

// What stands before the BTH on the wire, as the ICRC sees it: at most 8 + 40 + 8 bytes.
struct prefix {
  uint8_t bytes[56];
  uint32_t size;
  bool is_ipv4;
};

static void put16(uint8_t *at, uint32_t value) {
  at[0] = (uint8_t)(value >> 8);
  at[1] = (uint8_t)value;
}

// Where address and port are in a sockaddr; NULL when it is of another family.
static const uint8_t *address_of(const uint8_t *sockaddr, bool is_ipv4) {
  uint16_t family;
  memcpy(&family, sockaddr, sizeof(family));
  if (family != (is_ipv4 ? AF_INET : AF_INET6)) return NULL;
  return sockaddr + (is_ipv4 ? offsetof(struct sockaddr_in, sin_addr) : offsetof(struct sockaddr_in6, sin6_addr));
}

static bool make_prefix(struct prefix *prefix, const uint8_t *source, const uint8_t *target, uint32_t udp_bytes) {
  uint16_t family;
  memcpy(&family, source, sizeof(family));
  prefix->is_ipv4 = family == AF_INET;
  const uint8_t *from = address_of(source, prefix->is_ipv4), *to = address_of(target, prefix->is_ipv4);
  if (from == NULL || to == NULL) return false;
  uint8_t *at = prefix->bytes;
  memset(at, 0xff, 8);
  at += 8;
  if (prefix->is_ipv4) {
    memset(at, 0, 20);
    at[0] = 0x45;
    at[1] = 0xff; // type of service
    put16(at + 2, udp_bytes + 20);
    at[6] = 0x40; // not to be fragmented
    at[8] = 0xff; // time to live
    at[9] = IPPROTO_UDP;
    put16(at + 10, 0xffff); // checksum
    memcpy(at + 12, from, 4);
    memcpy(at + 16, to, 4);
    at += 20;
  } else {
    memset(at, 0xff, 8);
    at[0] = 0x6f; // traffic class and flow label are ones
    put16(at + 4, udp_bytes);
    at[6] = IPPROTO_UDP; // at[7], the hop limit, is ones
    memcpy(at + 8, from, 16);
    memcpy(at + 24, to, 16);
    at += 40;
  }
  memcpy(at, source + 2, 2); // ports are at the same place in both families
  memcpy(at + 2, target + 2, 2);
  put16(at + 4, udp_bytes);
  put16(at + 6, 0xffff); // checksum
  prefix->size = (uint32_t)(at + 8 - prefix->bytes);
  return true;
}

// `packet` begins with the BTH; its reserved byte, which holds congestion marks, counts as ones.
static uint32_t sum(const struct prefix *prefix, const uint8_t *packet, size_t size) {
  uint8_t first[sizeof(prefix->bytes) + BTH_BYTES];
  memcpy(first, prefix->bytes, prefix->size);
  memcpy(first + prefix->size, packet, BTH_BYTES);
  first[prefix->size + 4] = 0xff;
  uint32_t state = mr_crc32(~0u, first, prefix->size + BTH_BYTES);
  return ~mr_crc32(state, packet + BTH_BYTES, size - BTH_BYTES);
}

static bool sockaddr_range(napi_env env, int32_t slab, uint32_t offset, uint8_t **out) {
  return mr_range(env, slab, offset, sizeof(struct sockaddr_in6), out);
}

static bool gather(napi_env env, const struct seal_row *row, const uint8_t *pieces, uint32_t piece_limit, uint8_t *to) {
  uint32_t left = row->payload_bytes;
  if (row->piece_count > piece_limit || row->first_piece > piece_limit - row->piece_count) {
    mr_throw_range(env, "a packet names pieces that are not there");
    return false;
  }
  for (uint32_t i = 0; i < row->piece_count; i++) {
    struct piece_row piece;
    uint8_t *from;
    memcpy(&piece, pieces + (size_t)(row->first_piece + i) * sizeof(piece), sizeof(piece));
    const uint64_t offset = piece.offset_low | (uint64_t)piece.offset_high << 32;
    if (piece.length > left || piece.id > INT32_MAX || offset > (uint64_t)1 << 53) {
      mr_throw_range(env, "a packet's pieces are longer than its payload");
      return false;
    }
    if (!mr_range(env, (int32_t)piece.id, (size_t)offset, piece.length, &from)) return false;
    memcpy(to, from, piece.length);
    to += piece.length;
    left -= piece.length;
  }
  if (left == 0) return true;
  mr_throw_range(env, "a packet's pieces are shorter than its payload");
  return false;
}

// slab, offset of the local address, rows, first row, count, pieces, count of pieces. Gathers each
// packet's payload behind its header, pads it, and adds the ICRC.
static napi_value seal_packets(napi_env env, napi_callback_info info) {
  napi_value argv[7];
  int32_t arg[7];
  uint8_t *rows, *pieces, *local;
  if (!mr_args(env, info, 7, argv)) return NULL;
  for (int i = 0; i < 7; i++) {
    if (!mr_int(env, argv[i], &arg[i])) return NULL;
  }
  if (arg[1] < 0 || arg[3] < 0 || arg[4] < 1 || arg[4] > PACKETS_MAX || arg[6] < 0 || arg[6] > PIECES_MAX) {
    return mr_throw_range(env, "a batch has 1 to 4096 packets");
  }
  if (!sockaddr_range(env, arg[0], (uint32_t)arg[1], &local) ||
      !mr_range(env, arg[2], (size_t)arg[3] * sizeof(struct seal_row), (size_t)arg[4] * sizeof(struct seal_row),
                &rows) ||
      !mr_range(env, arg[5], 0, (size_t)arg[6] * sizeof(struct piece_row), &pieces)) {
    return NULL;
  }
  for (int32_t i = 0; i < arg[4]; i++) {
    struct seal_row row;
    uint8_t *packet, *remote;
    struct prefix prefix;
    memcpy(&row, rows + (size_t)i * sizeof(row), sizeof(row));
    if (row.header_bytes < BTH_BYTES || row.header_bytes > 64 || row.payload_bytes > DATAGRAM_MAX ||
        row.pad_bytes > 3) {
      return mr_throw_range(env, "a packet with impossible sizes");
    }
    const uint32_t size = row.header_bytes + row.payload_bytes + row.pad_bytes;
    if (!mr_range(env, arg[0], row.offset, size + ICRC_BYTES, &packet) ||
        !sockaddr_range(env, arg[0], row.remote_offset, &remote) ||
        !gather(env, &row, pieces, (uint32_t)arg[6], packet + row.header_bytes)) {
      return NULL;
    }
    memset(packet + size - row.pad_bytes, 0, row.pad_bytes);
    if (!make_prefix(&prefix, local, remote, 8 + size + ICRC_BYTES)) {
      return mr_throw_range(env, "a packet between two kinds of addresses");
    }
    if (prefix.is_ipv4) put16(prefix.bytes + IDENTIFICATION_AT, row.identification);
    const uint32_t icrc = sum(&prefix, packet, size);
    memcpy(packet + size, &icrc, sizeof(icrc)); // least significant byte first
  }
  return mr_return(env, arg[4]);
}

// The identification with which the packet is whole, or ~0.
static uint32_t identification(const struct prefix *prefix, const uint8_t *packet, size_t size) {
  uint32_t icrc;
  memcpy(&icrc, packet + size, sizeof(icrc));
  const uint32_t difference = icrc ^ sum(prefix, packet, size);
  if (difference == 0) return 0;
  if (!prefix->is_ipv4) return ~0u;
  const uint32_t origin = mr_crc32_unwind(difference, size + prefix->size - IDENTIFICATION_AT);
  return origin >> 16 == 0 ? (uint32_t)ntohs((uint16_t)origin) : ~0u;
}

// slab, offset of the local address, rows, count. Each result is an IPv4 identification, 0 for
// IPv6, or ~0 for a packet that is not whole.
static napi_value check_packets(napi_env env, napi_callback_info info) {
  int32_t arg[4];
  uint8_t *rows, *local;
  if (!mr_int_args(env, info, 4, arg)) return NULL;
  if (arg[1] < 0 || arg[3] < 1 || arg[3] > PACKETS_MAX) {
    return mr_throw_range(env, "a batch has 1 to 4096 packets");
  }
  if (!sockaddr_range(env, arg[0], (uint32_t)arg[1], &local) ||
      !mr_range(env, arg[2], 0, (size_t)arg[3] * sizeof(struct check_row), &rows)) {
    return NULL;
  }
  for (int32_t i = 0; i < arg[3]; i++) {
    struct check_row row;
    uint8_t *packet, *remote;
    struct prefix prefix;
    memcpy(&row, rows + (size_t)i * sizeof(row), sizeof(row));
    if (!mr_range(env, arg[0], row.offset, row.length, &packet) ||
        !sockaddr_range(env, arg[0], row.remote_offset, &remote)) {
      return NULL;
    }
    const bool is_long_enough = row.length >= BTH_BYTES + ICRC_BYTES && row.length <= DATAGRAM_MAX;
    const bool has_prefix = is_long_enough && make_prefix(&prefix, remote, local, 8 + row.length);
    row.result = has_prefix ? identification(&prefix, packet, row.length - ICRC_BYTES) : ~0u;
    memcpy(rows + (size_t)i * sizeof(row), &row, sizeof(row));
  }
  return mr_return(env, arg[3]);
}

MR_EXPORTS(icrc) {
  const napi_property_descriptor functions[] = {
      MR_FUNCTION("sealPackets", seal_packets),
      MR_FUNCTION("checkPackets", check_packets),
  };
  return MR_DEFINE(env, exports, functions);
}
