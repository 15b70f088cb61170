// Functions that start processes and programs, which have the connection then as well.
#include <fcntl.h>
#include <pty.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utmp.h>
#include <wordexp.h>

#include "world.h"

extern char **environ;

typedef pid_t (*fork_type)(void);
typedef int (*clone_type)(int (*)(void *), void *, int, void *, ...);
typedef int (*unshare_type)(int);
typedef int (*daemon_type)(int, int);
typedef pid_t (*forkpty_type)(int *, char *, const struct termios *, const struct winsize *);
typedef int (*login_tty_type)(int);
typedef int (*system_type)(const char *);
typedef FILE *(*popen_type)(const char *, const char *);
typedef int (*wordexp_type)(const char *, wordexp_t *, int);
typedef int (*spawn_type)(pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *,
                          char *const *, char *const *);

static void await_child(pid_t pid) {
  int status = -1;
  check(pid > 0, "a child");
  check(waitpid(pid, &status, 0) == pid && status == 0, "the child ends well");
}

static void try_fork(struct world *world) {
  uint8_t bytes[SOME];
  peer_sends(world, SOME);
  pid_t pid = FUNCTION(world, fork_type)();
  if (pid == 0) {
    theirs(world, bytes, read(world->fd, bytes, SOME), SOME);
    _exit(write(world->fd, ours(world, SOME), SOME) == SOME ? 0 : 1);
  }
  await_child(pid);
  world->taken += SOME;
  world->sent += SOME;
  peer_takes(world, SOME);
}

// The child may only exit.
static void try_vfork(struct world *world) {
  fork_type function = FUNCTION(world, fork_type);
  volatile pid_t pid = function();
  if (pid == 0) _exit(0);
  await_child(pid);
}

static int write_some(void *argument) {
  struct world *world = argument;
  return write(world->fd, ours(world, SOME), SOME) == SOME ? 0 : 1;
}

static void try_clone(struct world *world) {
  enum { STACK = 1 << 16 };
  char *stack = malloc(STACK);
  pid_t pid = FUNCTION(world, clone_type)(write_some, stack + STACK, SIGCHLD, world);
  await_child(pid);
  world->sent += SOME;
  peer_takes(world, SOME);
  free(stack);
}

static void try_unshare(struct world *world) {
  check(FUNCTION(world, unshare_type)(CLONE_FILES) == 0, "unshare");
}

// The first child ends at once; what it becomes writes, and says so by the end of a pipe.
static void try_daemon(struct world *world) {
  int ends[2];
  char byte = 0;
  check(pipe(ends) == 0, "pipe");
  pid_t pid = fork();
  if (pid == 0) {
    check(FUNCTION(world, daemon_type)(1, 1) == 0, "daemon");
    byte = write_some(world) == 0 ? 'y' : 'n';
    _exit(write(ends[1], &byte, 1) == 1 ? 0 : 1);
  }
  await_child(pid);
  check(read(ends[0], &byte, 1) == 1 && byte == 'y', "the daemon writes");
  world->sent += SOME;
  peer_takes(world, SOME);
}

static void try_forkpty(struct world *world) {
  int terminal = -1;
  pid_t pid = FUNCTION(world, forkpty_type)(&terminal, NULL, NULL, NULL);
  if (pid == 0) _exit(write_some(world));
  await_child(pid);
  close(terminal);
  world->sent += SOME;
  peer_takes(world, SOME);
}

// The connection is at standard input, where the terminal comes instead.
static void try_login_tty(struct world *world) {
  int terminal = -1;
  int other = -1;
  check(openpty(&terminal, &other, NULL, NULL, NULL) == 0, "openpty");
  pid_t pid = fork();
  if (pid == 0) {
    bool is_done = dup2(world->fd, 0) == 0 && setsid() > 0 && FUNCTION(world, login_tty_type)(other) == 0;
    _exit(is_done && isatty(0) == 1 ? write_some(world) : 1);
  }
  await_child(pid);
  world->sent += SOME;
  peer_takes(world, SOME);
}

