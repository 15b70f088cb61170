// KVM: runs the smallest guest that does what every operating system does, to learn whether this
// machine runs guests.
//
// In 64-bit mode, with paging, it takes one exception through its own interrupt table, and the
// handler writes to a port. A lone `hlt` would not do: hosts that only run guests made for them
// (PVM) interpret that one and then fail.
#include "addon.h"

#include <linux/kvm.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

// The guest's memory, at guest address 0, and the last page, which is not the guest's.
enum {
  at_pml4 = 0x1000,
  at_pdpt = 0x2000,
  at_directory = 0x3000,
  at_gdt = 0x4000,
  at_idt = 0x5000,
  at_code = 0x6000,
  at_handler = 0x7000,
  at_stack = 0x9000, // grows down
  guest_bytes = 0x9000,
  at_outcome = 0x9000,
  shared_bytes = 0xa000,
};

enum { guest_port = 0x10, guest_byte = 42, guest_seconds = 1, max_cpuid_entries = 256 };

// How far the guest came; TypeScript names the steps by these numbers.
enum step { step_start, step_vm, step_memory, step_vcpu, step_registers, step_run, step_ran };

struct outcome {
  enum step step; // the first that did not succeed, or step_ran
  int error;      // its errno; 0 when KVM_RUN returned for a reason other than the port
  uint32_t exit_reason;
};

static void write_guest(uint8_t *memory) {
  const uint64_t gdt[] = {0, 0x00af9a000000ffff, 0x00cf92000000ffff}; // none, 64-bit code, data
  const uint64_t breakpoint_gate = 0x00008e0000080000 | at_handler;
  const uint8_t code[] = {0xcc, 0xf4}; // int3; hlt
  // mov al, byte; out port, al; hlt
  const uint8_t handler[] = {0xb0, guest_byte, 0xe6, guest_port, 0xf4};
  *(uint64_t *)(memory + at_pml4) = at_pdpt | 3; // present, writable
  *(uint64_t *)(memory + at_pdpt) = at_directory | 3;
  *(uint64_t *)(memory + at_directory) = 0x83; // 2 MiB from address 0
  memcpy(memory + at_gdt, gdt, sizeof(gdt));
  memcpy(memory + at_idt + 3 * 16, &breakpoint_gate, sizeof(breakpoint_gate));
  memcpy(memory + at_code, code, sizeof(code));
  memcpy(memory + at_handler, handler, sizeof(handler));
}

static int set_registers(int vcpu) {
  const struct kvm_segment code = {.selector = 8, .type = 11, .present = 1, .s = 1, .l = 1, .g = 1, .limit = ~0u};
  const struct kvm_segment data = {.selector = 16, .type = 3, .present = 1, .s = 1, .db = 1, .g = 1, .limit = ~0u};
  struct kvm_regs registers = {.rip = at_code, .rsp = at_stack, .rflags = 2};
  struct kvm_sregs special;
  if (ioctl(vcpu, KVM_GET_SREGS, &special) < 0) return -1;
  special.cs = code;
  special.ds = special.es = special.fs = special.gs = special.ss = data;
  special.gdt = (struct kvm_dtable){.base = at_gdt, .limit = 3 * 8 - 1};
  special.idt = (struct kvm_dtable){.base = at_idt, .limit = 0xfff};
  special.cr0 = 0x80000011; // paging, protected mode
  special.cr3 = at_pml4;
  special.cr4 |= 0x20;  // physical address extension
  special.efer = 0x500; // long mode, enabled and active
  if (ioctl(vcpu, KVM_SET_SREGS, &special) < 0) return -1;
  return ioctl(vcpu, KVM_SET_REGS, &registers);
}

