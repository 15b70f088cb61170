// SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0)
// Steering by destination: a connect() that a rule wants carried goes to a lane of the daemon
// instead, and neither program sees it.
//
//  connect4/6      decides, keeps the true destination with the socket, and rewrites it
//  sockops         the socket that is about to send its SYN has its addresses: what is known of its connect is left for
//                  the socket that will accept it, in `client_connects` and `server_connects`. That one takes it when
//                  it is established, before any program can accept it. Tells the daemon of listeners. Takes congestion
//                  control that paces away from the leg between program and daemon
//  getpeername4/6  shows a steered program its true destination, and a server its true client
//
// Where packets must get to a destination before it is carried (`asks_packets`), the daemon knocks
// there: it sends a SYN of its own, whose sequence number `knocks` tells it, and asks its peer what
// that has in `heard_syns`.
//
// Whatever a program could forge is not believed: a lane's listener bears a mark that only who may
// open these maps can give it, and a connect under way belongs to the socket that holds its
// addresses in that network namespace, with the sequence number of its SYN.
#include "rules.bpf.h"
#include "socket.bpf.h"

#define TCP_CONGESTION 13
#define CONGESTION_BYTES 16
#define TCP_SEQUENCE_OFFSET 4
#define TCP_FLAGS_OFFSET 13
#define TCP_FLAG_SYN 2
#define TCP_FLAG_RESET 4
// How often an admission is marked as used, at most: many processors may use it.
#define USED_EVERY_NS 250000000ull

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct settings);
} settings SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, 262144);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __type(key, struct ip_endpoint);
  __type(value, struct announcement);
} announced SEC(".maps");

// Those that no connect has asked for are evicted by newer ones.
struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, 16384);
  __type(key, struct admission_key);
  __type(value, struct admission);
} admissions SEC(".maps");

// The first sequence number of a knock: the daemon makes an entry for its socket, and reads it
// again after connect().
struct {
  __uint(type, BPF_MAP_TYPE_SK_STORAGE);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __type(key, int);
  __type(value, __u32);
} knocks SEC(".maps");

// The sequence numbers of the SYNs that answered knocks, by the cookies of their sockets.
struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, 4096);
  __type(key, __u64);
  __type(value, __u32);
} knock_answers SEC(".maps");

// SYNs that listeners got, by the last bits of their sequence numbers. Newer ones take the place of
// older ones.
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, HEARD_SYNS);
  __type(key, __u32);
  __type(value, struct heard_syn);
} heard_syns SEC(".maps");

// Processes that have the library of direct connections and have found a daemon. They sign by
// themselves, and the daemon removes them when they end.
struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, 16384);
  __type(key, __u32);
  __type(value, __u32);
} library_tgids SEC(".maps");

// A lane that has not renewed its deadline (by the monotonic clock) takes no new connections, nor
// does one whose deadline is LANE_FULL.
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, MAX_LANES);
  __type(key, __u32);
  __type(value, __u64);
} lane_deadlines SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, 65536);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __type(key, struct service_key);
  __type(value, struct service);
} services SEC(".maps");

// Accepted sockets inherit it from the listener.
struct {
  __uint(type, BPF_MAP_TYPE_SK_STORAGE);
  __uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_CLONE);
  __type(key, int);
  __type(value, struct lane_mark);
} lane_marks SEC(".maps");

// As in the kernel's <linux/in.h> and <linux/in6.h>.
struct sockaddr_in {
  __u16 family, port;
  __u32 address;
  __u8 unused[8];
};

struct sockaddr_in6 {
  __u16 family, port;
  __u32 flow_info;
  __u32 address[4];
  __u32 scope_id;
};

// A connect under way, as the connecting socket has its addresses.
struct flow {
  __u64 netns;
  struct pair pair;
};

// Of programs to lanes. Entries of connects that nobody accepted are evicted by newer ones.
struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, 65536);
  __type(key, struct flow);
  __type(value, struct connection);
} client_connects SEC(".maps");

struct server_connect {
  struct ip_endpoint client;
  __u32 first_seq;
};

// Of the daemon to servers, with the client that the server is to see.
struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, 65536);
  __type(key, struct flow);
  __type(value, struct server_connect);
} server_connects SEC(".maps");

// The client that a server is to see. The daemon gives it to its own socket, and the server's
// socket has it from there.
struct {
  __uint(type, BPF_MAP_TYPE_SK_STORAGE);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __type(key, int);
  __type(value, struct ip_endpoint);
} true_clients SEC(".maps");

