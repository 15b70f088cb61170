// SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0)
// Steering by messages, as in "Accelerating Inter-Host Communication Between Microservices with
// RDMA/eBPF": a connection is made by plain TCP, and then a proxy socket of the daemon stands for
// its other end. What the program sends is put into the proxy socket's queue, and what the daemon
// sends on the proxy socket into the program's. The connection itself carries nothing but its end.
//
//  sockops     gives an established connection a proxy socket of the pool, takes the two apart when the connection is
//              closed, and tells the daemon of both
//  sk_msg      redirects, both ways
//  cgroup_skb  holds the FIN back until the daemon says that all before it was delivered
//
// Nothing here limits what a program sends: docs/steering-skmsg.md says what that means.
#include "socket.bpf.h"

#define ETHERTYPE_IPV4 0x0800
#define IPV6_HEADER_BYTES 40
#define TCP_FLAGS_OFFSET 13
#define TCP_FIN 1

// In shortcut.bpf.c.
extern __u32 received_hash(struct bpf_sock_ops *ctx);

extern struct {
  __uint(type, BPF_MAP_TYPE_SK_STORAGE);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __type(key, int);
  __type(value, struct connection);
} sockets SEC(".maps");

extern struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct settings);
} settings SEC(".maps");

// Whose messages are redirected, and where to: programs' sockets by cookie, proxy sockets by
// number.
struct {
  __uint(type, BPF_MAP_TYPE_SOCKHASH);
  __uint(max_entries, 65536);
  __type(key, __u64);
  __type(value, __u64);
} intercepted_sockets SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_QUEUE);
  __uint(max_entries, 16384);
  __type(value, __u64);
} free_sockets SEC(".maps");

// What a proxy socket stands for.
struct association {
  __u64 cookie;
  __u64 socket; // the program's tcp_sock: only ever read, and only by BPF_CORE_READ
  __u64 sent, delivered;
};

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, 65536);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __type(key, __u64);
  __type(value, struct association);
} socket_association SEC(".maps");

// The number of a socket's proxy socket, or its own number if it is one.
struct {
  __uint(type, BPF_MAP_TYPE_SK_STORAGE);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __type(key, int);
  __type(value, struct proxy_request);
} proxy_numbers SEC(".maps");

// A connect of a program here. If the server is on this host, too, both ends are taken over or
// none.
struct proxied_connect {
  __u64 cookie;       // of the client's socket
  __u64 socket;       // its tcp_sock: only ever read, and only by BPF_CORE_READ
  __u64 server_proxy; // what waits for the server: one of SERVER_… below, or a proxy socket
  __u32 first_seq;    // of the client, by which the server knows it
};

// A proxy socket has one owner at a time: the queue of free ones, a connect, or a connection.
// Connection requests of two namespaces and the end of the client's socket may meet at one connect:
// server_proxy goes from SERVER_UNSEEN to what was reserved by compare and exchange, and from there
// to SERVER_SETTLED by exchange. Whoever gets a proxy socket out of it owns it; whoever could not
// put one in gives it back.
#define SERVER_UNSEEN 0
#define SERVER_WITHOUT 1
#define SERVER_SETTLED 2

// By the client's end, which two network namespaces may share. A second connect with the same ends
// stays with TCP, so an entry belongs to one connect from first to last.
struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, 65536);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __type(key, struct pair);
  __type(value, struct proxied_connect);
} proxied_connects SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, 4096);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __type(key, struct proxy_target);
  __type(value, __u32);
} proxy_targets SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_RINGBUF);
  __uint(max_entries, 1 << 20);
} new_sk SEC(".maps");

enum skmsg_count {
  SKMSG_TO_PROXY = 0,
  SKMSG_TO_PROGRAM = 1,
  SKMSG_NO_PROXY = 2,
  SKMSG_HELD_FINS = 3,
  SKMSG_COUNTS = 4
};

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, SKMSG_COUNTS);
  __type(key, __u32);
  __type(value, __u64);
} skmsg_counts SEC(".maps");

// This puts types that only user space uses into the object's BTF.
const volatile struct proxy_event unused_proxy_event SEC(".rodata");

static __always_inline void count_skmsg(__u32 which) {
  __u64 *counter = bpf_map_lookup_elem(&skmsg_counts, &which);
  if (counter) __sync_fetch_and_add(counter, 1);
}

