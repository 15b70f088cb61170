// SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0)
// Steering by destination: a connect() that a rule wants carried goes to the daemon instead, and
// neither program sees it.
//
//  connect4/6      decides, keeps the true destination with the socket, and rewrites it
//  sockops         knows the socket's source port before its SYN leaves, and writes the true destination to `steered`
//                  under that port, where the daemon finds it when it accepts. Tells the daemon of listeners. Takes
//                  congestion control that paces away from the leg between program and daemon
//  getpeername4/6  shows a steered program its true destination, and a server its true client
#include "rules.bpf.h"
#include "socket.bpf.h"

#define TCP_CONGESTION 13
#define CONGESTION_BYTES 16

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct settings);
} settings SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, 65536);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __type(key, struct ip_endpoint);
  __type(value, struct announcement);
} announced SEC(".maps");

// Where a steered connection was meant to go, by the source address and port of its socket. The
// daemon removes an entry when it accepts the connection; entries that are never taken are evicted
// by newer ones.
struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, 65536);
  __type(key, struct ip_endpoint);
  __type(value, struct connection);
} steered SEC(".maps");

// The client that a server is to see, by the address and port from which the daemon connects to the
// server.
struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, 65536);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __type(key, struct ip_endpoint);
  __type(value, struct ip_endpoint);
} true_clients SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_SK_STORAGE);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __type(key, int);
  __type(value, struct connection);
} sockets SEC(".maps");

// The congestion control that a carried socket had before, in case the socket is connected again to
// somewhere else.
struct {
  __uint(type, BPF_MAP_TYPE_SK_STORAGE);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __type(key, int);
  __type(value, char[CONGESTION_BYTES]);
} congestion SEC(".maps");

// The last connects with their verdicts, by the cookie of their socket, for `millrace steer
// explain`.
struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, 8192);
  __type(key, __u64);
  __type(value, struct connection);
} recent SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, VERDICTS);
  __type(key, __u32);
  __type(value, __u64);
} verdicts SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_RINGBUF);
  __uint(max_entries, 1 << 20);
} events SEC(".maps");

// This puts types that only user space uses into the object's BTF.
const volatile struct event unused_event SEC(".rodata");

static __always_inline void count(__u32 verdict) {
  __u64 *counter = bpf_map_lookup_elem(&verdicts, &verdict);
  if (counter) __sync_fetch_and_add(counter, 1);
}

static __always_inline void map_ipv4(__u32 *address, __u32 ipv4) {
  address[0] = 0;
  address[1] = 0;
  address[2] = bpf_htonl(0xffff);
  address[3] = ipv4;
}

// Decides, and fills in what is known of the connection.
static __always_inline __u32 decide(const struct settings *set, const struct question *asked,
                                    struct connection *connection) {
  const __u32 tgid = bpf_get_current_pid_tgid() >> 32;
  connection->original = asked->to;
  connection->pid = tgid;
  connection->cgroup_id = bpf_get_current_cgroup_id();
  connection->started_ns = bpf_ktime_get_ns();
  connection->rule = ~0u;
  __builtin_memcpy(connection->command, asked->command, COMMAND_BYTES);
  if (tgid == set->daemon_tgid) return VERDICT_OWN;

  match_rules(asked, connection);
  if (connection->rule == ~0u) return VERDICT_NO_RULE;
  if (connection->action == ACTION_PASS) return VERDICT_DENIED;
  if (connection->action == ACTION_SHORTCUT) return VERDICT_SHORTCUT;
  if (connection->started_ns > set->deadline_ns) return VERDICT_DAEMON_DOWN;
  if (!bpf_map_lookup_elem(&announced, &asked->to)) return VERDICT_NOT_ANNOUNCED;
  return VERDICT_CARRIED;
}

// Tells the daemon of a connect that a rule left to plain TCP. Connects that match no rule are only
// counted, and of carried ones the daemon hears when it accepts: waking it for each would take
// longer than the rest of this hook.
static __always_inline void tell(const struct connection *connection, __u32 family) {
  if (connection->verdict == VERDICT_OWN || connection->verdict == VERDICT_NO_RULE ||
      connection->verdict == VERDICT_CARRIED) {
    return;
  }
  struct event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
  if (!event) return; // the verdict is counted all the same
  __builtin_memset(event, 0, sizeof(*event));
  event->kind = EVENT_CONNECT;
  event->family = family;
  event->connection = *connection;
  bpf_ringbuf_submit(event, 0);
}