// A steered connection, at the program's socket and at the one that a lane accepted.
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

// Events that the daemon was too slow for: it looks for itself what they would have told.
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, __u64);
} lost_events SEC(".maps");

// This puts types that only user space uses into the object's BTF.
const volatile struct event unused_event SEC(".rodata");

static __always_inline void count(__u32 verdict) {
  __u64 *counter = bpf_map_lookup_elem(&verdicts, &verdict);
  if (counter) __sync_fetch_and_add(counter, 1);
}

static __always_inline struct event *new_event(void) {
  struct event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
  if (event) {
    __builtin_memset(event, 0, sizeof(*event));
    return event;
  }
  __u64 *lost = bpf_map_lookup_elem(&lost_events, &zero);
  if (lost) __sync_fetch_and_add(lost, 1);
  return NULL;
}

static __always_inline void map_ipv4(__u32 *address, __u32 ipv4) {
  address[0] = 0;
  address[1] = 0;
  address[2] = bpf_htonl(0xffff);
  address[3] = ipv4;
}

// A lane that is alive and has room; or MAX_LANES when none is alive, and more when none has room.
static __always_inline __u32 pick_lane(const struct settings *set, __u64 now_ns) {
  const __u32 lanes = set->lanes, first = bpf_get_prandom_u32();
  __u32 none = MAX_LANES;
  for (__u32 i = 0; i < MAX_LANES; i++) {
    if (i >= lanes) break;
    const __u32 lane = (first + i) % lanes;
    const __u64 *deadline_ns = bpf_map_lookup_elem(&lane_deadlines, &lane);
    if (deadline_ns && *deadline_ns > now_ns) return lane;
    if (deadline_ns && *deadline_ns == LANE_FULL) none = MAX_LANES + 1;
  }
  return none;
}

static __always_inline const struct service *service_of(__u64 netns, __u32 lane) {
  const struct service_key key = {.netns = netns, .lane = lane};
  return bpf_map_lookup_elem(&services, &key);
}

// One of the lane's listeners, at random: as many connections go to each. A port of 0: there is
// none.
static __always_inline struct ip_endpoint pick_listener(const struct lane_ports *at) {
  struct ip_endpoint picked = {};
  if (!at->count) return picked;
  __builtin_memcpy(picked.address, at->address, sizeof(picked.address));
  picked.port = at->ports[bpf_get_prandom_u32() % at->count % LANE_PORTS];
  return picked;
}

// Whether the lane listens there at this moment. After the death of its daemon it does not, and
// nobody else can take its place.
static __always_inline bool is_listening(struct bpf_sock_addr *ctx, const struct ip_endpoint *at, __u32 lane) {
  struct bpf_sock_tuple tuple = {};
  __u32 size = sizeof(tuple.ipv6);
  if (at->address[2] == bpf_htonl(0xffff) && !at->address[1] && !at->address[0]) {
    tuple.ipv4.daddr = at->address[3];
    tuple.ipv4.dport = bpf_htons((__u16)at->port);
    size = sizeof(tuple.ipv4);
  } else {
    __builtin_memcpy(tuple.ipv6.daddr, at->address, sizeof(tuple.ipv6.daddr));
    tuple.ipv6.dport = bpf_htons((__u16)at->port);
  }
  struct bpf_sock *listener = bpf_sk_lookup_tcp(ctx, &tuple, size, BPF_F_CURRENT_NETNS, 0);
  if (!listener) return false;
  const struct lane_mark *mark = bpf_sk_storage_get(&lane_marks, listener, NULL, 0);
  const bool is_lane = mark && mark->lane == lane && listener->state == BPF_TCP_LISTEN;
  bpf_sk_release(listener);
  return is_lane;
}

// Between a program and the daemon every source address of the host works. By plain TCP these do
// not, or not for this destination; TCP itself gives the right answer.
static __always_inline bool is_odd_source(const struct bpf_sock *sk, const struct ip_endpoint *from) {
  if (sk && sk->bound_dev_if) return true;
  const __u32 *address = from->address;
  if (!address[0] && !address[1] && address[2] == bpf_htonl(0xffff)) return (bpf_ntohl(address[3]) >> 24) == 127;
  const bool is_loopback = !address[0] && !address[1] && !address[2] && address[3] == bpf_htonl(1);
  return is_loopback || (bpf_ntohl(address[0]) >> 22) == 0xfe80 >> 6;
}

