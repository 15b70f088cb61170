// Functions by which the C library itself writes to a descriptor.
#include <dlfcn.h>
#include <execinfo.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "world.h"

typedef int (*dprintf_type)(int, const char *, ...);
typedef int (*dprintf_chk_type)(int, int, const char *, ...);
typedef int (*vdprintf_type)(int, const char *, va_list);
typedef int (*vdprintf_chk_type)(int, int, const char *, va_list);
typedef FILE *(*fdopen_type)(int, const char *);
typedef FILE *(*attach_type)(FILE *, int);
typedef void (*backtrace_type)(void *const *, int, int);

static void try_dprintf(struct world *world) {
  check(FUNCTION(world, dprintf_type)(world->fd, "%.*s", SOME, (const char *)ours(world, SOME)) == SOME, "dprintf");
  peer_takes(world, SOME);
}

static void try_dprintf_chk(struct world *world) {
  dprintf_chk_type function = FUNCTION(world, dprintf_chk_type);
  check(function(world->fd, 1, "%.*s", SOME, (const char *)ours(world, SOME)) == SOME, "dprintf");
  peer_takes(world, SOME);
}

static int print_list(struct world *world, const char *format, ...) {
  va_list list;
  va_start(list, format);
  int count = FUNCTION(world, vdprintf_type)(world->fd, format, list);
  va_end(list);
  return count;
}

static int print_list_chk(struct world *world, const char *format, ...) {
  va_list list;
  va_start(list, format);
  int count = FUNCTION(world, vdprintf_chk_type)(world->fd, 1, format, list);
  va_end(list);
  return count;
}

static void try_vdprintf(struct world *world) {
  check(print_list(world, "%.*s", SOME, (const char *)ours(world, SOME)) == SOME, "vdprintf");
  peer_takes(world, SOME);
}

static void try_vdprintf_chk(struct world *world) {
  check(print_list_chk(world, "%.*s", SOME, (const char *)ours(world, SOME)) == SOME, "vdprintf");
  peer_takes(world, SOME);
}

static void use_stream(struct world *world, FILE *stream) {
  check(stream != NULL, "a stream");
  check(fwrite(ours(world, SOME), 1, SOME, stream) == SOME && fflush(stream) == 0, "bytes written");
  peer_takes(world, SOME);
}

static void try_fdopen(struct world *world) {
  uint8_t bytes[SOME];
  use_stream(world, FUNCTION(world, fdopen_type)(world->fd, "w"));
  FILE *stream = FUNCTION(world, fdopen_type)(world->fd, "r");
  peer_sends(world, SOME);
  theirs(world, bytes, (ssize_t)fread(bytes, 1, SOME, stream), SOME);
}

static void try_file_attach(struct world *world) {
  int (*close_it)(FILE *) = NULL;
  *(void **)&close_it = dlsym(RTLD_DEFAULT, "_IO_file_close_it");
  FILE *stream = fopen("/dev/null", "w");
  check(close_it != NULL && stream != NULL && close_it(stream) == 0, "a stream without a file");
  check(FUNCTION(world, attach_type)(stream, world->fd) == stream, "attached");
  use_stream(world, stream);
}

static void try_backtrace(struct world *world) {
  void *list[8];
  int count = backtrace(list, 8);
  char text[4096];
  int ends[2];
  check(pipe(ends) == 0, "pipe");
  FUNCTION(world, backtrace_type)(list, count, ends[1]);
  ssize_t length = read(ends[0], text, sizeof(text));
  FUNCTION(world, backtrace_type)(list, count, world->fd);
  // Other words than those that the peer expects: only their number is seen.
  struct order order = {.op = OP_READ, .by = BY_SEND, .flags = MSG_WAITALL, .length = (uint32_t)length};
  tell(&world->game, PEER, &order);
  check(length > 0 && hear(&world->game, PEER).result == length, "the peer reads as many bytes");
}

const struct row stdio_rows[] = {
    {"dprintf", try_dprintf},
    {"__dprintf_chk", try_dprintf_chk},
    {"vdprintf", try_vdprintf},
    {"__vdprintf_chk", try_vdprintf_chk},
    {"fdopen", try_fdopen},
    {"_IO_fdopen", try_fdopen},
    {"_IO_file_attach", try_file_attach},
    {"backtrace_symbols_fd", try_backtrace},
    {"__backtrace_symbols_fd", try_backtrace},
    {NULL, NULL},
};