static int set_cpuid(int device, int vcpu) {
  // On the stack of the child: it must not allocate.
  uint64_t space[(sizeof(struct kvm_cpuid2) + max_cpuid_entries * sizeof(struct kvm_cpuid_entry2)) / 8 + 1];
  struct kvm_cpuid2 *cpuid = (struct kvm_cpuid2 *)space;
  memset(space, 0, sizeof(space));
  cpuid->nent = max_cpuid_entries;
  return ioctl(device, KVM_GET_SUPPORTED_CPUID, cpuid) < 0 ? -1 : ioctl(vcpu, KVM_SET_CPUID2, cpuid);
}

// Leaves errno of the step that failed.
static void run_guest(int device, uint8_t *memory, struct outcome *outcome) {
  outcome->step = step_vm;
  int vm = ioctl(device, KVM_CREATE_VM, 0);
  if (vm < 0) return;
  outcome->step = step_memory;
  struct kvm_userspace_memory_region region = {.memory_size = guest_bytes, .userspace_addr = (uintptr_t)memory};
  if (ioctl(vm, KVM_SET_USER_MEMORY_REGION, &region) < 0) return;
  outcome->step = step_vcpu;
  int vcpu = ioctl(vm, KVM_CREATE_VCPU, 0);
  int run_bytes = ioctl(device, KVM_GET_VCPU_MMAP_SIZE, 0);
  if (vcpu < 0 || run_bytes < 0) return;
  const struct kvm_run *run = mmap(NULL, (size_t)run_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, vcpu, 0);
  if (run == MAP_FAILED) return;
  outcome->step = step_registers;
  if (set_cpuid(device, vcpu) < 0 || set_registers(vcpu) < 0) return;
  outcome->step = step_run;
  if (ioctl(vcpu, KVM_RUN, 0) < 0) return;
  errno = 0;
  outcome->exit_reason = run->exit_reason;
  if (run->exit_reason == KVM_EXIT_IO && run->io.port == guest_port) outcome->step = step_ran;
}

// Between fork and _exit only system calls are made, because other threads may have held locks at
// the fork.
static void child(int device, uint8_t *shared) {
  struct outcome *outcome = (struct outcome *)(shared + at_outcome);
  sigset_t alarm_only;
  // The default action of the alarm ends a guest that never comes back.
  signal(SIGALRM, SIG_DFL);
  sigemptyset(&alarm_only);
  sigaddset(&alarm_only, SIGALRM);
  sigprocmask(SIG_UNBLOCK, &alarm_only, NULL);
  alarm(guest_seconds);
  write_guest(shared);
  run_guest(device, shared, outcome);
  outcome->error = errno;
  _exit(0);
}

// [step, errno, exit reason] for an open /dev/kvm; errno is ETIMEDOUT when the guest had to be
// ended. Or -errno.
static napi_value try_guest(napi_env env, napi_callback_info info) {
  int32_t device;
  napi_value result;
  if (!mr_int_args(env, info, 1, &device)) return NULL;
  uint8_t *shared = mmap(NULL, shared_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return mr_return(env, -errno);
  pid_t pid = fork();
  if (pid == 0) child(device, shared);
  int status = 0;
  int error = pid < 0 ? errno : 0;
  while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
    continue;
  struct outcome outcome = *(const struct outcome *)(shared + at_outcome);
  munmap(shared, shared_bytes);
  if (error != 0) return mr_return(env, -error);
  if (WIFSIGNALED(status)) outcome.error = WTERMSIG(status) == SIGALRM ? ETIMEDOUT : EFAULT;
  napi_create_array_with_length(env, 3, &result);
  napi_set_element(env, result, 0, mr_return(env, outcome.step));
  napi_set_element(env, result, 1, mr_return(env, outcome.error));
  napi_set_element(env, result, 2, mr_return(env, outcome.exit_reason));
  return result;
}

MR_EXPORTS(kvm) {
  const napi_property_descriptor functions[] = {
      MR_FUNCTION("kvmTryGuest", try_guest),
  };
  return MR_DEFINE(env, exports, functions);
}
