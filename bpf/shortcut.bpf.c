// SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0)
// The shortcut: what one local socket sends is put straight into the other one's queue, past the whole TCP stack. For
// two programs on this host (ACTION_SHORTCUT), and for a program and the daemon (RULE_REDIRECT).
//
// A message takes it only while all of these hold, and TCP otherwise, whose backpressure then holds the sender:
//  order   everything that went by TCP has been read (the peer's copied_seq is my write_seq), and nobody is still
//          reading it. What was redirected is read before what waits in TCP's queue, so nothing overtakes anything
//  credit  what waits in the peer's queue stays below a limit, in bytes and in messages, and the host's memory for TCP
//          is not short
//
// A connection is found like this:
//  TCP_CONNECT          the caller's SYN has not left: `wanted` says who calls, by both addresses
//  RWND_INIT            the SYN was received by a program that is steered as well: the callee is local
//  ACTIVE_ESTABLISHED   the caller joins, if the callee is local; all others never see a sockhash
//  PASSIVE_ESTABLISHED  the callee joins, once it is sure that this is the caller's other end (the same addresses may
//                       be in use in another network namespace), and makes the link of the two
#include "socket.bpf.h"

#define CREDIT_BYTES (4 << 20)
#define CREDIT_MESSAGES 1024
#define MAX_WAITERS 4
// What a sender may have under way by TCP. With more, a receiver that is a little slower never comes to the end of it,
// and the connection does not find back: bulk runs at 0.7 of plain TCP instead of 2.
#define SEND_BYTES (128 << 10)
#define SOL_SOCKET 1
#define SO_SNDBUF 7
#define SOCK_RCVBUF_LOCK 2

// Only one of the objects that are linked may declare it.
extern void *bpf_rdonly_cast(const void *object, __u32 btf_id) __ksym;
extern void *bpf_cast_to_kern_ctx(void *ctx) __ksym;
// How a task that sleeps in recv() is woken; epoll and poll have functions of their own.
extern const void woken_wake_function __ksym __weak;

#define AS(type, address) ((struct type *)bpf_rdonly_cast((void *)(address), bpf_core_type_id_kernel(struct type)))

// Who calls, until the callee has found it.
struct call {
  __u64 cookie;
  __u64 socket; // its tcp_sock
  __u32 first_seq;
  __u32 is_local;
};

// One direction of a link. Bytes and messages are counted modulo 2^32.
struct lane {
  __u32 bytes, messages;           // redirected so far
  __u32 mark_bytes, mark_messages; // where these two were a while ago,
  __u32 read_messages;             // and before that: the receiver has read at least these
  __u32 is_by_tcp;                 // the last message
};

// Two sockets that are each other's ends. They are only ever read, and only through bpf_rdonly_cast: they may be gone
// already. What is then read decides nothing, because no socket is found under a cookie that is gone.
struct link {
  __u64 caller, callee; // tcp_sock
  __u64 callee_cookie;
};

// What a socket knows of its link. Only its own programs write here.
struct membership {
  __u64 link; // the caller's cookie
  __u64 peer; // the other end's: a caller hears of it with its first message
  __u32 is_client;
  struct lane lane; // to the other end
  __u32 unused;
};

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

// Calls under way, by the caller's end. What is never answered is pushed out by what is newer.
struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, 65536);
  __type(key, struct pair);
  __type(value, struct call);
} wanted SEC(".maps");

// By socket cookie, which no two sockets ever share.
struct {
  __uint(type, BPF_MAP_TYPE_SOCKHASH);
  __uint(max_entries, 65536);
  __type(key, __u64);
  __type(value, __u64);
} shortcut_sockets SEC(".maps");

// By the caller's cookie.
struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, 65536);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __type(key, __u64);
  __type(value, struct link);
} links SEC(".maps");

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

// For the trial that a load begins with: a message to the socket under key 1, which then says what its queue was
// charged.
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

// False when the socket stays with TCP: no memory, a ULP (TLS, say), or a sender that waits for zero-copy completions,
// which sockets in a sockhash never get.
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

static __always_inline void call(struct bpf_sock_ops *ctx) {
  struct bpf_sock *sk = ctx->sk;
  const struct connection *connection = sk ? bpf_sk_storage_get(&sockets, sk, NULL, 0) : NULL;
  const __u64 cookie = bpf_get_socket_cookie(ctx);
  // A socket that is used again starts afresh, and without what nobody read the last time.
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
  const struct call call = {.cookie = cookie, .socket = (__u64)tcp, .first_seq = AS(tcp_sock, tcp)->write_seq};
  bpf_map_update_elem(&wanted, &self, &call, BPF_ANY);
  watch_state(ctx);
}

// Of the packet that is being received; zero when there is none. No inline function, because skmsg needs it as well,
// and only one of the objects that are linked may declare what it is made of.
__attribute__((noinline)) __u32 received_hash(struct bpf_sock_ops *ctx) {
  const struct bpf_sock_ops_kern *kernel = bpf_cast_to_kern_ctx(ctx);
  const struct sk_buff *packet = kernel->skb;
  return packet ? packet->hash : 0;
}

