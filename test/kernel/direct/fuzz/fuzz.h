// What the driver and the two ends of its connections tell each other, over pipes.
#ifndef MILLRACE_FUZZ_H
#define MILLRACE_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { CONNECTIONS = 2, HANDLES = 6, SETS = 3, LONGEST = 1 << 20, DEADLINE_MS = 10000 };

enum op {
  OP_HELLO,
  OP_CONNECT,
  OP_ACCEPT,
  OP_READ,
  OP_WRITE,
  OP_SHUTDOWN,
  OP_CLOSE,
  OP_DUP,
  OP_NONBLOCK,
  OP_SET_OPTION,
  OP_GET_OPTION,
  OP_FIONREAD,
  OP_NAMES,
  OP_POLL,
  OP_EPOLL_CTL,
  OP_EPOLL_WAIT,
  OP_PIPE,
  OP_EXEC,
  OP_TAKE_OVER,
  OP_THREAD,
  OP_JOIN,
  OP_INTERRUPTED,
  OP_RESTARTED,
  OP_BULK_WRITE,
  OP_BULK_READ,
  OP_SETTLE,
  OP_PROMOTE,
  OP_DEMOTE,
  OP_STATE,
  OP_IS_PINNED,
  OP_END,
};

// How bytes are read or written.
enum by {
  BY_READ,
  BY_VECTOR,
  BY_SEND,
  BY_ADDRESS,
  BY_MESSAGE,
  BY_MESSAGES,
  BY_FILE,
  BY_SPLICE,
  BY_STDIO,
  BY_MORE,
};

// Which process reads or writes: the end, a child that it forks, or a program that the descriptor
// is passed to.
enum place { IN_END, IN_CHILD, IN_HELPER };

enum by_poll { BY_POLL, BY_PPOLL, BY_SELECT, BY_PSELECT, BY_EPOLL };

// What must have arrived at an end before it makes its call.
enum { NEED_END = 1, NEED_HANGUP = 2, NEED_CLOSED = 4 };

struct need {
  uint32_t bytes;
  uint32_t flags;
};

struct order {
  uint32_t op;
  uint32_t handle;
  uint32_t by;
  uint32_t place;
  uint32_t length;
  uint32_t other;
  int32_t flags;
  int32_t timeout_ms;
  uint64_t pattern;  // of the direction
  uint64_t position; // in the direction, of the first byte that is read or written
  struct need need[CONNECTIONS];
};

struct answer {
  int64_t result;
  int32_t error;
  uint32_t length; // of the text
  char text[496];
};

// One end: what lives from one order to the next, and through exec.
struct end {
  int orders;
  int answers;
  int listener[2]; // of AF_INET and AF_INET6
  int handle[HANDLES];
  int connection[HANDLES]; // of each handle
  int set[SETS];
  int pipe[2];
  bool is_child; // of the end that had the sequence before: ends with it
};

// Where the pipe and a nested set stand in what an order names as a handle.
enum { HANDLE_PIPE = 30, HANDLE_NESTED = 31 };

// pattern.c
void fill(uint8_t *bytes, size_t length, uint64_t pattern, uint64_t position);
long mismatch(const uint8_t *bytes, size_t length, uint64_t pattern, uint64_t position);
uint64_t draw(uint64_t *state);
void die(const char *what);

// answer.c: what is said of one call.
void say(struct answer *answer, const char *format, ...) __attribute__((format(printf, 2, 3)));
void say_result(struct answer *answer, int64_t result);
void say_events(struct answer *answer, uint32_t events);
void say_flags(struct answer *answer, int flags);

// bytes.c, messages.c: reading and writing.
void count_pipe_signals(void);
void make_read(const struct order *order, int fd, struct answer *answer);
void make_write(const struct order *order, int fd, struct answer *answer);
ssize_t read_messages(const struct order *order, int fd, uint8_t *bytes, struct answer *answer);
ssize_t write_messages(const struct order *order, int fd, uint8_t *bytes, struct answer *answer);
int split(uint8_t *bytes, size_t length, uint32_t how, void *parts);

// bulk.c: more bytes than all buffers hold, written and read at the same time.
void make_bulk_write(const struct order *order, int fd, struct answer *answer);
void make_bulk_read(const struct order *order, int fd, struct answer *answer);

// waiting.c
bool wait_for(int fd, const struct need *need);
void make_poll(const struct end *end, const struct order *order, struct answer *answer);
void make_epoll_ctl(struct end *end, const struct order *order, struct answer *answer);
void make_epoll_wait(struct end *end, const struct order *order, struct answer *answer);

// sharing.c: other processes and threads that use the socket.
void make_elsewhere(const struct order *order, int fd, struct answer *answer);
int helper_main(void);
void make_thread(const struct order *order, int fd, struct answer *answer);
void make_join(struct answer *answer);

// signals.c
void make_interrupted(const struct order *order, int fd, struct answer *answer);
void make_restarted(const struct end *end, const struct order *order, int fd, struct answer *answer);

// host.c: the host of an end.
void enter_host(int end);
void other_address(bool is_v6, uint64_t choice, void *address);

// options.c: connecting, options, closing.
void make_connect(struct end *end, const struct order *order, struct answer *answer);
void make_accept(struct end *end, const struct order *order, struct answer *answer);
void make_other(struct end *end, const struct order *order, struct answer *answer);

// end.c
int end_main(const char *state);
void send_answer(int fd, const struct answer *answer);

#endif
