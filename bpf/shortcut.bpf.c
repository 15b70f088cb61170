// SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0)
// The shortcut: what one local socket sends is put straight into the queue of the socket at the
// other end, past the whole TCP stack. For two programs on this host (ACTION_SHORTCUT), and for a
// program and the daemon (RULE_REDIRECT). Whether a message may take it is decided in
// redirect.bpf.h; a message that may not goes by TCP.
//
// How the two sockets of a connection are joined:
//  TCP_CONNECT          the client's SYN has not left: its socket is written to `connecting`, by both addresses
//  RWND_INIT            the SYN was received by a program that is steered as well: the server is local
//  ACTIVE_ESTABLISHED   the client's socket joins if the server is local; all others are never put into a sockhash
//  PASSIVE_ESTABLISHED  the server's socket joins, once it is sure that this client is its other end (the same
//  addresses
//                       may be in use in another network namespace), and makes the entry of the two in `joined`
#include "redirect.bpf.h"

// What a sender may have under way by TCP. With more, a receiver that is a little slower never
// comes to the end of it, and the connection does not find back: bulk runs at 0.7 of plain TCP
// instead of 2.
#define SEND_BYTES (128 << 10)
#define SOL_SOCKET 1
#define SO_SNDBUF 7

// Only one of the objects that are linked may declare it.
extern void *bpf_cast_to_kern_ctx(void *ctx) __ksym;

// The client's socket, until the server's socket has found it.
struct client {
  __u64 cookie;
  __u64 socket; // its tcp_sock
  __u32 first_seq;
  __u32 is_to_lane; // it was steered to a lane of the daemon
  __u32 has_local_server;
  __u32 unused;
};

// The tcp_socks of two sockets that are each other's ends. They are only read, and only through
// bpf_rdonly_cast, because they may be freed already. What is then read decides nothing: a cookie
// that is gone finds no socket.
struct joined {
  __u64 client, server;
  __u64 server_cookie;
};

// What a socket knows of the two. Only its own programs write here.
struct membership {
  __u64 key;  // in `joined`: the client's cookie
  __u64 peer; // the other end's cookie: a client learns it with its first message
  __u32 is_client;
  struct direction direction; // to the other end
  __u32 unused;
};

extern struct {
  __uint(type, BPF_MAP_TYPE_SK_STORAGE);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __type(key, int);
  __type(value, struct connection);
} sockets SEC(".maps");

extern struct {
  __uint(type, BPF_MAP_TYPE_SK_STORAGE);
  __uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_CLONE);
  __type(key, int);
  __type(value, struct lane_mark);
} lane_marks SEC(".maps");

// Connects under way, by the client's end. Entries that are never answered are evicted by newer
// ones.
struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, 65536);
  __type(key, struct pair);
  __type(value, struct client);
} connecting SEC(".maps");

// By socket cookie, which no two sockets ever share.
struct {
  __uint(type, BPF_MAP_TYPE_SOCKHASH);
  __uint(max_entries, 65536);
  __type(key, __u64);
  __type(value, __u64);
} shortcut_sockets SEC(".maps");

// By the client's cookie.
struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, 65536);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __type(key, __u64);
  __type(value, struct joined);
} joined SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_SK_STORAGE);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __type(key, int);
  __type(value, struct membership);
} memberships SEC(".maps");

enum shortcut_count { SHORTCUT_REDIRECTED = 0, SHORTCUT_BY_TCP = 1, SHORTCUT_COUNTS = 2 };

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, SHORTCUT_COUNTS);
  __type(key, __u32);
  __type(value, __u64);
} shortcut_counts SEC(".maps");

// For the trial at load: a message is redirected to the socket under key 1, and what its queue was
// charged is read.
struct {
  __uint(type, BPF_MAP_TYPE_SOCKHASH);
  __uint(max_entries, 2);
  __type(key, __u64);
  __type(value, __u64);
} trial_sockets SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, __u32);
} trial_charge SEC(".maps");

static __always_inline void count_message(__u32 which) {
  __u64 *counter = bpf_map_lookup_elem(&shortcut_counts, &which);
  if (counter) __sync_fetch_and_add(counter, 1);
}

static __always_inline void watch_state(struct bpf_sock_ops *ctx) {
  bpf_sock_ops_cb_flags_set(ctx, ctx->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_STATE_CB_FLAG);
}

