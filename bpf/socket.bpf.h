// SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0)
// What programs that redirect messages know of sockets: the kernel's own fields, and a connection's
// two ends.
#pragma once

#include "steer.bpf.h"

#include <bpf/bpf_core_read.h>

// Only what is read here. libbpf finds the true offsets in the kernel's BTF when it loads the
// program.
typedef struct {
  int counter;
} __attribute__((preserve_access_index)) atomic_t;

typedef struct {
  __s64 counter;
} __attribute__((preserve_access_index)) atomic64_t;

struct list_head {
  struct list_head *next;
} __attribute__((preserve_access_index));

struct wait_queue_entry {
  void *func;
  struct list_head entry;
} __attribute__((preserve_access_index));

struct wait_queue_head {
  struct list_head head;
} __attribute__((preserve_access_index));

struct socket_wq {
  struct wait_queue_head wait;
} __attribute__((preserve_access_index));

struct proto {
  unsigned long *memory_pressure;
} __attribute__((preserve_access_index));

struct netns_ipv4 {
  int sysctl_tcp_rmem[3];
} __attribute__((preserve_access_index));

struct net {
  struct netns_ipv4 ipv4;
} __attribute__((preserve_access_index));

typedef struct {
  struct net *net;
} __attribute__((preserve_access_index)) possible_net_t;

struct sock_common {
  struct proto *skc_prot;
  possible_net_t skc_net;
  unsigned long skc_flags;
  volatile unsigned char skc_state;
  atomic64_t skc_cookie;
} __attribute__((preserve_access_index));

enum sock_flags { SOCK_ZEROCOPY = 18 };

struct sock {
  struct sock_common __sk_common;
  struct {
    int owned;
  } sk_lock;
  struct {
    atomic_t rmem_alloc;
  } sk_backlog;
  int sk_rcvlowat;
  int sk_rcvbuf;
  __u8 sk_userlocks : 4;
  __u32 sk_txhash;
  struct socket_wq *sk_wq;
} __attribute__((preserve_access_index));

struct sk_buff {
  __u32 hash;
} __attribute__((preserve_access_index));

struct bpf_sock_ops_kern {
  struct sock *sk;
  struct sk_buff *skb;
} __attribute__((preserve_access_index));

struct inet_connection_sock {
  const void *icsk_ulp_ops;
  __u8 icsk_ca_setsockopt : 1;
} __attribute__((preserve_access_index));

struct tcp_request_sock {
  __u32 rcv_isn;
  __u32 snt_isn;
} __attribute__((preserve_access_index));

struct tcp_sock {
  __u32 write_seq;
  __u32 copied_seq;
} __attribute__((preserve_access_index));

// The two ends of a connection, as one of its sockets has them.
struct pair {
  struct ip_endpoint local, remote;
};

// Read one by one: the verifier takes no pointer into the context that depends on the family.
#define FIELD(ctx, name) (*(const volatile __u32 *)&(ctx)->name)

static __always_inline void fill_pair(struct pair *pair, struct bpf_sock_ops *ctx) {
  const __u32 local4 = FIELD(ctx, local_ip4), remote4 = FIELD(ctx, remote_ip4);
  const bool is_ipv4 = ctx->family == AF_INET;
  pair->local.address[0] = is_ipv4 ? 0 : FIELD(ctx, local_ip6[0]);
  pair->local.address[1] = is_ipv4 ? 0 : FIELD(ctx, local_ip6[1]);
  pair->local.address[2] = is_ipv4 ? bpf_htonl(0xffff) : FIELD(ctx, local_ip6[2]);
  pair->local.address[3] = is_ipv4 ? local4 : FIELD(ctx, local_ip6[3]);
  pair->remote.address[0] = is_ipv4 ? 0 : FIELD(ctx, remote_ip6[0]);
  pair->remote.address[1] = is_ipv4 ? 0 : FIELD(ctx, remote_ip6[1]);
  pair->remote.address[2] = is_ipv4 ? bpf_htonl(0xffff) : FIELD(ctx, remote_ip6[2]);
  pair->remote.address[3] = is_ipv4 ? remote4 : FIELD(ctx, remote_ip6[3]);
  pair->local.port = ctx->local_port;
  pair->remote.port = bpf_ntohl(ctx->remote_port);
}

// The same connection as the socket at the other end has it. Of a socket that accepted: the
// client's.
static __always_inline void fill_client_pair(struct pair *pair, struct bpf_sock_ops *ctx) {
  struct pair mine = {};
  fill_pair(&mine, ctx);
  pair->local = mine.remote;
  pair->remote = mine.local;
}
