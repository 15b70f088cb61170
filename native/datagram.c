// Datagrams in batches: one call sends or receives many, and one datagram may stand for many of the
// same size (UDP segmentation and its reverse). Rows in mapped memory say where each is; TypeScript
// fills and reads them.
#include "addon.h"

#include <net/if.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#ifndef UDP_GRO
#define UDP_GRO 104
#endif

enum { BATCH_MAX = 64 };

// All places are in one mapping, the slab. As in src/native/datagrams.ts.
struct send_row {
  uint32_t offset, length, segment_bytes, address_offset, address_bytes, unused[3];
};
struct receive_row {
  uint32_t offset, room, address_offset, address_room; // written by TypeScript, once
  uint32_t length, segment_bytes, address_bytes, flags;
};

union control {
  struct cmsghdr align;
  char bytes[CMSG_SPACE(sizeof(int))];
};

struct batch {
  int32_t fd, slab, count;
  uint8_t *rows;
  struct mmsghdr messages[BATCH_MAX];
  struct iovec vectors[BATCH_MAX];
  union control controls[BATCH_MAX];
};

// fd, slab, rows, first row, count
static bool batch_args(napi_env env, napi_callback_info info, size_t row_bytes, struct batch *batch) {
  int32_t arg[5];
  if (!mr_int_args(env, info, 5, arg)) return false;
  if (arg[3] < 0 || arg[4] < 1 || arg[4] > BATCH_MAX) {
    mr_throw_range(env, "a batch has 1 to 64 datagrams");
    return false;
  }
  batch->fd = arg[0];
  batch->slab = arg[1];
  batch->count = arg[4];
  return mr_range(env, arg[2], (size_t)arg[3] * row_bytes, (size_t)arg[4] * row_bytes, &batch->rows);
}

static bool place(napi_env env, struct batch *batch, int32_t i, uint32_t offset, uint32_t length,
                  uint32_t address_offset, uint32_t address_bytes) {
  uint8_t *data, *address;
  if (!mr_range(env, batch->slab, offset, length, &data) ||
      !mr_range(env, batch->slab, address_offset, address_bytes, &address)) {
    return false;
  }
  batch->vectors[i] = (struct iovec){.iov_base = data, .iov_len = length};
  batch->messages[i] = (struct mmsghdr){
      .msg_hdr = {.msg_name = address, .msg_namelen = address_bytes, .msg_iov = &batch->vectors[i], .msg_iovlen = 1}};
  return true;
}

// Returns how many rows were sent, or -errno when it was none.
static napi_value send_datagrams(napi_env env, napi_callback_info info) {
  struct batch batch;
  if (!batch_args(env, info, sizeof(struct send_row), &batch)) return NULL;
  for (int32_t i = 0; i < batch.count; i++) {
    struct send_row row;
    memcpy(&row, batch.rows + (size_t)i * sizeof(row), sizeof(row));
    if (!place(env, &batch, i, row.offset, row.length, row.address_offset, row.address_bytes)) return NULL;
    if (row.segment_bytes == 0 || row.segment_bytes >= row.length) continue;
    struct msghdr *message = &batch.messages[i].msg_hdr;
    message->msg_control = &batch.controls[i];
    message->msg_controllen = CMSG_SPACE(sizeof(uint16_t));
    struct cmsghdr *control = CMSG_FIRSTHDR(message);
    *control =
        (struct cmsghdr){.cmsg_level = SOL_UDP, .cmsg_type = UDP_SEGMENT, .cmsg_len = CMSG_LEN(sizeof(uint16_t))};
    memcpy(CMSG_DATA(control), &(uint16_t){(uint16_t)row.segment_bytes}, sizeof(uint16_t));
  }
  return mr_result(env, sendmmsg(batch.fd, batch.messages, (unsigned)batch.count, MSG_DONTWAIT | MSG_NOSIGNAL));
}

static uint32_t segment_bytes_of(struct msghdr *message) {
  for (struct cmsghdr *control = CMSG_FIRSTHDR(message); control != NULL; control = CMSG_NXTHDR(message, control)) {
    if (control->cmsg_level != SOL_UDP || control->cmsg_type != UDP_GRO) continue;
    int bytes;
    memcpy(&bytes, CMSG_DATA(control), sizeof(bytes));
    return bytes > 0 ? (uint32_t)bytes : 0;
  }
  return 0;
}

// Returns how many rows were filled, or -errno.
static napi_value receive_datagrams(napi_env env, napi_callback_info info) {
  struct batch batch;
  if (!batch_args(env, info, sizeof(struct receive_row), &batch)) return NULL;
  struct receive_row *rows = (struct receive_row *)batch.rows;
  for (int32_t i = 0; i < batch.count; i++) {
    const struct receive_row row = rows[i];
    if (!place(env, &batch, i, row.offset, row.room, row.address_offset, row.address_room)) return NULL;
    batch.messages[i].msg_hdr.msg_control = &batch.controls[i];
    batch.messages[i].msg_hdr.msg_controllen = sizeof(batch.controls[i]);
  }
  int count = recvmmsg(batch.fd, batch.messages, (unsigned)batch.count, MSG_DONTWAIT, NULL);
  for (int i = 0; i < count; i++) {
    struct msghdr *message = &batch.messages[i].msg_hdr;
    rows[i].length = batch.messages[i].msg_len;
    rows[i].segment_bytes = segment_bytes_of(message);
    rows[i].address_bytes = message->msg_namelen;
    rows[i].flags = (uint32_t)message->msg_flags;
  }
  return mr_result(env, count);
}

static napi_value interface_mtu(napi_env env, napi_callback_info info) {
  napi_value argv[2];
  int32_t fd;
  struct ifreq request = {0};
  if (!mr_args(env, info, 2, argv) || !mr_int(env, argv[0], &fd) ||
      !mr_string(env, argv[1], request.ifr_name, sizeof(request.ifr_name))) {
    return NULL;
  }
  if (ioctl(fd, SIOCGIFMTU, &request) < 0) return mr_return(env, -errno);
  return mr_return(env, request.ifr_mtu);
}

MR_EXPORTS(datagram) {
  const napi_property_descriptor functions[] = {
      MR_FUNCTION("sendDatagrams", send_datagrams),
      MR_FUNCTION("receiveDatagrams", receive_datagrams),
      MR_FUNCTION("interfaceMtu", interface_mtu),
  };
  return MR_DEFINE(env, exports, functions);
}