// False when the socket stays with TCP: there is no memory, it has a ULP (TLS, say), or it waits
// for zero-copy completions, which sockets in a sockhash never get.
static __always_inline bool join(struct bpf_sock_ops *ctx, __u64 cookie, const struct membership *membership) {
  struct bpf_sock *sk = ctx->sk;
  struct tcp_sock *tcp = sk ? bpf_skc_to_tcp_sock(sk) : NULL;
  if (!tcp) return false;
  const unsigned long zerocopy = 1ul << bpf_core_enum_value(enum sock_flags, SOCK_ZEROCOPY);
  if (AS(sock, tcp)->__sk_common.skc_flags & zerocopy) return false;
  struct membership *kept = bpf_sk_storage_get(&memberships, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
  if (!kept) return false;
  *kept = *membership;
  if (bpf_sock_hash_update(ctx, &shortcut_sockets, &cookie, BPF_ANY)) {
    bpf_sk_storage_delete(&memberships, sk);
    return false;
  }
  int send_bytes = SEND_BYTES;
  bpf_setsockopt(ctx, SOL_SOCKET, SO_SNDBUF, &send_bytes, sizeof(send_bytes));
  watch_state(ctx);
  return true;
}

static __always_inline void begin_connect(struct bpf_sock_ops *ctx) {
  struct bpf_sock *sk = ctx->sk;
  const struct connection *connection = sk ? bpf_sk_storage_get(&sockets, sk, NULL, 0) : NULL;
  const __u64 cookie = bpf_get_socket_cookie(ctx);
  // A socket that is connected again starts afresh, without what nobody read of its last
  // connection.
  if (sk && bpf_sk_storage_get(&memberships, sk, NULL, 0)) {
    bpf_sk_storage_delete(&memberships, sk);
    bpf_map_delete_elem(&shortcut_sockets, &cookie);
  }
  if (!connection) return;
  if (connection->action != ACTION_SHORTCUT && !(connection->flags & RULE_REDIRECT)) return;
  struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);
  if (!tcp) return;
  struct pair self = {};
  fill_pair(&self, ctx);
  const struct client client = {
      .cookie = cookie,
      .socket = (__u64)tcp,
      .first_seq = AS(tcp_sock, tcp)->write_seq,
      .is_to_lane = connection->verdict == VERDICT_CARRIED,
  };
  bpf_map_update_elem(&connecting, &self, &client, BPF_ANY);
  watch_state(ctx);
}

// The hash of the packet that is being received; zero when there is none.
static __always_inline __u32 received_hash(struct bpf_sock_ops *ctx) {
  const struct bpf_sock_ops_kern *kernel = bpf_cast_to_kern_ctx(ctx);
  const struct sk_buff *packet = kernel->skb;
  return packet ? packet->hash : 0;
}

// Whether the packet that is being received was sent by this very socket.
//
// Within one network namespace the addresses say so. Between two, neither they nor the sequence
// numbers do: those are a hash of the addresses, the same in all namespaces, and a clock of 64 ns,
// and two programs that are started together do connect in the same tick. What a socket sends bears
// its sk_txhash, which is random, over loopback and veth alike.
static __always_inline bool is_sent_by(struct bpf_sock_ops *ctx, const struct sock *receiver,
                                       const struct sock *sender) {
  if (receiver->__sk_common.skc_net.net == sender->__sk_common.skc_net.net) return true;
  const __u32 hash = received_hash(ctx);
  return hash && hash == sender->sk_txhash;
}

static __always_inline void join_server(struct bpf_sock_ops *ctx) {
  struct pair client_pair = {};
  fill_client_pair(&client_pair, ctx);
  const struct client *found = bpf_map_lookup_elem(&connecting, &client_pair);
  struct tcp_sock *tcp = found && ctx->sk ? bpf_skc_to_tcp_sock(ctx->sk) : NULL;
  if (!tcp) return;
  // The entry may be replaced by another connect at any time, so all checks are made on one copy.
  const struct client client = *found;
  if ((__u64)AS(sock, client.socket)->__sk_common.skc_cookie.counter != client.cookie) return;
  const struct tcp_sock *mine = AS(tcp_sock, tcp), *theirs = AS(tcp_sock, client.socket);
  // Data may have come with the SYN, or be under way: it has not been read.
  if (mine->copied_seq != client.first_seq + 1 || theirs->copied_seq != mine->write_seq) return;
  if (!is_sent_by(ctx, AS(sock, tcp), AS(sock, client.socket))) return;
  const __u64 cookie = bpf_get_socket_cookie(ctx), key = client.cookie;
  const struct joined both = {.client = client.socket, .server = (__u64)tcp, .server_cookie = cookie};
  const struct membership membership = {.key = key, .peer = key};
  if (!join(ctx, cookie, &membership)) return;
  // From here on the client's messages find the server: both sockets are in the sockhash.
  bpf_map_update_elem(&joined, &key, &both, BPF_ANY);
  bpf_map_delete_elem(&connecting, &client_pair);
}

static __always_inline void leave(struct bpf_sock_ops *ctx) {
  struct bpf_sock *sk = ctx->sk;
  const struct membership *membership = sk ? bpf_sk_storage_get(&memberships, sk, NULL, 0) : NULL;
  if (membership) {
    const __u64 key = membership->key;
    // The socket stays in the sockhash until it is closed, so that redirected data it has not read
    // stays readable.
    bpf_map_delete_elem(&joined, &key);
  }
  struct pair self = {};
  fill_pair(&self, ctx);
  const struct client *client = bpf_map_lookup_elem(&connecting, &self);
  if (client && client->cookie == bpf_get_socket_cookie(ctx)) bpf_map_delete_elem(&connecting, &self);
}

