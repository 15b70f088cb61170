// Other processes and threads that use the socket, and signals while it is waited for.
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fuzz.h"

enum { HELPER_SOCKET = 3 };

static void make_here(const struct order *order, int fd, struct answer *answer) {
  if (order->op == OP_READ)
    make_read(order, fd, answer);
  else
    make_write(order, fd, answer);
}

static void receive_whole(int fd, void *bytes, size_t size) {
  for (size_t done = 0; done < size;) {
    ssize_t got = read(fd, (char *)bytes + done, size - done);
    if (got <= 0) die("read the answer of a child");
    done += (size_t)got;
  }
}

static void in_child(const struct order *order, int fd, struct answer *answer) {
  int ends[2];
  if (pipe(ends) != 0) die("pipe");
  pid_t child = fork();
  if (child < 0) die("fork");
  if (child == 0) {
    close(ends[0]);
    make_here(order, fd, answer);
    send_answer(ends[1], answer);
    _exit(0);
  }
  close(ends[1]);
  receive_whole(ends[0], answer, sizeof(*answer));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (status != 0) say(answer, " CHILD ENDED WITH %#x", status);
}

// Passes an order and a descriptor.
static void pass(int through, const struct order *order, int fd) {
  union {
    struct cmsghdr header;
    char room[CMSG_SPACE(sizeof(int))];
  } control = {.header = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
  memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
  struct iovec part = {(void *)(uintptr_t)order, sizeof(*order)};
  struct msghdr message = {
      .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
  if (sendmsg(through, &message, 0) != (ssize_t)sizeof(*order)) die("pass a descriptor");
}

static void in_helper(const struct order *order, int fd, struct answer *answer) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) die("socketpair");
  pid_t helper = fork();
  if (helper < 0) die("fork");
  if (helper == 0) {
    int moved = dup(ends[1]);
    if (dup2(moved, HELPER_SOCKET) != HELPER_SOCKET) _exit(3);
    close_range(HELPER_SOCKET + 1, ~0U, 0);
    execl("/proc/self/exe", "fuzz", "helper", (char *)NULL);
    _exit(3);
  }
  close(ends[1]);
  pass(ends[0], order, fd);
  receive_whole(ends[0], answer, sizeof(*answer));
  close(ends[0]);
  int status = 0;
  waitpid(helper, &status, 0);
  if (status != 0) say(answer, " HELPER ENDED WITH %#x", status);
}

int helper_main(void) {
  count_pipe_signals();
  union {
    struct cmsghdr header;
    char room[CMSG_SPACE(sizeof(int))];
  } control;
  struct order order;
  struct iovec part = {&order, sizeof(order)};
  struct msghdr message = {
      .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
  if (recvmsg(HELPER_SOCKET, &message, MSG_WAITALL) != (ssize_t)sizeof(order)) die("receive a descriptor");
  int fd = -1;
  memcpy(&fd, CMSG_DATA(&control.header), sizeof(fd));
  struct answer answer = {0};
  make_here(&order, fd, &answer);
  send_answer(HELPER_SOCKET, &answer);
  return 0;
}

void make_elsewhere(const struct order *order, int fd, struct answer *answer) {
  say(answer, order->place == IN_CHILD ? "in a child " : "in a helper ");
  if (order->place == IN_CHILD)
    in_child(order, fd, answer);
  else
    in_helper(order, fd, answer);
}

static struct {
  pthread_t thread;
  struct order order;
  struct answer answer;
  int fd;
  _Atomic int tid;
} reader;

static void *read_in_thread(void *unused) {
  (void)unused;
  reader.tid = gettid();
  make_read(&reader.order, reader.fd, &reader.answer);
  return NULL;
}

// Returns when the thread sleeps in its call, as far as the kernel's word goes.
static void await_sleep(int tid) {
  char path[64];
  struct answer name = {0};
  say(&name, "/proc/self/task/%d/stat", tid);
  memcpy(path, name.text, sizeof(path));
  for (int round = 0; round < 1000; round++) {
    char text[256] = {0};
    int file = open(path, O_RDONLY | O_CLOEXEC);
    bool is_read = file >= 0 && read(file, text, sizeof(text) - 1) > 0;
    close(file);
    char *state = strrchr(text, ')');
    if (is_read && state != NULL && state[2] == 'S') return;
    usleep(50);
  }
}

void make_thread(const struct order *order, int fd, struct answer *answer) {
  reader.order = *order;
  reader.fd = fd;
  reader.tid = 0;
  reader.answer = (struct answer){0};
  if (pthread_create(&reader.thread, NULL, read_in_thread, NULL) != 0) die("pthread_create");
  while (reader.tid == 0)
    usleep(20);
  await_sleep(reader.tid);
  say(answer, "a thread reads");
}

void make_join(struct answer *answer) {
  pthread_join(reader.thread, NULL);
  *answer = reader.answer;
}