// True when the connect is to go to the daemon.
static __always_inline bool is_steered(struct bpf_sock_addr *ctx, const struct settings *set, struct question *asked) {
  struct connection connection = {};
  bpf_get_current_comm(asked->command, sizeof(asked->command));
  connection.cookie = bpf_get_socket_cookie(ctx);
  connection.verdict = decide(set, asked, &connection);
  const bool is_ours = connection.verdict == VERDICT_CARRIED || connection.verdict >= VERDICT_SHORTCUT;
  if (is_ours) {
    struct connection *kept = ctx->sk ? bpf_sk_storage_get(&sockets, ctx->sk, NULL, BPF_SK_STORAGE_GET_F_CREATE) : NULL;
    if (kept)
      *kept = connection;
    else
      connection.verdict = VERDICT_NO_MEMORY;
  } else if (ctx->sk) {
    // The socket may have been steered by an earlier connect().
    bpf_sk_storage_delete(&sockets, ctx->sk);
  }
  count(connection.verdict);
  if (connection.verdict != VERDICT_OWN) bpf_map_update_elem(&recent, &connection.cookie, &connection, BPF_ANY);
  tell(&connection, ctx->family);
  return connection.verdict == VERDICT_CARRIED;
}

SEC("cgroup/connect4")
int steer_connect4(struct bpf_sock_addr *ctx) {
  const struct settings *set = bpf_map_lookup_elem(&settings, &zero);
  if (ctx->protocol != IPPROTO_TCP || !set) return 1; // not ours to touch
  struct question asked = {};
  map_ipv4(asked.to.address, ctx->user_ip4);
  asked.to.port = bpf_ntohs((__u16)ctx->user_port);
  asked.from = set->host4;
  if (ctx->sk && ctx->sk->src_ip4) map_ipv4(asked.from.address, ctx->sk->src_ip4);
  if (ctx->sk) asked.from.port = ctx->sk->src_port;
  if (!is_steered(ctx, set, &asked)) return 1; // plain TCP, as if nothing were here
  ctx->user_ip4 = set->daemon4.address[3];
  ctx->user_port = bpf_htons((__u16)set->daemon4.port);
  return 1;
}

SEC("cgroup/connect6")
int steer_connect6(struct bpf_sock_addr *ctx) {
  const struct settings *set = bpf_map_lookup_elem(&settings, &zero);
  if (ctx->protocol != IPPROTO_TCP || !set) return 1; // not ours to touch
  struct question asked = {};
  asked.to.address[0] = ctx->user_ip6[0];
  asked.to.address[1] = ctx->user_ip6[1];
  asked.to.address[2] = ctx->user_ip6[2];
  asked.to.address[3] = ctx->user_ip6[3];
  asked.to.port = bpf_ntohs((__u16)ctx->user_port);
  const bool is_mapped = !asked.to.address[0] && !asked.to.address[1] && asked.to.address[2] == bpf_htonl(0xffff);
  asked.from = is_mapped ? set->host4 : set->host6;
  if (ctx->sk) {
    asked.from.port = ctx->sk->src_port;
    if (ctx->sk->src_ip6[0] | ctx->sk->src_ip6[1] | ctx->sk->src_ip6[2] | ctx->sk->src_ip6[3]) {
      asked.from.address[0] = ctx->sk->src_ip6[0];
      asked.from.address[1] = ctx->sk->src_ip6[1];
      asked.from.address[2] = ctx->sk->src_ip6[2];
      asked.from.address[3] = ctx->sk->src_ip6[3];
    }
  }
  if (!is_steered(ctx, set, &asked)) return 1; // plain TCP, as if nothing were here
  const struct ip_endpoint *daemon = is_mapped ? &set->daemon4 : &set->daemon6;
  ctx->user_ip6[0] = daemon->address[0];
  ctx->user_ip6[1] = daemon->address[1];
  ctx->user_ip6[2] = daemon->address[2];
  ctx->user_ip6[3] = daemon->address[3];
  ctx->user_port = bpf_htons((__u16)daemon->port);
  return 1;
}

// The true peer of a socket: the destination of a steered program, or the client of a server that
// the daemon connected to.
static __always_inline bool true_peer(struct bpf_sock_addr *ctx, const struct ip_endpoint *seen,
                                      struct ip_endpoint *peer) {
  const struct connection *connection = ctx->sk ? bpf_sk_storage_get(&sockets, ctx->sk, NULL, 0) : NULL;
  if (connection) {
    *peer = connection->original;
    return true;
  }
  const struct ip_endpoint *client = bpf_map_lookup_elem(&true_clients, seen);
  if (!client) return false;
  *peer = *client;
  return true;
}

SEC("cgroup/getpeername4")
int steer_getpeername4(struct bpf_sock_addr *ctx) {
  struct ip_endpoint seen = {}, peer;
  map_ipv4(seen.address, ctx->user_ip4);
  seen.port = bpf_ntohs((__u16)ctx->user_port);
  if (!true_peer(ctx, &seen, &peer)) return 1;
  ctx->user_ip4 = peer.address[3];
  ctx->user_port = bpf_htons((__u16)peer.port);
  return 1;
}

