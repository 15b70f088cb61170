// SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0)
// The doctor's programs that need the kernel's BTF (/sys/kernel/btf/vmlinux) to load.
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

// Only what is read here. libbpf finds the true offsets in the kernel's BTF when it loads the
// program.
struct task_struct {
  int tgid;
} __attribute__((preserve_access_index));

struct tcp_sock {
  __u32 copied_seq;
} __attribute__((preserve_access_index));

extern void *bpf_rdonly_cast(const void *object, __u32 btf_id) __ksym;

// Run once by the doctor, which compares the answer with its own process id.
SEC("syscall")
int probe_core_read(void *ctx) {
  const struct task_struct *task = (const struct task_struct *)bpf_get_current_task_btf();
  return task->tgid;
}

// How the shortcut reads the receive position of a socket whose address it has kept as a number.
SEC("sk_msg")
int probe_rdonly_cast(struct sk_msg_md *msg) {
  const struct tcp_sock *peer = bpf_rdonly_cast((const void *)(long)msg->sk, bpf_core_type_id_kernel(struct tcp_sock));
  return peer->copied_seq == 0 ? SK_DROP : SK_PASS;
}

char probe_license[] SEC("license") = "Dual BSD/GPL";