// Whether the packet that is being received was sent by this very socket.
//
// Within one network namespace the addresses say so. Between two, neither they nor the sequence numbers do: those are a
// hash of the addresses, the same in all namespaces, and a clock of 64 ns, and two programs that are started together
// do connect in the same tick. What a socket sends bears its sk_txhash, which is random, over loopback and veth alike.
static __always_inline bool is_sent_by(struct bpf_sock_ops *ctx, const struct sock *receiver,
                                       const struct sock *sender) {
  if (receiver->__sk_common.skc_net.net == sender->__sk_common.skc_net.net) return true;
  const __u32 hash = received_hash(ctx);
  return hash && hash == sender->sk_txhash;
}

static __always_inline void answer(struct bpf_sock_ops *ctx) {
  struct pair callers = {};
  fill_callers_pair(&callers, ctx);
  const struct call *found = bpf_map_lookup_elem(&wanted, &callers);
  struct tcp_sock *tcp = found && ctx->sk ? bpf_skc_to_tcp_sock(ctx->sk) : NULL;
  if (!tcp) return;
  // The entry may be used for another call at any time: what counts is one copy, whose parts fit together.
  const struct call call = *found;
  if ((__u64)AS(sock, call.socket)->__sk_common.skc_cookie.counter != call.cookie) return;
  const struct tcp_sock *mine = AS(tcp_sock, tcp), *theirs = AS(tcp_sock, call.socket);
  // Data may have come with the SYN, or be under way: it has not been read.
  if (mine->copied_seq != call.first_seq + 1 || theirs->copied_seq != mine->write_seq) return;
  if (!is_sent_by(ctx, AS(sock, tcp), AS(sock, call.socket))) return;
  const __u64 cookie = bpf_get_socket_cookie(ctx), key = call.cookie;
  const struct link link = {.caller = call.socket, .callee = (__u64)tcp, .callee_cookie = cookie};
  const struct membership membership = {.link = key, .peer = key};
  if (!join(ctx, cookie, &membership)) return;
  // From here on the caller's messages find their way: both are in their places.
  bpf_map_update_elem(&links, &key, &link, BPF_ANY);
  bpf_map_delete_elem(&wanted, &callers);
}

static __always_inline void leave(struct bpf_sock_ops *ctx) {
  struct bpf_sock *sk = ctx->sk;
  const struct membership *membership = sk ? bpf_sk_storage_get(&memberships, sk, NULL, 0) : NULL;
  if (membership) {
    const __u64 key = membership->link;
    // What was redirected to it and not read yet stays readable: it leaves the sockhash when it is closed.
    bpf_map_delete_elem(&links, &key);
  }
  struct pair self = {};
  fill_pair(&self, ctx);
  const struct call *call = bpf_map_lookup_elem(&wanted, &self);
  if (call && call->cookie == bpf_get_socket_cookie(ctx)) bpf_map_delete_elem(&wanted, &self);
}

// Of a connection request, not of a socket. The caller has not heard of it yet.
static __always_inline void note_local(struct bpf_sock_ops *ctx) {
  struct pair callers = {};
  fill_callers_pair(&callers, ctx);
  struct call *call = bpf_map_lookup_elem(&wanted, &callers);
  if (call) call->is_local = 1;
}

static __always_inline void join_caller(struct bpf_sock_ops *ctx) {
  struct pair self = {};
  fill_pair(&self, ctx);
  const struct call *call = bpf_map_lookup_elem(&wanted, &self);
  const __u64 cookie = bpf_get_socket_cookie(ctx);
  if (!call || call->cookie != cookie) return; // or the same addresses in another namespace
  const struct membership membership = {.link = cookie, .is_client = 1};
  if (!call->is_local || !join(ctx, cookie, &membership)) bpf_map_delete_elem(&wanted, &self);
}

SEC("sockops")
int shortcut_sockops(struct bpf_sock_ops *ctx) {
  switch (ctx->op) {
  case BPF_SOCK_OPS_TCP_CONNECT_CB:
    call(ctx);
    return 1;
  case BPF_SOCK_OPS_RWND_INIT:
    note_local(ctx);
    return 1;
  case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
    join_caller(ctx);
    return 1;
  case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
    answer(ctx);
    return 1;
  case BPF_SOCK_OPS_STATE_CB:
    if (ctx->args[1] == BPF_TCP_CLOSE) leave(ctx);
    return 1;
  default:
    return 1;
  }
}

// The same for the daemon's door, where the daemon is in a cgroup that is not steered. Other sockets there take no
// part.
SEC("sockops")
int shortcut_door_sockops(struct bpf_sock_ops *ctx) {
  const __u32 first = 0;
  const struct settings *set = bpf_map_lookup_elem(&settings, &first);
  if (!set || (ctx->local_port != set->daemon4.port && ctx->local_port != set->daemon6.port)) return 1;
  switch (ctx->op) {
  case BPF_SOCK_OPS_RWND_INIT:
    note_local(ctx);
    return 1;
  case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
    answer(ctx);
    return 1;
  case BPF_SOCK_OPS_STATE_CB:
    if (ctx->args[1] == BPF_TCP_CLOSE) leave(ctx);
    return 1;
  default:
    return 1;
  }
}

