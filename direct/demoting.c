// Functions that the library does not emulate: what they would touch goes back to TCP, then libc's
// own function does the work.
//
// Each is a few instructions of assembly that keep all arguments, so that one form serves every
// signature, variadic ones as well: save the registers, call what pins, jump to libc.
#include "calls.h"
#include "real.h"
#include "sets.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

void *dlsym(void *, const char *);

#define USED __attribute__((used, visibility("hidden")))

USED void mr_before_descriptor(int fd) {
  mr_ensure_resolved();
  mr_pin_set_or_connection(fd);
}

// Stdio closes the descriptor itself, so from here on the library knows nothing of it.
USED void mr_before_stdio(int fd) {
  mr_before_descriptor(fd);
  if (mr_kind_of(fd) == MR_CONNECTION) mr_mistaken(fd);
}

USED void mr_before_splice(int in, void *in_offset, int out) {
  (void)in_offset;
  mr_before_descriptor(in);
  mr_before_descriptor(out);
}

// struct aiocb begins with its descriptor.
USED void mr_before_aio(const int *control) {
  if (control != NULL) mr_before_descriptor(*control);
}

USED void mr_before_aio_list(int mode, const int *const *list, int count) {
  (void)mode;
  for (int i = 0; list != NULL && i < count; i++)
    mr_before_aio(list[i]);
}

USED void mr_before_exec(void) {
  mr_ensure_resolved();
  mr_pin_inherited();
  mr_part_from_closed();
}

// Runs another program, and goes on.
USED void mr_before_system(void) {
  mr_ensure_resolved();
  mr_pin_inherited();
}

// File actions may give the child descriptors that are closed by exec otherwise.
USED void mr_before_spawn(void *pid, const char *path, const void *actions) {
  (void)pid;
  (void)path;
  mr_ensure_resolved();
  if (actions != NULL) {
    mr_pin_all();
  } else {
    mr_pin_inherited();
  }
}

USED void mr_before_clone(void) {
  mr_ensure_resolved();
  mr_pin_all();
}

USED void mr_before_unshare(int flags) {
  mr_ensure_resolved();
  if ((flags & CLONE_FILES) != 0) mr_pin_all();
}

USED void mr_before_attach(void *file, int fd) {
  (void)file;
  mr_before_descriptor(fd);
}

// The call is answered as by a kernel that does not have it.
static __thread bool is_refused;

USED void mr_before_syscall(long number, long first, long second, long third) {
  mr_ensure_resolved();
  (void)second;
  switch (number) {
  case 425: // io_uring_setup: its requests do not come by here
    // libuv (Node) would change its epoll sets so, and does without where the kernel refuses.
    is_refused = dlsym(NULL, "uv_loop_init") != NULL;
    if (!is_refused) mr_leave_to_uring();
    break;
  case SYS_epoll_ctl:
    mr_before_descriptor((int)third);
    mr_before_descriptor((int)first);
    break;
  case SYS_splice:
  case SYS_tee:
    mr_before_descriptor((int)(number == SYS_tee ? second : third));
    mr_before_descriptor((int)first);
    break;
  case SYS_read:
  case SYS_write:
  case SYS_close:
  case SYS_ioctl:
  case SYS_readv:
  case SYS_writev:
  case SYS_dup:
  case SYS_dup2:
  case SYS_dup3:
  case SYS_sendfile:
  case SYS_connect:
  case SYS_sendto:
  case SYS_recvfrom:
  case SYS_sendmsg:
  case SYS_recvmsg:
  case SYS_sendmmsg:
  case SYS_recvmmsg:
  case SYS_shutdown:
  case SYS_fcntl:
  case SYS_epoll_wait:
  case SYS_epoll_pwait:
  case 441: // epoll_pwait2
  case SYS_vmsplice:
    mr_before_descriptor((int)first);
    break;
  case SYS_poll:
  case SYS_ppoll:
  case SYS_select:
  case SYS_pselect6:
  case SYS_execve:
  case SYS_execveat:
  case SYS_clone:
    if (number != SYS_clone) mr_pin_all();
    break;
  default:
    break;
  }
}

