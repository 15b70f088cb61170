// SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0)
// What the steering programs and TypeScript share: the layouts of maps and events.
// src/steering/layouts.ts is generated from them (tools/bpf-layouts.ts), so a change here is a
// change there.
#pragma once

#include <linux/bpf.h>
#include <stdbool.h>
#include <stddef.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define AF_INET 2
#define AF_INET6 10
#define IPPROTO_TCP 6
#define IPPROTO_UDP 17
#define MAX_RULES 64
#define MAX_LANES 64
#define LANE_PORTS 16
// As the deadline of a lane: it is alive, and takes no more connections.
#define LANE_FULL 1
#define COMMAND_BYTES 16
#define HEARD_SYNS 16384
// A UDP socket that is connected to here is the sign of a process that has the library
// (direct/layout.h has the same numbers).
#define SIGN_ADDRESS 0x7f4d5231
#define SIGN_PORT 4799

// Addresses are IPv6 in network order; IPv4 ones are mapped (::ffff:a.b.c.d). Ports are in host
// order.
struct ip_endpoint {
  __u32 address[4];
  __u32 port;
};

enum action { ACTION_PASS = 0, ACTION_CONNECT = 1, ACTION_SHORTCUT = 2 };

enum rule_flags { RULE_REDIRECT = 1 };

// One line of the rules. Whatever is zero matches everything.
struct rule {
  enum action action;
  enum rule_flags flags;
  __u32 to_address[4], to_mask[4];
  __u32 from_address[4], from_mask[4];
  __u32 first_port, last_port; // of the destination
  __u32 first_source_port, last_source_port;
  __u64 cgroup_id;
  __u32 cgroup_level; // how deep the cgroup is: the ancestor to compare
  __u32 has_command;
  char command[COMMAND_BYTES];
};

// Replaced as a whole, so that no connect sees half of a change.
struct rule_set {
  __u32 count;
  __u32 generation;
  struct rule rules[MAX_RULES];
};

struct settings {
  __u32 daemon_tgid;  // whose own sockets are left alone
  __u32 lanes;        // of the daemon that serves; 0 while none does
  __u32 asks_packets; // whether a destination needs an admission besides the announcement
  __u32 unused;
};

// A lane in a network namespace, which is known by its cookie.
struct service_key {
  __u64 netns;
  __u32 lane;
  __u32 unused;
};

// Where that lane accepts clients: at one address of each family, on each of the first ports. An
// address has only so many ports of its own for connections to one of these. No port: it does not,
// in that address family.
struct lane_ports {
  __u32 address[4];
  __u32 count;
  __u32 ports[LANE_PORTS];
};

struct service {
  struct lane_ports ipv4, ipv6;
};

// Marks the listeners of lanes, and what they accept: no other process can make such a socket.
struct lane_mark {
  __u32 lane;
  __u32 unused;
};

enum announcement_flags {
  ANNOUNCED_LIBRARY = 1, // by programs that have the library of direct connections
};

// A destination that a peer announced as listening.
struct announcement {
  __u32 peer;
  enum announcement_flags flags;
};

// From where to where packets must have got. A source of zero: whatever the kernel chooses.
struct admission_key {
  __u64 netns;
  __u32 from[4];
  struct ip_endpoint to;
  __u32 unused;
};

// They did, and connects may be carried until the deadline.
struct admission {
  __u64 deadline_ns;
  __u64 used_ns; // when a connect last asked, about
  __u32 from[4]; // the source address that they had
};

// A SYN that reached a listener below the cgroup, as it arrived there.
struct heard_syn {
  __u64 heard_ns;
  __u64 netns;
  struct ip_endpoint client, server;
  __u32 sequence;
  __u32 answer; // the sequence number of the SYN that answers it
};

// What was decided for a connect, and why. The order is that of the checks.
enum verdict {
  VERDICT_CARRIED = 0,
  VERDICT_OWN = 1, // the daemon's own socket
  VERDICT_NO_RULE = 2,
  VERDICT_DENIED = 3,        // a rule says so
  VERDICT_SOURCE = 4,        // its source address or device is for plain TCP to judge
  VERDICT_DAEMON_DOWN = 5,   // no lane is alive
  VERDICT_NOT_ANNOUNCED = 6, // no peer says that it listens
  VERDICT_NOT_SERVED = 7,    // no lane listens in its network namespace and address family
  VERDICT_NOT_ADMITTED = 8,  // packets from there have not got to the destination lately
  VERDICT_NO_MEMORY = 9,
  VERDICT_SHORTCUT = 10,   // to another program of this host, past TCP where that is possible
  VERDICT_DIRECT = 11,     // both programs have the library: as a plain one it can become direct
  VERDICT_OVERLOADED = 12, // lanes are alive, and have no room for more
  VERDICTS = 13,
};

// A steered connection, as its own socket and the daemon know it.
struct connection {
  struct ip_endpoint original;
  struct ip_endpoint source; // known once its SYN is about to leave
  __u64 cookie;
  __u64 netns;
  __u64 cgroup_id;
  __u64 started_ns;
  __u32 pid;
  __u32 rule;
  __u32 rule_generation;
  enum action action;
  enum rule_flags flags;
  enum verdict verdict;
  __u32 lane;      // that it was sent to
  __u32 first_seq; // of its SYN, which tells it from an earlier connection with the same addresses
  char command[COMMAND_BYTES];
};

enum event_kind { EVENT_CONNECT = 1, EVENT_LISTEN = 2, EVENT_UNLISTEN = 3 };

struct event {
  enum event_kind kind;
  __u32 family;
  struct ip_endpoint local;     // of a listener; zero for a connect
  struct connection connection; // of a connect; of a listener only `pid` and `netns`
};