// Whether packets got from there to the destination lately. Fills in the source address that they
// had, which the connection is to have as well.
static __always_inline bool is_admitted(struct connection *connection) {
  struct admission_key key = {.netns = connection->netns, .to = connection->original};
  __builtin_memcpy(key.from, connection->source.address, sizeof(key.from));
  struct admission *admission = bpf_map_lookup_elem(&admissions, &key);
  if (!admission) return false;
  if (connection->started_ns - admission->used_ns > USED_EVERY_NS) admission->used_ns = connection->started_ns;
  if (admission->deadline_ns < connection->started_ns) return false;
  __builtin_memcpy(connection->source.address, admission->from, sizeof(admission->from));
  return true;
}

// Decides, and fills in what is known of the connection. `at`: where the lane listens.
static __always_inline __u32 decide(struct bpf_sock_addr *ctx, const struct settings *set, const struct question *asked,
                                    const struct ip_endpoint *at, struct connection *connection) {
  const __u32 tgid = bpf_get_current_pid_tgid() >> 32;
  connection->original = asked->to;
  connection->pid = tgid;
  connection->cgroup_id = bpf_get_current_cgroup_id();
  connection->rule = ~0u;
  __builtin_memcpy(connection->command, asked->command, COMMAND_BYTES);
  if (tgid == set->daemon_tgid) return VERDICT_OWN;

  match_rules(asked, connection);
  if (connection->rule == ~0u) return VERDICT_NO_RULE;
  if (connection->action == ACTION_PASS) return VERDICT_DENIED;
  if (connection->action == ACTION_SHORTCUT) return VERDICT_SHORTCUT;
  if (is_odd_source(ctx->sk, &asked->from)) return VERDICT_SOURCE;
  if (connection->lane == MAX_LANES) return VERDICT_DAEMON_DOWN;
  if (connection->lane > MAX_LANES) return VERDICT_OVERLOADED;
  const struct announcement *announcement = bpf_map_lookup_elem(&announced, &asked->to);
  if (!announcement) return VERDICT_NOT_ANNOUNCED;
  if (!at->port) return VERDICT_NOT_SERVED;
  if (set->asks_packets && !is_admitted(connection)) return VERDICT_NOT_ADMITTED;
  if (!is_listening(ctx, at, connection->lane)) return VERDICT_DAEMON_DOWN;
  // Only where packets are known to get there: plain TCP needs them.
  const bool may_be_direct = set->asks_packets && (announcement->flags & ANNOUNCED_LIBRARY);
  return may_be_direct && bpf_map_lookup_elem(&library_tgids, &tgid) ? VERDICT_DIRECT : VERDICT_CARRIED;
}

// Tells the daemon of a connect that a rule left to plain TCP. Connects that match no rule are only
// counted, and of carried and direct ones the daemon hears in another way: waking it for each would
// take longer than the rest of this hook.
static __always_inline void tell(const struct connection *connection, __u32 family) {
  if (connection->verdict == VERDICT_OWN || connection->verdict == VERDICT_NO_RULE ||
      connection->verdict == VERDICT_CARRIED || connection->verdict == VERDICT_DIRECT) {
    return;
  }
  struct event *event = new_event();
  if (!event) return; // the verdict is counted all the same
  event->kind = EVENT_CONNECT;
  event->family = family;
  event->connection = *connection;
  bpf_ringbuf_submit(event, 0);
}

// True when the connect is to go to the daemon, at `at`.
static __always_inline bool is_steered(struct bpf_sock_addr *ctx, const struct settings *set, struct question *asked,
                                       const struct ip_endpoint *at, struct connection *connection) {
  bpf_get_current_comm(asked->command, sizeof(asked->command));
  connection->cookie = bpf_get_socket_cookie(ctx);
  connection->verdict = decide(ctx, set, asked, at, connection);
  if (connection->verdict == VERDICT_CARRIED || connection->verdict == VERDICT_SHORTCUT) {
    struct connection *kept = ctx->sk ? bpf_sk_storage_get(&sockets, ctx->sk, NULL, BPF_SK_STORAGE_GET_F_CREATE) : NULL;
    if (kept)
      *kept = *connection;
    else
      connection->verdict = VERDICT_NO_MEMORY;
  } else if (ctx->sk) {
    // The socket may have been steered by an earlier connect().
    bpf_sk_storage_delete(&sockets, ctx->sk);
  }
  count(connection->verdict);
  if (connection->verdict != VERDICT_OWN) bpf_map_update_elem(&recent, &connection->cookie, connection, BPF_ANY);
  tell(connection, ctx->family);
  return connection->verdict == VERDICT_CARRIED;
}