// Whether somebody may be inside TCP's own recv(), which does not see what is redirected: holding the socket, or asleep
// in the middle of a read (MSG_WAITALL). Whoever sleeps put itself into the list before it let the socket go.
static __always_inline bool is_being_read(const struct sock *sk) {
  if (sk->sk_lock.owned) return true;
  const struct list_head *head = __builtin_preserve_access_index(&sk->sk_wq->wait.head);
  const struct list_head *at = head->next;
  for (int i = 0; i < MAX_WAITERS; i++) {
    if (at == head) return false;
    const struct wait_queue_entry *waiter =
        AS(wait_queue_entry, (void *)at - bpf_core_field_offset(struct wait_queue_entry, entry));
    if (!&woken_wake_function || waiter->func == &woken_wake_function) return true;
    at = waiter->entry.next;
  }
  return true;
}

static __always_inline bool is_memory_short(const struct sock *sk) {
  unsigned long is_short = 0;
  bpf_probe_read_kernel(&is_short, sizeof(is_short), sk->__sk_common.skc_prot->memory_pressure);
  return is_short;
}

static __always_inline bool has_ulp(__u64 socket) {
  return AS(inet_connection_sock, socket)->icsk_ulp_ops != NULL;
}

static __always_inline bool has_order(const struct lane *lane, __u64 from, __u64 to, const struct sock *receiver) {
  if (AS(tcp_sock, to)->copied_seq != AS(tcp_sock, from)->write_seq) return false;
  if (receiver->sk_rcvlowat > 1) return false; // only TCP knows when that is reached
  return !lane->is_by_tcp || !is_being_read(receiver);
}

// TCP drops what it receives while more than the receive buffer is queued, and what is redirected counts: it must leave
// room. A buffer grows up to the limit of its network namespace, unless the program chose its size: then it is TCP's.
static __always_inline __u32 credit_of(const struct sock *receiver) {
  if (BPF_CORE_READ_BITFIELD(receiver, sk_userlocks) & SOCK_RCVBUF_LOCK) return 0;
  const __u32 most = (__u32)receiver->__sk_common.skc_net.net->ipv4.sysctl_tcp_rmem[2];
  return most / 3 * 2 < CREDIT_BYTES ? most / 3 * 2 : CREDIT_BYTES;
}

// Asked only when all that went by TCP was read, so what is queued is what was redirected.
static __always_inline bool has_credit(struct lane *lane, const struct sock *receiver, __u32 size) {
  const __u32 queued = (__u32)receiver->sk_backlog.rmem_alloc.counter;
  if (queued + size > credit_of(receiver)) return false;
  if ((__s32)(lane->bytes - queued - lane->mark_bytes) >= 0) {
    lane->read_messages = lane->mark_messages;
    lane->mark_messages = lane->messages;
    lane->mark_bytes = lane->bytes;
  }
  if (queued == 0) lane->read_messages = lane->messages;
  return lane->messages - lane->read_messages < CREDIT_MESSAGES;
}

// Whether it is known where to redirect to. Entries of a map that are deleted are used again at once: what was read is
// only this link's when the link is still there afterwards.
static __always_inline bool knows_peer(struct membership *me, const struct link *link) {
  if (me->peer) return true;
  const __u64 key = me->link, peer = link->callee_cookie;
  if (!bpf_map_lookup_elem(&links, &key)) return false;
  me->peer = peer;
  return true;
}

SEC("sk_msg")
int shortcut_message(struct sk_msg_md *ctx) {
  struct bpf_sock *sk = ctx->sk;
  struct membership *me = sk ? bpf_sk_storage_get(&memberships, sk, NULL, 0) : NULL;
  if (!me) return SK_PASS;
  struct lane *lane = &me->lane;
  const __u64 key = me->link;
  const struct link *link = bpf_map_lookup_elem(&links, &key);
  if (!link || !knows_peer(me, link)) { // the other end does not take part, not yet, or is gone: TCP
    lane->is_by_tcp = 1;
    return SK_PASS;
  }

  const __u64 from = me->is_client ? link->caller : link->callee;
  const __u64 to = me->is_client ? link->callee : link->caller;
  const struct sock *receiver = AS(sock, to);
  __u64 target = me->peer;
  // A peer that has just gone is not found: that must not become an SK_DROP, which would be for ever.
  if (!has_order(lane, from, to, receiver) || !has_credit(lane, receiver, ctx->size) || is_memory_short(receiver) ||
      has_ulp(from) || has_ulp(to) ||
      bpf_msg_redirect_hash(ctx, &shortcut_sockets, &target, BPF_F_INGRESS) != SK_PASS) {
    lane->is_by_tcp = 1;
    count_message(SHORTCUT_BY_TCP);
    return SK_PASS;
  }
  lane->is_by_tcp = 0;
  lane->bytes += ctx->size;
  lane->messages += 1;
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