// Zero when there is none.
static __always_inline __u64 free_proxy(void) {
  __u64 proxy = 0;
  if (!bpf_map_pop_elem(&free_sockets, &proxy)) return proxy;
  count_skmsg(SKMSG_NO_PROXY);
  return 0;
}

static __always_inline void give_back(__u64 proxy) {
  if (proxy) bpf_map_push_elem(&free_sockets, &proxy, 0);
}

// Asks to be told when this connection is closed, however that comes about. A program on the
// tracepoint tcp_destroy_sock is not told of all of them: docs/steering-skmsg.md.
static __always_inline void watch_close(struct bpf_sock_ops *ctx) {
  bpf_sock_ops_cb_flags_set(ctx, ctx->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_STATE_CB_FLAG);
}

// False when the connection stays with TCP; the proxy socket is then free again.
static __always_inline bool take_over(struct bpf_sock_ops *ctx, bool is_client, __u64 proxy) {
  struct bpf_sock *sk = ctx->sk;
  struct tcp_sock *tcp = sk ? bpf_skc_to_tcp_sock(sk) : NULL;
  if (!proxy || !tcp) {
    give_back(proxy);
    return false;
  }
  __u64 cookie = bpf_get_socket_cookie(ctx);
  const struct association association = {.cookie = cookie, .socket = (__u64)tcp};
  struct proxy_event *event = bpf_ringbuf_reserve(&new_sk, sizeof(*event), 0);
  struct proxy_request *number = bpf_sk_storage_get(&proxy_numbers, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
  // A connection that the daemon does not hear of must stay with TCP.
  if (!event || !number || bpf_map_update_elem(&socket_association, &proxy, &association, BPF_ANY)) goto undo;
  if (bpf_sock_hash_update(ctx, &intercepted_sockets, &cookie, BPF_ANY)) goto undo;
  watch_close(ctx);
  number->proxy = proxy;
  number->kind = 0;
  struct pair pair = {};
  fill_pair(&pair, ctx);
  event->proxy = proxy;
  event->kind = PROXY_OPENED;
  event->is_client = is_client;
  event->local = pair.local;
  event->remote = pair.remote;
  bpf_ringbuf_submit(event, 0);
  return true;
undo:
  if (event) bpf_ringbuf_discard(event, 0);
  if (number) bpf_sk_storage_delete(&proxy_numbers, sk);
  bpf_map_delete_elem(&socket_association, &proxy);
  give_back(proxy);
  return false;
}

static __always_inline void take_apart(__u64 proxy) {
  bpf_map_delete_elem(&socket_association, &proxy);
  struct proxy_event *event = bpf_ringbuf_reserve(&new_sk, sizeof(*event), 0);
  if (!event) return; // the daemon finds out when it uses the socket
  __builtin_memset(event, 0, sizeof(*event));
  event->proxy = proxy;
  event->kind = PROXY_CLOSED;
  bpf_ringbuf_submit(event, 0);
}

// Takes the proxy socket that waits for the server of a connect; zero if there is none. No other
// can be reserved then.
static __always_inline __u64 settle(struct proxied_connect *connect) {
  const __u64 proxy = __sync_lock_test_and_set(&connect->server_proxy, SERVER_SETTLED);
  return proxy > SERVER_SETTLED ? proxy : 0;
}

static __always_inline void end_connect(const struct pair *self, struct proxied_connect *connect) {
  give_back(settle(connect));
  bpf_map_delete_elem(&proxied_connects, self);
}

static __always_inline void begin_proxied_connect(struct bpf_sock_ops *ctx) {
  struct bpf_sock *sk = ctx->sk;
  const __u64 cookie = bpf_get_socket_cookie(ctx);
  // A socket that is connected again starts without what nobody read of its last connection.
  bpf_map_delete_elem(&intercepted_sockets, &cookie);
  const struct connection *connection = sk ? bpf_sk_storage_get(&sockets, sk, NULL, 0) : NULL;
  if (!connection || connection->verdict != VERDICT_SKMSG) return;
  struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);
  if (!tcp) return;
  struct pair self = {};
  fill_pair(&self, ctx);
  const struct proxied_connect connect = {
      .cookie = cookie, .socket = (__u64)tcp, .first_seq = BPF_CORE_READ(tcp, write_seq)};
  if (!bpf_map_update_elem(&proxied_connects, &self, &connect, BPF_NOEXIST)) watch_close(ctx);
}