// The lane that would take the connect, and where it listens in this network namespace.
static __always_inline const struct service *begin(struct bpf_sock_addr *ctx, const struct settings *set,
                                                   struct connection *connection) {
  connection->started_ns = bpf_ktime_get_ns();
  connection->netns = bpf_get_netns_cookie(ctx);
  connection->lane = pick_lane(set, connection->started_ns);
  return service_of(connection->netns, connection->lane);
}

SEC("cgroup/connect4")
int steer_connect4(struct bpf_sock_addr *ctx) {
  if (ctx->protocol == IPPROTO_UDP && ctx->user_ip4 == bpf_htonl(SIGN_ADDRESS) &&
      ctx->user_port == bpf_htons(SIGN_PORT)) {
    const __u32 tgid = bpf_get_current_pid_tgid() >> 32, yes = 1;
    bpf_map_update_elem(&library_tgids, &tgid, &yes, BPF_ANY);
    return 1;
  }
  const struct settings *set = bpf_map_lookup_elem(&settings, &zero);
  if (ctx->protocol != IPPROTO_TCP || !set) return 1; // not ours to touch
  struct connection connection = {};
  struct question asked = {};
  const struct service *service = begin(ctx, set, &connection);
  struct ip_endpoint at = {};
  if (service) at = pick_listener(&service->ipv4);
  map_ipv4(asked.to.address, ctx->user_ip4);
  asked.to.port = bpf_ntohs((__u16)ctx->user_port);
  __builtin_memcpy(asked.from.address, at.address, sizeof(asked.from.address));
  const bool is_bound = ctx->sk && ctx->sk->src_ip4;
  if (is_bound) {
    map_ipv4(asked.from.address, ctx->sk->src_ip4);
    map_ipv4(connection.source.address, ctx->sk->src_ip4);
  }
  if (ctx->sk) asked.from.port = ctx->sk->src_port;
  // plain TCP, as if nothing were here
  if (!is_steered(ctx, set, &asked, &at, &connection)) return 1;
  // On the way to the lane the kernel would choose the lane's own address.
  if (!is_bound && connection.source.address[3] && connection.source.address[3] != at.address[3]) {
    struct sockaddr_in from = {.family = AF_INET, .address = connection.source.address[3]};
    bpf_bind(ctx, (struct sockaddr *)&from, sizeof(from));
  }
  ctx->user_ip4 = at.address[3];
  ctx->user_port = bpf_htons((__u16)at.port);
  return 1;
}

SEC("cgroup/connect6")
int steer_connect6(struct bpf_sock_addr *ctx) {
  const struct settings *set = bpf_map_lookup_elem(&settings, &zero);
  if (ctx->protocol != IPPROTO_TCP || !set) return 1; // not ours to touch
  struct connection connection = {};
  struct question asked = {};
  const struct service *service = begin(ctx, set, &connection);
  asked.to.address[0] = ctx->user_ip6[0];
  asked.to.address[1] = ctx->user_ip6[1];
  asked.to.address[2] = ctx->user_ip6[2];
  asked.to.address[3] = ctx->user_ip6[3];
  asked.to.port = bpf_ntohs((__u16)ctx->user_port);
  const bool is_mapped = !asked.to.address[0] && !asked.to.address[1] && asked.to.address[2] == bpf_htonl(0xffff);
  struct ip_endpoint at = {};
  if (service) at = pick_listener(is_mapped ? &service->ipv4 : &service->ipv6);
  __builtin_memcpy(asked.from.address, at.address, sizeof(asked.from.address));
  bool is_bound = false;
  if (ctx->sk) {
    asked.from.port = ctx->sk->src_port;
    is_bound = ctx->sk->src_ip6[0] | ctx->sk->src_ip6[1] | ctx->sk->src_ip6[2] | ctx->sk->src_ip6[3];
    if (is_bound) {
      asked.from.address[0] = ctx->sk->src_ip6[0];
      asked.from.address[1] = ctx->sk->src_ip6[1];
      asked.from.address[2] = ctx->sk->src_ip6[2];
      asked.from.address[3] = ctx->sk->src_ip6[3];
      __builtin_memcpy(connection.source.address, asked.from.address, sizeof(asked.from.address));
    }
  }
  // plain TCP, as if nothing were here
  if (!is_steered(ctx, set, &asked, &at, &connection)) return 1;
  const __u32 *source = connection.source.address;
  const bool is_chosen = source[0] | source[1] | source[2] | source[3];
  const bool is_lanes = source[0] == at.address[0] && source[1] == at.address[1] && source[2] == at.address[2] &&
                        source[3] == at.address[3];
  if (!is_bound && is_chosen && !is_lanes) {
    struct sockaddr_in6 from = {.family = AF_INET6};
    __builtin_memcpy(from.address, source, sizeof(from.address));
    bpf_bind(ctx, (struct sockaddr *)&from, sizeof(from));
  }
  ctx->user_ip6[0] = at.address[0];
  ctx->user_ip6[1] = at.address[1];
  ctx->user_ip6[2] = at.address[2];
  ctx->user_ip6[3] = at.address[3];
  ctx->user_port = bpf_htons((__u16)at.port);
  return 1;
}