enum { WORDS = 6 };

// The words of the command that uses the connection; the first is the program.
static void split_command(char *command, char **words) {
  int count = 0;
  for (char *word = strtok(command, " "); word != NULL && count < WORDS - 1; word = strtok(NULL, " ")) {
    words[count++] = word;
  }
  words[count] = NULL;
}

static void exec_by(struct world *world, char **words) {
  void *function = world->function;
  const char *name = world->name;
  if (strcmp(name, "execve") == 0) ((int (*)(const char *, char **, char **))function)(words[0], words, environ);
  if (strcmp(name, "execvpe") == 0) ((int (*)(const char *, char **, char **))function)(words[0], words, environ);
  if (strcmp(name, "execv") == 0) ((int (*)(const char *, char **))function)(words[0], words);
  if (strcmp(name, "execvp") == 0) ((int (*)(const char *, char **))function)(words[0], words);
  if (strncmp(name, "execl", 5) == 0) {
    int (*list)(const char *, const char *, ...) = (int (*)(const char *, const char *, ...))function;
    list(words[0], words[0], words[1], words[2], words[3], words[4], (char *)NULL, environ);
  }
  int program = open(words[0], O_RDONLY | O_CLOEXEC);
  if (strcmp(name, "fexecve") == 0) ((int (*)(int, char **, char **))function)(program, words, environ);
  if (strcmp(name, "execveat") == 0) {
    ((int (*)(int, const char *, char **, char **, int))function)(-1, words[0], words, environ, 0);
  }
}

static void try_exec(struct world *world) {
  char *words[WORDS];
  char *command = strdup(after_command(world));
  split_command(command, words);
  pid_t pid = fork();
  if (pid == 0) {
    exec_by(world, words);
    _exit(3);
  }
  await_child(pid);
  peer_takes(world, SOME);
  free(command);
}

static void try_spawn(struct world *world) {
  char *words[WORDS];
  char *command = strdup(after_command(world));
  split_command(command, words);
  pid_t pid = -1;
  check(FUNCTION(world, spawn_type)(&pid, words[0], NULL, NULL, words, environ) == 0, "spawn");
  await_child(pid);
  peer_takes(world, SOME);
  free(command);
}

static void try_system(struct world *world) {
  check(FUNCTION(world, system_type)(after_command(world)) == 0, "the command ends well");
  peer_takes(world, SOME);
}

static void try_popen(struct world *world) {
  FILE *stream = FUNCTION(world, popen_type)(after_command(world), "r");
  check(stream != NULL && pclose(stream) == 0, "the command ends well");
  peer_takes(world, SOME);
}

static void try_wordexp(struct world *world) {
  char text[4400];
  snprintf(text, sizeof(text), "$(%s && echo well)", after_command(world));
  wordexp_t words;
  check(FUNCTION(world, wordexp_type)(text, &words, 0) == 0, "wordexp");
  check(words.we_wordc == 1 && strcmp(words.we_wordv[0], "well") == 0, "the command ends well");
  peer_takes(world, SOME);
}

const struct row spawning_rows[] = {
    {"fork", try_fork},          {"__fork", try_fork},         {"_Fork", try_fork},
    {"vfork", try_vfork},        {"__vfork", try_vfork},       {"clone", try_clone},
    {"__clone", try_clone},      {"unshare", try_unshare},     {"daemon", try_daemon},
    {"forkpty", try_forkpty},    {"login_tty", try_login_tty}, {"execve", try_exec},
    {"execv", try_exec},         {"execvp", try_exec},         {"execvpe", try_exec},
    {"execl", try_exec},         {"execle", try_exec},         {"execlp", try_exec},
    {"fexecve", try_exec},       {"execveat", try_exec},       {"posix_spawn", try_spawn},
    {"posix_spawnp", try_spawn}, {"system", try_system},       {"popen", try_popen},
    {"_IO_popen", try_popen},    {"wordexp", try_wordexp},     {NULL, NULL},
};