SEC("cgroup/getpeername6")
int steer_getpeername6(struct bpf_sock_addr *ctx) {
  struct ip_endpoint seen = {}, peer;
  seen.address[0] = ctx->user_ip6[0];
  seen.address[1] = ctx->user_ip6[1];
  seen.address[2] = ctx->user_ip6[2];
  seen.address[3] = ctx->user_ip6[3];
  seen.port = bpf_ntohs((__u16)ctx->user_port);
  if (!true_peer(ctx, &seen, &peer)) return 1;
  ctx->user_ip6[0] = peer.address[0];
  ctx->user_ip6[1] = peer.address[1];
  ctx->user_ip6[2] = peer.address[2];
  ctx->user_ip6[3] = peer.address[3];
  ctx->user_port = bpf_htons((__u16)peer.port);
  return 1;
}

static __always_inline void tell_listener(struct bpf_sock_ops *ctx, __u32 kind) {
  struct event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
  if (!event) return; // the next scan finds it
  struct pair pair = {};
  fill_pair(&pair, ctx);
  __builtin_memset(event, 0, sizeof(*event));
  event->kind = kind;
  event->family = ctx->family;
  event->local = pair.local;
  bpf_ringbuf_submit(event, 0);
}

// The leg between a program and the daemon never leaves the host, so there is no network to share.
// BBR would pace it, which halves its speed. A program that chose its congestion control keeps it.
static __always_inline void unpace_leg(struct bpf_sock_ops *ctx, struct bpf_sock *sk) {
  struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);
  if (!tcp || BPF_CORE_READ_BITFIELD_PROBED((struct inet_connection_sock *)tcp, icsk_ca_setsockopt)) return;
  char *before = bpf_sk_storage_get(&congestion, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
  char reno[] = "reno";
  if (!before || bpf_getsockopt(ctx, IPPROTO_TCP, TCP_CONGESTION, before, CONGESTION_BYTES)) return;
  bpf_setsockopt(ctx, IPPROTO_TCP, TCP_CONGESTION, reno, sizeof(reno));
}

// For a socket that was carried and now connects to somewhere else.
static __always_inline void restore_congestion(struct bpf_sock_ops *ctx, struct bpf_sock *sk) {
  char *before = bpf_sk_storage_get(&congestion, sk, NULL, 0);
  if (!before) return;
  bpf_setsockopt(ctx, IPPROTO_TCP, TCP_CONGESTION, before, CONGESTION_BYTES);
  bpf_sk_storage_delete(&congestion, sk);
}

SEC("sockops")
int steer_sockops(struct bpf_sock_ops *ctx) {
  switch (ctx->op) {
  case BPF_SOCK_OPS_TCP_CONNECT_CB: {
    // The source port is chosen, and no packet has left: the daemon cannot accept before this.
    struct pair pair = {};
    fill_pair(&pair, ctx);
    const struct ip_endpoint local = pair.local;
    const __u64 cookie = bpf_get_socket_cookie(ctx);
    struct connection *told = bpf_map_lookup_elem(&recent, &cookie);
    if (told) told->source = local;
    struct bpf_sock *sk = ctx->sk;
    if (!sk) return 1;
    struct connection *connection = bpf_sk_storage_get(&sockets, sk, NULL, 0);
    if (!connection || connection->verdict != VERDICT_CARRIED) {
      restore_congestion(ctx, sk);
      return 1;
    }
    connection->source = local;
    bpf_map_update_elem(&steered, &local, connection, BPF_ANY);
    unpace_leg(ctx, sk);
    return 1;
  }
  case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB: {
    struct pair pair = {};
    fill_pair(&pair, ctx);
    struct bpf_sock *sk = ctx->sk;
    if (sk && bpf_map_lookup_elem(&true_clients, &pair.remote)) unpace_leg(ctx, sk);
    return 1;
  }
  case BPF_SOCK_OPS_TCP_LISTEN_CB:
    tell_listener(ctx, EVENT_LISTEN);
    bpf_sock_ops_cb_flags_set(ctx, ctx->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_STATE_CB_FLAG);
    return 1;
  case BPF_SOCK_OPS_STATE_CB:
    if (ctx->args[0] == BPF_TCP_LISTEN) tell_listener(ctx, EVENT_UNLISTEN);
    return 1;
  default:
    return 1;
  }
}

// The daemon runs this to learn its process id as the hooks above see it, which in a PID namespace
// is another number.
SEC("syscall")
int steer_whoami(void *ctx) {
  return (int)(bpf_get_current_pid_tgid() >> 32);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