// The true peer of a socket: the destination of a steered program, or the client of a server that
// the daemon connected to.
static __always_inline const struct ip_endpoint *true_peer(struct bpf_sock_addr *ctx) {
  if (!ctx->sk) return NULL;
  const struct connection *connection = bpf_sk_storage_get(&sockets, ctx->sk, NULL, 0);
  if (connection) return &connection->original;
  return bpf_sk_storage_get(&true_clients, ctx->sk, NULL, 0);
}

SEC("cgroup/getpeername4")
int steer_getpeername4(struct bpf_sock_addr *ctx) {
  const struct ip_endpoint *peer = true_peer(ctx);
  if (!peer) return 1;
  ctx->user_ip4 = peer->address[3];
  ctx->user_port = bpf_htons((__u16)peer->port);
  return 1;
}

SEC("cgroup/getpeername6")
int steer_getpeername6(struct bpf_sock_addr *ctx) {
  const struct ip_endpoint *peer = true_peer(ctx);
  if (!peer) return 1;
  ctx->user_ip6[0] = peer->address[0];
  ctx->user_ip6[1] = peer->address[1];
  ctx->user_ip6[2] = peer->address[2];
  ctx->user_ip6[3] = peer->address[3];
  ctx->user_port = bpf_htons((__u16)peer->port);
  return 1;
}

static __always_inline void tell_listener(struct bpf_sock_ops *ctx, __u32 kind) {
  struct event *event = new_event();
  if (!event) return; // the next scan finds it
  struct pair pair = {};
  fill_pair(&pair, ctx);
  event->kind = kind;
  event->family = ctx->family;
  event->local = pair.local;
  event->connection.netns = bpf_get_netns_cookie(ctx);
  event->connection.pid = bpf_get_current_pid_tgid() >> 32;
  bpf_ringbuf_submit(event, 0);
}

// A listener got a SYN. The context does not show the sequence numbers of a request, which is no
// full socket; what the kernel keeps behind the context does.
static __always_inline void hear_syn(struct bpf_sock_ops *ctx) {
  const struct tcp_request_sock *request = (void *)BPF_CORE_READ((struct bpf_sock_ops_kern *)ctx, sk);
  struct pair pair = {};
  fill_pair(&pair, ctx);
  const struct heard_syn heard = {
      .heard_ns = bpf_ktime_get_ns(),
      .netns = bpf_get_netns_cookie(ctx),
      .client = pair.remote,
      .server = pair.local,
      .sequence = BPF_CORE_READ(request, rcv_isn),
      .answer = BPF_CORE_READ(request, snt_isn),
  };
  const __u32 place = heard.sequence % HEARD_SYNS;
  bpf_map_update_elem(&heard_syns, &place, &heard, BPF_ANY);
}

// The daemon's own: it learns how the SYN that is about to leave can be told from others.
static __always_inline bool is_knock(struct bpf_sock *sk, __u32 first_seq) {
  __u32 *knock = bpf_sk_storage_get(&knocks, sk, NULL, 0);
  if (knock) *knock = first_seq;
  return knock;
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

static __always_inline __u32 first_seq_of(struct bpf_sock *sk) {
  const struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);
  return tcp ? BPF_CORE_READ(tcp, write_seq) : 0;
}

// Whether the connection of a socket that was just established began with that SYN.
static __always_inline bool began_with(struct bpf_sock *sk, __u32 first_seq) {
  const struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);
  return tcp && BPF_CORE_READ(tcp, copied_seq) == first_seq + 1;
}