// Called for a connection request, before the client gets an answer: the server's proxy socket is
// chosen first.
static __always_inline void reserve_for_server(struct bpf_sock_ops *ctx) {
  struct pair client_pair = {};
  fill_client_pair(&client_pair, ctx);
  struct proxied_connect *connect = bpf_map_lookup_elem(&proxied_connects, &client_pair);
  if (!connect || connect->server_proxy != SERVER_UNSEEN) return;
  const __u64 proxy = free_proxy();
  const __u64 choice = proxy ? proxy : SERVER_WITHOUT;
  if (__sync_val_compare_and_swap(&connect->server_proxy, SERVER_UNSEEN, choice) != SERVER_UNSEEN) give_back(proxy);
}

static __always_inline void take_over_client(struct bpf_sock_ops *ctx) {
  struct pair self = {};
  fill_pair(&self, ctx);
  struct proxied_connect *connect = bpf_map_lookup_elem(&proxied_connects, &self);
  if (!connect || connect->cookie != bpf_get_socket_cookie(ctx)) return; // not there, or another namespace's
  const __u64 server_proxy = connect->server_proxy;
  const bool is_taken = server_proxy != SERVER_WITHOUT && take_over(ctx, true, free_proxy());
  if (is_taken && server_proxy != SERVER_UNSEEN) return; // the server is next
  end_connect(&self, connect);
}

// Whether the packet that is being received, the last one of the handshake, was sent by this
// client. Between two network namespaces neither addresses nor sequence numbers prove it; see
// is_sent_by() in shortcut.bpf.c.
static __always_inline bool is_connect_of(struct bpf_sock_ops *ctx, const struct tcp_sock *mine,
                                          const struct proxied_connect *connect) {
  if (BPF_CORE_READ(mine, copied_seq) != connect->first_seq + 1) return false;
  const struct sock *receiver = (const struct sock *)mine, *sender = (const struct sock *)connect->socket;
  if ((__u64)BPF_CORE_READ(sender, __sk_common.skc_cookie.counter) != connect->cookie) return false;
  if (BPF_CORE_READ(receiver, __sk_common.skc_net.net) == BPF_CORE_READ(sender, __sk_common.skc_net.net)) return true;
  const __u32 hash = received_hash(ctx);
  return hash && hash == BPF_CORE_READ(sender, sk_txhash);
}

static __always_inline void take_over_server(struct bpf_sock_ops *ctx) {
  struct pair mine = {}, client_pair = {};
  struct proxy_target target = {};
  struct tcp_sock *tcp = ctx->sk ? bpf_skc_to_tcp_sock(ctx->sk) : NULL;
  fill_client_pair(&client_pair, ctx);
  struct proxied_connect *connect = bpf_map_lookup_elem(&proxied_connects, &client_pair);
  if (tcp && connect && connect->server_proxy != SERVER_UNSEEN && is_connect_of(ctx, tcp, connect)) {
    take_over(ctx, false, settle(connect));
    // Last: the daemon hears of both ends before another connect can begin with the same addresses.
    bpf_map_delete_elem(&proxied_connects, &client_pair);
    return;
  }
  fill_pair(&mine, ctx);
  target.server = mine.local;
  __builtin_memcpy(target.client, mine.remote.address, sizeof(target.client));
  if (bpf_map_lookup_elem(&proxy_targets, &target)) take_over(ctx, false, free_proxy());
}

// TCP is done with the connection. Its program may not be: what waits to be read is the psock's,
// and stays with the entry in intercepted_sockets until the kernel frees the socket or it is used
// again.
static __always_inline void closed(struct bpf_sock_ops *ctx) {
  struct pair self = {};
  fill_pair(&self, ctx);
  struct proxied_connect *connect = bpf_map_lookup_elem(&proxied_connects, &self);
  if (connect && connect->cookie == bpf_get_socket_cookie(ctx)) end_connect(&self, connect);
  struct bpf_sock *sk = ctx->sk;
  const struct proxy_request *number = sk ? bpf_sk_storage_get(&proxy_numbers, sk, NULL, 0) : NULL;
  if (!number || number->kind == PROXY_REQUEST_OFFER) return;
  take_apart(number->proxy);
  bpf_sk_storage_delete(&proxy_numbers, sk);
}

