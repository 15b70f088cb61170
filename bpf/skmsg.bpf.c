// SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0)
// Steering by messages, as the first seed has it: a connection is made as always, and then a proxy socket of the daemon
// stands for its other end. What the program sends is put into the proxy socket's queue, and what the daemon sends on
// the proxy socket into the program's. The connection itself carries nothing but its end.
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

// Whose messages are redirected, and where to: programs' sockets by cookie, proxy sockets by number.
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

// A call of a program here. Should the callee be on this host as well, both ends are taken over or none.
struct proxied_call {
  __u64 cookie;       // of the caller
  __u64 socket;       // its tcp_sock: only ever read, and only by BPF_CORE_READ
  __u64 callee_proxy; // what waits for the callee: one of CALLEE_… below, or a proxy socket
  __u32 first_seq;    // of the caller, by which the callee knows it
};

// A proxy socket has one owner at a time: the queue of free ones, a call, or a connection. Requests of two namespaces
// come to one call at once, and so does the caller's end: callee_proxy goes from CALLEE_UNSEEN to what was reserved by
// compare and exchange, and from there to CALLEE_SETTLED by exchange. Who gets a proxy socket out of it owns it; who
// could not put one in gives it back.
#define CALLEE_UNSEEN 0
#define CALLEE_WITHOUT 1
#define CALLEE_SETTLED 2

// By the caller's end, which two network namespaces may share: who comes while another call under it is under way stays
// with TCP, so that what is found here is one call's from the first to the last.
struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, 65536);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __type(key, struct pair);
  __type(value, struct proxied_call);
} proxied_calls SEC(".maps");

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

// So that the types that only user space uses are in the object's BTF as well.
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

// Asks to be told when this connection is closed, however that comes about. A program on the tracepoint
// tcp_destroy_sock is not told of all of them: docs/steering-skmsg.md.
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
  // Nobody may stand for a connection that the daemon does not hear of.
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

// The proxy socket that waits for a call's callee, zero if there is none. From now on there will be none.
static __always_inline __u64 settle(struct proxied_call *call) {
  const __u64 proxy = __sync_lock_test_and_set(&call->callee_proxy, CALLEE_SETTLED);
  return proxy > CALLEE_SETTLED ? proxy : 0;
}

static __always_inline void end_call(const struct pair *self, struct proxied_call *call) {
  give_back(settle(call));
  bpf_map_delete_elem(&proxied_calls, self);
}

static __always_inline void call_through_proxy(struct bpf_sock_ops *ctx) {
  struct bpf_sock *sk = ctx->sk;
  const __u64 cookie = bpf_get_socket_cookie(ctx);
  // A socket that is used again starts without what nobody read the last time.
  bpf_map_delete_elem(&intercepted_sockets, &cookie);
  const struct connection *connection = sk ? bpf_sk_storage_get(&sockets, sk, NULL, 0) : NULL;
  if (!connection || connection->verdict != VERDICT_SKMSG) return;
  struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);
  if (!tcp) return;
  struct pair self = {};
  fill_pair(&self, ctx);
  const struct proxied_call call = {.cookie = cookie, .socket = (__u64)tcp, .first_seq = BPF_CORE_READ(tcp, write_seq)};
  if (!bpf_map_update_elem(&proxied_calls, &self, &call, BPF_NOEXIST)) watch_close(ctx);
}

// Of a connection request, whose caller has not heard of it yet: the callee's proxy socket is chosen first.
static __always_inline void reserve_for_callee(struct bpf_sock_ops *ctx) {
  struct pair callers = {};
  fill_callers_pair(&callers, ctx);
  struct proxied_call *call = bpf_map_lookup_elem(&proxied_calls, &callers);
  if (!call || call->callee_proxy != CALLEE_UNSEEN) return;
  const __u64 proxy = free_proxy();
  const __u64 choice = proxy ? proxy : CALLEE_WITHOUT;
  if (__sync_val_compare_and_swap(&call->callee_proxy, CALLEE_UNSEEN, choice) != CALLEE_UNSEEN) give_back(proxy);
}