// Called for a connection request, before there is a socket and before the client gets an answer.
static __always_inline void note_local_server(struct bpf_sock_ops *ctx, bool is_lane) {
  struct pair client_pair = {};
  fill_client_pair(&client_pair, ctx);
  struct client *client = bpf_map_lookup_elem(&connecting, &client_pair);
  if (client && (!is_lane || client->is_to_lane)) client->has_local_server = 1;
}

static __always_inline void join_client(struct bpf_sock_ops *ctx) {
  struct pair self = {};
  fill_pair(&self, ctx);
  const struct client *client = bpf_map_lookup_elem(&connecting, &self);
  const __u64 cookie = bpf_get_socket_cookie(ctx);
  // not there, or the same addresses in another namespace
  if (!client || client->cookie != cookie) return;
  const struct membership membership = {.key = cookie, .is_client = 1};
  if (!client->has_local_server || !join(ctx, cookie, &membership)) bpf_map_delete_elem(&connecting, &self);
}

SEC("sockops")
int shortcut_sockops(struct bpf_sock_ops *ctx) {
  switch (ctx->op) {
  case BPF_SOCK_OPS_TCP_CONNECT_CB:
    begin_connect(ctx);
    return 1;
  case BPF_SOCK_OPS_RWND_INIT:
    note_local_server(ctx, false);
    return 1;
  case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
    join_client(ctx);
    return 1;
  case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
    join_server(ctx);
    return 1;
  case BPF_SOCK_OPS_STATE_CB:
    if (ctx->args[1] == BPF_TCP_CLOSE) leave(ctx);
    return 1;
  default:
    return 1;
  }
}

// The same for sockets that lanes accept, where the daemon is in a cgroup that is not steered.
// Other sockets of that cgroup take no part.
SEC("sockops")
int shortcut_daemon_sockops(struct bpf_sock_ops *ctx) {
  if (ctx->op == BPF_SOCK_OPS_RWND_INIT) {
    note_local_server(ctx, true);
    return 1;
  }
  struct bpf_sock *sk = ctx->sk;
  if (!sk || !bpf_sk_storage_get(&lane_marks, sk, NULL, 0)) return 1;
  if (ctx->op == BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB) join_server(ctx);
  if (ctx->op == BPF_SOCK_OPS_STATE_CB && ctx->args[1] == BPF_TCP_CLOSE) leave(ctx);
  return 1;
}

// Whether it is known where to redirect to. An entry that is deleted may be used again at once, so
// what was read belongs to these two only if the entry is still there afterwards.
static __always_inline bool knows_peer(struct membership *me, const struct joined *both) {
  if (me->peer) return true;
  const __u64 key = me->key, peer = both->server_cookie;
  if (!bpf_map_lookup_elem(&joined, &key)) return false;
  me->peer = peer;
  return true;
}

SEC("sk_msg")
int shortcut_message(struct sk_msg_md *ctx) {
  struct bpf_sock *sk = ctx->sk;
  struct membership *me = sk ? bpf_sk_storage_get(&memberships, sk, NULL, 0) : NULL;
  if (!me) return SK_PASS;
  struct direction *direction = &me->direction;
  const __u64 key = me->key;
  const struct joined *both = bpf_map_lookup_elem(&joined, &key);
  // the other end does not take part, has not joined yet, or is gone: TCP
  if (!both || !knows_peer(me, both)) {
    direction->is_by_tcp = 1;
    return SK_PASS;
  }

  const __u64 from = me->is_client ? both->client : both->server;
  const __u64 to = me->is_client ? both->server : both->client;
  __u64 target = me->peer;
  // A peer that has just gone is not found. That must not become an SK_DROP, which would be for
  // ever.
  if (!may_redirect(direction, from, to, ctx->size) ||
      bpf_msg_redirect_hash(ctx, &shortcut_sockets, &target, BPF_F_INGRESS) != SK_PASS) {
    direction->is_by_tcp = 1;
    count_message(SHORTCUT_BY_TCP);
    return SK_PASS;
  }
  direction->is_by_tcp = 0;
  direction->bytes += ctx->size;
  direction->messages += 1;
  count_message(SHORTCUT_REDIRECTED);
  return SK_PASS;
}

SEC("sk_msg")
int shortcut_trial(struct sk_msg_md *ctx) {
  __u64 receiver = 1;
  const __u32 first = 0;
  if (ctx->size == 1) {
    const __u32 charge = (__u32)AS(sock, ctx->sk)->sk_backlog.rmem_alloc.counter;
    bpf_map_update_elem(&trial_charge, &first, &charge, BPF_ANY);
    return SK_PASS;
  }
  bpf_msg_redirect_hash(ctx, &trial_sockets, &receiver, BPF_F_INGRESS);
  return SK_PASS;
}

char SHORTCUT_LICENSE[] SEC("license") = "Dual BSD/GPL";
