// SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0)
// A packet filter at a device: drops what comes for TCP port 7001 by IPv4.
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define IPPROTO_TCP 6
#define PROTOCOL_AT (14 + 9)
#define PORT_AT (14 + 20 + 2)

SEC("xdp")
int drop_port(struct xdp_md *ctx) {
  const __u8 *packet = (const __u8 *)(long)ctx->data;
  const __u8 *end = (const __u8 *)(long)ctx->data_end;
  if (packet + PORT_AT + 2 > end || packet[PROTOCOL_AT] != IPPROTO_TCP) return XDP_PASS;
  return *(const __u16 *)(packet + PORT_AT) == bpf_htons(7001) ? XDP_DROP : XDP_PASS;
}

char drop_license[] SEC("license") = "Dual BSD/GPL";