SEC("sockops")
int skmsg_sockops(struct bpf_sock_ops *ctx) {
  switch (ctx->op) {
  case BPF_SOCK_OPS_TCP_CONNECT_CB:
    begin_proxied_connect(ctx);
    return 1;
  case BPF_SOCK_OPS_RWND_INIT:
    reserve_for_server(ctx);
    return 1;
  case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
    take_over_client(ctx);
    return 1;
  case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
    take_over_server(ctx);
    return 1;
  case BPF_SOCK_OPS_STATE_CB:
    if (ctx->args[1] == BPF_TCP_CLOSE) closed(ctx);
    return 1;
  default:
    return 1;
  }
}

SEC("sk_msg")
int skmsg_message(struct sk_msg_md *ctx) {
  struct bpf_sock *sk = ctx->sk;
  const struct proxy_request *number = sk ? bpf_sk_storage_get(&proxy_numbers, sk, NULL, 0) : NULL;
  if (!number) return SK_PASS;
  __u64 proxy = number->proxy;
  struct association *association = bpf_map_lookup_elem(&socket_association, &proxy);
  // Bytes of this connection were somewhere else: to go on by TCP would tear a hole. The program
  // gets EACCES.
  if (!association) return SK_DROP;
  const bool is_proxy = number->kind == PROXY_REQUEST_OFFER;
  __u64 target = is_proxy ? association->cookie : proxy;
  if (!is_proxy) __sync_fetch_and_add(&association->sent, ctx->size);
  count_skmsg(is_proxy ? SKMSG_TO_PROGRAM : SKMSG_TO_PROXY);
  return (int)bpf_msg_redirect_hash(ctx, &intercepted_sockets, &target, BPF_F_INGRESS);
}

// Whether the packet is a FIN; false where its headers cannot be read.
static __always_inline bool is_fin(struct __sk_buff *skb) {
  __u32 offset = IPV6_HEADER_BYTES;
  __u8 byte = 0;
  if (skb->protocol == bpf_htons(ETHERTYPE_IPV4)) {
    if (bpf_skb_load_bytes(skb, 0, &byte, 1)) return false;
    offset = (byte & 0xf) * 4;
  }
  return !bpf_skb_load_bytes(skb, offset + TCP_FLAGS_OFFSET, &byte, 1) && (byte & TCP_FIN);
}

SEC("cgroup_skb/egress")
int skmsg_gate(struct __sk_buff *skb) {
  const __u32 first = 0;
  struct bpf_sock *sk = skb->sk ? bpf_sk_fullsock(skb->sk) : NULL;
  const struct proxy_request *number = sk ? bpf_sk_storage_get(&proxy_numbers, sk, NULL, 0) : NULL;
  if (!number || !is_fin(skb)) return 1;
  const __u64 proxy = number->proxy;
  const struct association *association = bpf_map_lookup_elem(&socket_association, &proxy);
  const struct settings *set = bpf_map_lookup_elem(&settings, &first);
  // no daemon will deliver
  if (!association || !set || bpf_ktime_get_ns() > set->deadline_ns) return 1;
  if (association->delivered >= association->sent) return 1;
  count_skmsg(SKMSG_HELD_FINS);
  return 0; // TCP tries again
}

SEC("syscall")
int skmsg_ask(struct proxy_request *request) {
  __u64 proxy = request->proxy;
  if (request->kind == PROXY_REQUEST_OFFER) return (int)bpf_map_push_elem(&free_sockets, &proxy, 0) ? 1 : 0;
  struct association *association = bpf_map_lookup_elem(&socket_association, &proxy);
  if (!association) return 1; // the connection is gone
  if (request->kind == PROXY_REQUEST_DELIVERED) association->delivered = request->bytes;
  request->bytes = association->sent;
  const struct sock *sk = (const struct sock *)association->socket;
  request->queued = (__u32)BPF_CORE_READ(sk, sk_backlog.rmem_alloc.counter);
  return 0;
}

char SKMSG_LICENSE[] SEC("license") = "Dual BSD/GPL";
