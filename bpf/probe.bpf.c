// SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0)
// What the doctor loads to learn whether this kernel has what steering needs: one tiny program per
// feature, each using the feature the way steering does. Attached to an empty cgroup only, so no
// traffic ever meets them.
//
// None of these needs the kernel's BTF; those that do are in probe-btf.bpf.c, so that a kernel
// without BTF fails there and not here.
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

struct socket_key {
  __u64 cookie;
};

struct {
  __uint(type, BPF_MAP_TYPE_SOCKHASH);
  __uint(max_entries, 1);
  __type(key, struct socket_key);
  __type(value, __u64);
} probe_sockets SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_RINGBUF);
  __uint(max_entries, 4096);
} probe_events SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_SK_STORAGE);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __type(key, int);
  __type(value, __u64);
} probe_destination SEC(".maps");

// A connect hook may let the call through unchanged, or change where it goes; both end in 1, which
// allows it.
SEC("cgroup/connect4")
int probe_connect4(struct bpf_sock_addr *ctx) {
  if (ctx->user_port == 0) ctx->user_ip4 = bpf_htonl(0x7f000001);
  return 1;
}

SEC("cgroup/connect6")
int probe_connect6(struct bpf_sock_addr *ctx) {
  if (ctx->user_port == 0) ctx->user_ip6[3] = bpf_htonl(1);
  return 1;
}

SEC("cgroup/getpeername4")
int probe_getpeername4(struct bpf_sock_addr *ctx) {
  if (ctx->user_port == 0) ctx->user_ip4 = bpf_htonl(0x7f000001);
  return 1;
}

SEC("cgroup/getpeername6")
int probe_getpeername6(struct bpf_sock_addr *ctx) {
  if (ctx->user_port == 0) ctx->user_ip6[3] = bpf_htonl(1);
  return 1;
}

// Keeps a value with the socket from connect() on: how the daemon learns where a steered connection
// wanted to go.
SEC("cgroup/connect4")
int probe_sk_storage(struct bpf_sock_addr *ctx) {
  __u64 *destination = bpf_sk_storage_get(&probe_destination, ctx->sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
  if (destination != 0) *destination = ctx->user_ip4;
  return 1;
}

SEC("cgroup/connect4")
int probe_ringbuf(struct bpf_sock_addr *ctx) {
  __u64 *event = bpf_ringbuf_reserve(&probe_events, sizeof(*event), 0);
  if (event == 0) return 1;
  *event = ctx->user_port;
  bpf_ringbuf_submit(event, 0);
  return 1;
}

// An established socket enters the sockhash, from where sk_msg finds it.
SEC("sockops")
int probe_sockops(struct bpf_sock_ops *ctx) {
  struct socket_key key = {.cookie = bpf_get_socket_cookie(ctx)};
  if (ctx->op == BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB) bpf_sock_hash_update(ctx, &probe_sockets, &key, BPF_NOEXIST);
  return 1;
}

// What a program sends goes straight into another socket; where there is none, it takes the
// socket's own connection.
SEC("sk_msg")
int probe_sk_msg(struct sk_msg_md *msg) {
  struct socket_key key = {.cookie = msg->remote_port};
  bpf_msg_redirect_hash(msg, &probe_sockets, &key, BPF_F_INGRESS);
  return SK_PASS;
}

// For the tests of the ring buffer's reader: tells the number that it is run with.
struct {
  __uint(type, BPF_MAP_TYPE_RINGBUF);
  __uint(max_entries, 4096);
} probe_records SEC(".maps");

struct probe_record {
  __u64 number, again;
};

SEC("syscall")
int probe_ring(__u64 *number) {
  struct probe_record *record = bpf_ringbuf_reserve(&probe_records, sizeof(*record), 0);
  if (!record) return 1;
  record->number = *number;
  record->again = *number;
  bpf_ringbuf_submit(record, 0);
  return 0;
}

char probe_license[] SEC("license") = "Dual BSD/GPL";
