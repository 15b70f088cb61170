// SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0)
// What makes a TCP connection the one it is: the sequence numbers of its first bytes, read from the
// sockets that programs hand to the daemon so that it finds both ends of a connection.
//
// The kernel keeps neither number. It keeps where each direction is now and how many bytes that is
// from the start, and changes both together:
//
//   iss = snd_una - bytes_acked      of what this end sends
//   irs = rcv_nxt - bytes_received   of what it receives
//
// A FIN counts in both of a pair, so it changes nothing. A SYN does not count in bytes_received. In
// bytes_acked it counts at the end that connected, and not at the end that accepted: there the
// acknowledgement of the SYN comes while there is no socket yet. So, with the SYN of X being x and
// that of Y being y (Linux 6.18; test/kernel/direct/identity.test.ts asks the kernel):
//
//   X connected: iss = x,     irs = y + 1        irs of Y is one more than iss of X
//   Y accepted:  iss = y + 1, irs = x + 1        irs of X is iss of Y
//
// Where both connected at the same time, each irs is one more than the other's iss. Which end
// connected cannot be seen from its socket alone.
#include <linux/bpf.h>
#include <stdbool.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

// Only what is read here. libbpf finds the true offsets in the kernel's BTF when it loads the
// program.
struct sock_common {
  volatile unsigned char skc_state;
} __attribute__((preserve_access_index));

struct sock {
  struct sock_common __sk_common;
  void *sk_user_data;
} __attribute__((preserve_access_index));

struct inet_connection_sock {
  const void *icsk_ulp_ops;
} __attribute__((preserve_access_index));

struct tcp_sock {
  struct inet_connection_sock inet_conn;
  __u32 snd_una;
  __u32 rcv_nxt;
  __u64 bytes_acked;
  __u64 bytes_received;
  __u8 syn_fastopen : 1;
  __u8 syn_data : 1;
  __u8 syn_data_acked : 1;
} __attribute__((preserve_access_index));

struct seq_file;

struct bpf_iter_meta {
  struct seq_file *seq;
} __attribute__((preserve_access_index));

struct bpf_iter__bpf_sk_storage_map {
  struct bpf_iter_meta *meta;
  struct bpf_map *map;
  struct sock *sk;
  void *value;
} __attribute__((preserve_access_index));

// src/direct/identity.ts reads these rows.
enum identity_flags {
  IDENTITY_TCP = 1,       // it is a TCP socket; without, nothing else is known
  IDENTITY_UNSTEADY = 2,  // bytes came meanwhile: read it again
  IDENTITY_TAKEN = 4,     // a sockmap, kTLS or another part of the kernel moves its bytes
  IDENTITY_FAST_OPEN = 8, // its first bytes may have come with the SYN
};

struct identity {
  __u64 number;
  __u32 iss, irs;
  __u32 state;
  __u32 flags;
};

// The sockets to read, each with a number that its row bears.
struct {
  __uint(type, BPF_MAP_TYPE_SK_STORAGE);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __type(key, int);
  __type(value, __u64);
} offered SEC(".maps");

// Another processor may be between its two stores for tens of nanoseconds. With 2 looks at once one
// of 10,000 identities was wrong while bytes came as fast as they could, with these none of
// 400,000. A wrong one has no other end: that connection stays on TCP.
#define LOOKS 16

#define READ(field) (*(const volatile typeof(field) *)&(field))

static __always_inline __u32 iss_of(const struct tcp_sock *tcp) {
  return READ(tcp->snd_una) - (__u32)READ(tcp->bytes_acked);
}

static __always_inline __u32 irs_of(const struct tcp_sock *tcp) {
  return READ(tcp->rcv_nxt) - (__u32)READ(tcp->bytes_received);
}

SEC("iter/bpf_sk_storage_map")
int read_identities(struct bpf_iter__bpf_sk_storage_map *ctx) {
  struct sock *sk = ctx->sk;
  const __u64 *number = ctx->value;
  if (!sk || !number) return 0;
  struct identity row = {.number = *number};
  struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);
  if (tcp) {
    row.flags = IDENTITY_TCP;
    row.state = sk->__sk_common.skc_state;
    row.iss = iss_of(tcp);
    row.irs = irs_of(tcp);
    for (int look = 1; look < LOOKS; look++) {
      bpf_ktime_get_ns();
      if (iss_of(tcp) != row.iss || irs_of(tcp) != row.irs) row.flags |= IDENTITY_UNSTEADY;
    }
    if (sk->sk_user_data || tcp->inet_conn.icsk_ulp_ops) row.flags |= IDENTITY_TAKEN;
    const bool is_fast = BPF_CORE_READ_BITFIELD(tcp, syn_fastopen) || BPF_CORE_READ_BITFIELD(tcp, syn_data) ||
                         BPF_CORE_READ_BITFIELD(tcp, syn_data_acked);
    if (is_fast) row.flags |= IDENTITY_FAST_OPEN;
  }
  bpf_seq_write(ctx->meta->seq, &row, sizeof(row));
  return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
