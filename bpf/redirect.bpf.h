// SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0)
// Whether a message may be redirected past TCP. All of these must hold; otherwise it goes by TCP,
// whose backpressure then holds the sender.
//  order   everything that went by TCP has been read (the receiver's copied_seq is the sender's write_seq), and nobody
//  is
//          still reading it: redirected data is read before what waits in TCP's queue
//  credit  what waits in the receiver's queue stays below a limit, in bytes and in messages, and the host's memory for
//          TCP is not short
#pragma once

#include "socket.bpf.h"

#define CREDIT_BYTES (4 << 20)
#define CREDIT_MESSAGES 1024
#define MAX_WAITERS 4
#define SOCK_RCVBUF_LOCK 2

// Only one of the objects that are linked may declare it.
extern void *bpf_rdonly_cast(const void *object, __u32 btf_id) __ksym;
// The function by which a task that sleeps in recv() is woken; epoll and poll have others.
extern const void woken_wake_function __ksym __weak;

#define AS(type, address) ((struct type *)bpf_rdonly_cast((void *)(address), bpf_core_type_id_kernel(struct type)))

// One direction of a connection. Bytes and messages are counted modulo 2^32.
struct direction {
  __u32 bytes, messages;           // redirected so far
  __u32 mark_bytes, mark_messages; // the same at an earlier moment
  __u32 read_messages;             // the receiver has read at least these
  __u32 is_by_tcp;                 // the last message went by TCP
};

// Whether a task may be inside TCP's own recv(), which does not see redirected data: it holds the
// socket, or it sleeps in the middle of a read (MSG_WAITALL). A task that sleeps entered the wait
// queue before it released the socket.
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

static __always_inline bool has_order(const struct direction *direction, __u64 from, __u64 to,
                                      const struct sock *receiver) {
  if (AS(tcp_sock, to)->copied_seq != AS(tcp_sock, from)->write_seq) return false;
  if (receiver->sk_rcvlowat > 1) return false; // only TCP knows when enough has come
  return !direction->is_by_tcp || !is_being_read(receiver);
}

// TCP drops what it receives while more than the receive buffer is queued, and redirected data
// counts, so it must leave room. The buffer grows up to the limit of its network namespace. Where
// the program chose its size (SO_RCVBUF), nothing is redirected.
static __always_inline __u32 credit_of(const struct sock *receiver) {
  if (BPF_CORE_READ_BITFIELD(receiver, sk_userlocks) & SOCK_RCVBUF_LOCK) return 0;
  const __u32 most = (__u32)receiver->__sk_common.skc_net.net->ipv4.sysctl_tcp_rmem[2];
  return most / 3 * 2 < CREDIT_BYTES ? most / 3 * 2 : CREDIT_BYTES;
}

// Called only when all that went by TCP was read, so everything that is queued was redirected.
static __always_inline bool has_credit(struct direction *direction, const struct sock *receiver, __u32 size) {
  const __u32 queued = (__u32)receiver->sk_backlog.rmem_alloc.counter;
  if (queued + size > credit_of(receiver)) return false;
  if ((__s32)(direction->bytes - queued - direction->mark_bytes) >= 0) {
    direction->read_messages = direction->mark_messages;
    direction->mark_messages = direction->messages;
    direction->mark_bytes = direction->bytes;
  }
  if (queued == 0) direction->read_messages = direction->messages;
  return direction->messages - direction->read_messages < CREDIT_MESSAGES;
}

// `from` and `to` are tcp_socks.
static __always_inline bool may_redirect(struct direction *direction, __u64 from, __u64 to, __u32 size) {
  const struct sock *receiver = AS(sock, to);
  return has_order(direction, from, to, receiver) && has_credit(direction, receiver, size) &&
         !is_memory_short(receiver) && !has_ulp(from) && !has_ulp(to);
}