// The source port is chosen, and no packet has left: nobody can accept before this.
static __always_inline void leave_connect(struct bpf_sock_ops *ctx, struct bpf_sock *sk) {
  if (is_knock(sk, first_seq_of(sk))) return;
  struct flow flow = {.netns = bpf_get_netns_cookie(ctx)};
  fill_pair(&flow.pair, ctx);
  const struct ip_endpoint *client = bpf_sk_storage_get(&true_clients, sk, NULL, 0);
  if (client) {
    const struct server_connect ours = {.client = *client, .first_seq = first_seq_of(sk)};
    bpf_map_update_elem(&server_connects, &flow, &ours, BPF_ANY);
    return;
  }
  const __u64 cookie = bpf_get_socket_cookie(ctx);
  struct connection *told = bpf_map_lookup_elem(&recent, &cookie);
  if (told) told->source = flow.pair.local;
  struct connection *connection = bpf_sk_storage_get(&sockets, sk, NULL, 0);
  if (!connection || connection->verdict != VERDICT_CARRIED) {
    restore_congestion(ctx, sk);
    return;
  }
  connection->source = flow.pair.local;
  connection->first_seq = first_seq_of(sk);
  bpf_map_update_elem(&client_connects, &flow, connection, BPF_ANY);
  unpace_leg(ctx, sk);
}

static __always_inline void take_connect(struct bpf_sock_ops *ctx, struct bpf_sock *sk) {
  struct flow flow = {.netns = bpf_get_netns_cookie(ctx)};
  fill_client_pair(&flow.pair, ctx);
  if (bpf_sk_storage_get(&lane_marks, sk, NULL, 0)) {
    struct connection *left = bpf_map_lookup_elem(&client_connects, &flow);
    if (left && began_with(sk, left->first_seq)) bpf_sk_storage_get(&sockets, sk, left, BPF_SK_STORAGE_GET_F_CREATE);
    bpf_map_delete_elem(&client_connects, &flow);
    return;
  }
  struct server_connect *left = bpf_map_lookup_elem(&server_connects, &flow);
  if (!left) return;
  if (began_with(sk, left->first_seq)) {
    bpf_sk_storage_get(&true_clients, sk, &left->client, BPF_SK_STORAGE_GET_F_CREATE);
    unpace_leg(ctx, sk);
  }
  bpf_map_delete_elem(&server_connects, &flow);
}

SEC("sockops")
int steer_sockops(struct bpf_sock_ops *ctx) {
  struct bpf_sock *sk = ctx->sk;
  switch (ctx->op) {
  case BPF_SOCK_OPS_TCP_CONNECT_CB:
    if (sk) leave_connect(ctx, sk);
    return 1;
  case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
    if (sk) take_connect(ctx, sk);
    return 1;
  case BPF_SOCK_OPS_TIMEOUT_INIT:
    if (!ctx->is_fullsock) hear_syn(ctx);
    return 1;
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

// The same for the daemon's own sockets, where the daemon is in a cgroup that is not steered. Other
// sockets of that cgroup take no part.
SEC("sockops")
int steer_daemon_sockops(struct bpf_sock_ops *ctx) {
  struct bpf_sock *sk = ctx->sk;
  if (!sk) return 1;
  if (ctx->op == BPF_SOCK_OPS_TCP_CONNECT_CB &&
      (bpf_sk_storage_get(&true_clients, sk, NULL, 0) || bpf_sk_storage_get(&knocks, sk, NULL, 0)))
    leave_connect(ctx, sk);
  if (ctx->op == BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB && bpf_sk_storage_get(&lane_marks, sk, NULL, 0))
    take_connect(ctx, sk);
  return 1;
}

// On the daemon's knocks: whatever answers the SYN is dropped, so that no server ever accepts a
// knock, and its sequence number is kept. A reset is let through: nobody listens there.
SEC("socket")
int knock_filter(struct __sk_buff *skb) {
  __u8 flags = TCP_FLAG_RESET;
  __u32 sequence = 0;
  bpf_skb_load_bytes(skb, TCP_FLAGS_OFFSET, &flags, sizeof(flags));
  bpf_skb_load_bytes(skb, TCP_SEQUENCE_OFFSET, &sequence, sizeof(sequence));
  if (flags & TCP_FLAG_RESET) return -1;
  if (!(flags & TCP_FLAG_SYN)) return 0;
  const __u64 cookie = bpf_get_socket_cookie(skb);
  sequence = bpf_ntohl(sequence);
  bpf_map_update_elem(&knock_answers, &cookie, &sequence, BPF_ANY);
  return 0;
}

// The daemon runs this to learn its process id as the hooks above see it, which in a PID namespace
// is another number.
SEC("syscall")
int steer_whoami(void *ctx) {
  return (int)(bpf_get_current_pid_tgid() >> 32);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