// Name, and what is called before. Each row is one of direct/calls.def.
#define MR_DEMOTING(X)                                                                                                 \
  X(preadv2, mr_before_descriptor)                                                                                     \
  X(preadv64v2, mr_before_descriptor)                                                                                  \
  X(pwritev2, mr_before_descriptor)                                                                                    \
  X(pwritev64v2, mr_before_descriptor)                                                                                 \
  X(eventfd_read, mr_before_descriptor)                                                                                \
  X(eventfd_write, mr_before_descriptor)                                                                               \
  X(dprintf, mr_before_descriptor)                                                                                     \
  X(vdprintf, mr_before_descriptor)                                                                                    \
  X(__dprintf_chk, mr_before_descriptor)                                                                               \
  X(__vdprintf_chk, mr_before_descriptor)                                                                              \
  X(fdopen, mr_before_stdio)                                                                                           \
  X(_IO_fdopen, mr_before_stdio)                                                                                       \
  X(_IO_file_attach, mr_before_attach)                                                                                 \
  X(backtrace_symbols_fd, mr_before_splice)                                                                            \
  X(__backtrace_symbols_fd, mr_before_splice)                                                                          \
  X(aio_read, mr_before_aio)                                                                                           \
  X(aio_read64, mr_before_aio)                                                                                         \
  X(aio_write, mr_before_aio)                                                                                          \
  X(aio_write64, mr_before_aio)                                                                                        \
  X(lio_listio, mr_before_aio_list)                                                                                    \
  X(lio_listio64, mr_before_aio_list)                                                                                  \
  X(execve, mr_before_exec)                                                                                            \
  X(execv, mr_before_exec)                                                                                             \
  X(execvp, mr_before_exec)                                                                                            \
  X(execvpe, mr_before_exec)                                                                                           \
  X(execl, mr_before_exec)                                                                                             \
  X(execle, mr_before_exec)                                                                                            \
  X(execlp, mr_before_exec)                                                                                            \
  X(fexecve, mr_before_exec)                                                                                           \
  X(execveat, mr_before_exec)                                                                                          \
  X(posix_spawn, mr_before_spawn)                                                                                      \
  X(posix_spawnp, mr_before_spawn)                                                                                     \
  X(system, mr_before_system)                                                                                          \
  X(popen, mr_before_system)                                                                                           \
  X(_IO_popen, mr_before_system)                                                                                       \
  X(_IO_proc_open, mr_before_system)                                                                                   \
  X(wordexp, mr_before_system)                                                                                         \
  X(clone, mr_before_clone)                                                                                            \
  X(__clone, mr_before_clone)                                                                                          \
  X(unshare, mr_before_unshare)                                                                                        \
  X(daemon, mr_before_clone)                                                                                           \
  X(forkpty, mr_before_clone)                                                                                          \
  X(login_tty, mr_before_clone)                                                                                        \
  X(syscall, mr_before_syscall)

enum {
#define NUMBER(name, before) NUMBER_##name,
  MR_DEMOTING(NUMBER)
};

static const char *const names[] = {
#define NAME(name, before) #name,
    MR_DEMOTING(NAME)};

static void *targets[sizeof(names) / sizeof(names[0])];

static long missing(void) {
  errno = ENOSYS;
  return -1;
}

// Where the call goes on. A function that this libc does not have fails.
USED void *mr_target(uint32_t number) {
  if (is_refused) {
    is_refused = false;
    return (void *)missing;
  }
  if (targets[number] == NULL) targets[number] = dlsym((void *)-1L, names[number]);
  return targets[number] == NULL ? (void *)missing : targets[number];
}

// Six arguments in registers, the number of vector registers of a variadic call in al, and the
// vector registers themselves, which dprintf may have.
#define TRAMPOLINE(name, before)                                                                                       \
  __asm__(".text\n.globl " #name "\n.type " #name ", @function\n" #name ":\n"                                          \
          "  endbr64\n  push %rbp\n  mov %rsp, %rbp\n"                                                                 \
          "  push %rdi\n  push %rsi\n  push %rdx\n  push %rcx\n  push %r8\n  push %r9\n  push %rax\n"                  \
          "  sub $136, %rsp\n"                                                                                         \
          "  movups %xmm0, (%rsp)\n  movups %xmm1, 16(%rsp)\n  movups %xmm2, 32(%rsp)\n"                               \
          "  movups %xmm3, 48(%rsp)\n  movups %xmm4, 64(%rsp)\n  movups %xmm5, 80(%rsp)\n"                             \
          "  movups %xmm6, 96(%rsp)\n  movups %xmm7, 112(%rsp)\n"                                                      \
          "  call " #before "\n"                                                                                       \
          "  mov $(mr_number_" #name "), %edi\n  call mr_target\n  mov %rax, %r11\n"                                   \
          "  movups (%rsp), %xmm0\n  movups 16(%rsp), %xmm1\n  movups 32(%rsp), %xmm2\n"                               \
          "  movups 48(%rsp), %xmm3\n  movups 64(%rsp), %xmm4\n  movups 80(%rsp), %xmm5\n"                             \
          "  movups 96(%rsp), %xmm6\n  movups 112(%rsp), %xmm7\n"                                                      \
          "  add $136, %rsp\n"                                                                                         \
          "  pop %rax\n  pop %r9\n  pop %r8\n  pop %rcx\n  pop %rdx\n  pop %rsi\n  pop %rdi\n"                         \
          "  pop %rbp\n  jmp *%r11\n.size " #name ", . - " #name "\n");
MR_DEMOTING(TRAMPOLINE)

// The assembler's numbers of the rows.
USED void mr_numbers(void){
#define DEFINE(name, before) __asm__ volatile(".set mr_number_" #name ", %c0" ::"i"(NUMBER_##name));
    MR_DEMOTING(DEFINE)}

// The child has no handlers that would tell it.
MR_EXPORT pid_t _Fork(void) {
  mr_ensure_resolved();
  const pid_t pid = real._Fork == NULL ? (pid_t)missing() : real._Fork();
  if (pid == 0) mr_forked_without_handlers();
  return pid;
}