static __always_inline void take_over_caller(struct bpf_sock_ops *ctx) {
  struct pair self = {};
  fill_pair(&self, ctx);
  struct proxied_call *call = bpf_map_lookup_elem(&proxied_calls, &self);
  if (!call || call->cookie != bpf_get_socket_cookie(ctx)) return; // or the same addresses in another namespace
  const __u64 callee_proxy = call->callee_proxy;
  const bool is_taken = callee_proxy != CALLEE_WITHOUT && take_over(ctx, true, free_proxy());
  if (is_taken && callee_proxy != CALLEE_UNSEEN) return; // the callee is next
  end_call(&self, call);
}

// Whether the packet that is being received, the last one of the handshake, was sent by this caller. Addresses and
// sequence numbers do not say it between two namespaces; see is_sent_by() in shortcut.bpf.c.
static __always_inline bool is_called_by(struct bpf_sock_ops *ctx, const struct tcp_sock *mine,
                                         const struct proxied_call *call) {
  if (BPF_CORE_READ(mine, copied_seq) != call->first_seq + 1) return false;
  const struct sock *receiver = (const struct sock *)mine, *sender = (const struct sock *)call->socket;
  if ((__u64)BPF_CORE_READ(sender, __sk_common.skc_cookie.counter) != call->cookie) return false;
  if (BPF_CORE_READ(receiver, __sk_common.skc_net.net) == BPF_CORE_READ(sender, __sk_common.skc_net.net)) return true;
  const __u32 hash = received_hash(ctx);
  return hash && hash == BPF_CORE_READ(sender, sk_txhash);
}

static __always_inline void take_over_callee(struct bpf_sock_ops *ctx) {
  struct pair mine = {}, callers = {};
  struct proxy_target target = {};
  struct tcp_sock *tcp = ctx->sk ? bpf_skc_to_tcp_sock(ctx->sk) : NULL;
  fill_callers_pair(&callers, ctx);
  struct proxied_call *call = bpf_map_lookup_elem(&proxied_calls, &callers);
  if (tcp && call && call->callee_proxy != CALLEE_UNSEEN && is_called_by(ctx, tcp, call)) {
    take_over(ctx, false, settle(call));
    // Last: the daemon hears of both ends before another call can begin under the same addresses.
    bpf_map_delete_elem(&proxied_calls, &callers);
    return;
  }
  fill_pair(&mine, ctx);
  target.server = mine.local;
  __builtin_memcpy(target.client, mine.remote.address, sizeof(target.client));
  if (bpf_map_lookup_elem(&proxy_targets, &target)) take_over(ctx, false, free_proxy());
}

// TCP is done with the connection. Its program may not be: what waits to be read is the psock's, and stays with the
// entry in intercepted_sockets until the kernel frees the socket or it is used again.
static __always_inline void closed(struct bpf_sock_ops *ctx) {
  struct pair self = {};
  fill_pair(&self, ctx);
  struct proxied_call *call = bpf_map_lookup_elem(&proxied_calls, &self);
  if (call && call->cookie == bpf_get_socket_cookie(ctx)) end_call(&self, call);
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
    call_through_proxy(ctx);
    return 1;
  case BPF_SOCK_OPS_RWND_INIT:
    reserve_for_callee(ctx);
    return 1;
  case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
    take_over_caller(ctx);
    return 1;
  case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
    take_over_callee(ctx);
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
  // Bytes of this connection were somewhere else: to go on by TCP would tear a hole. The program gets EACCES.
  if (!association) return SK_DROP;
  const bool is_proxy = number->kind == PROXY_REQUEST_OFFER;
  __u64 target = is_proxy ? association->cookie : proxy;
  if (!is_proxy) __sync_fetch_and_add(&association->sent, ctx->size);
  count_skmsg(is_proxy ? SKMSG_TO_PROGRAM : SKMSG_TO_PROXY);
  return (int)bpf_msg_redirect_hash(ctx, &intercepted_sockets, &target, BPF_F_INGRESS);
}

// Whether the packet is a FIN; where it cannot be told, it is none.
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
  if (!association || !set || bpf_ktime_get_ns() > set->deadline_ns) return 1; // there is nobody to wait for
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
