// The end of this process as a program: execve(2), after undoing what Node changed in it, and
// _exit(2).
#include "addon.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { STDIO = 3, MR_NUMBERS_MAX = 1024, MAX_EXIT_CODE = 255 };

extern char **environ;

struct numbers {
  int32_t list[MR_NUMBERS_MAX];
  uint32_t count;
};

static bool numbers_of(napi_env env, napi_value value, struct numbers *out) {
  if (napi_get_array_length(env, value, &out->count) != napi_ok || out->count > MR_NUMBERS_MAX) {
    mr_throw_range(env, "expected an array of at most 1024 numbers");
    return false;
  }
  for (uint32_t i = 0; i < out->count; i++) {
    napi_value element;
    if (napi_get_element(env, value, i, &element) != napi_ok || !mr_int(env, element, &out->list[i])) return false;
  }
  return true;
}

// Strings that lie one after the other, each with its NUL, as a list that ends with NULL. They stay
// where they are.
static char **strings_of(napi_env env, napi_value value, size_t *count) {
  uint8_t *bytes;
  size_t size;
  if (!mr_bytes(env, value, &bytes, &size)) return NULL;
  if (size > 0 && bytes[size - 1] != 0) {
    mr_throw_range(env, "expected strings that end with NUL");
    return NULL;
  }
  *count = 0;
  for (size_t at = 0; at < size; at++)
    *count += bytes[at] == 0;
  char **list = calloc(*count + 1, sizeof(*list));
  if (list == NULL) {
    napi_throw_error(env, "ENOMEM", "no memory for the arguments");
    return NULL;
  }
  char *next = (char *)bytes;
  for (size_t i = 0; i < *count; i++, next += strlen(next) + 1)
    list[i] = next;
  return list;
}

static size_t name_length(const char *variable) {
  return strcspn(variable, "=");
}

static bool is_changed(const char *variable, char **changes) {
  const size_t length = name_length(variable);
  for (; *changes != NULL; changes++) {
    if (name_length(*changes) == length && memcmp(*changes, variable, length) == 0) return true;
  }
  return false;
}

// The environment of this process with changes: `NAME=value`, or `NAME` for one that goes.
static char **environment_with(char **changes, size_t change_count) {
  size_t count = 0;
  for (char **each = environ; *each != NULL; each++)
    count++;
  char **list = calloc(count + change_count + 1, sizeof(*list));
  if (list == NULL) return NULL;
  char **end = list;
  for (char **each = environ; *each != NULL; each++) {
    if (!is_changed(*each, changes)) *end++ = *each;
  }
  for (char **each = changes; *each != NULL; each++) {
    if ((*each)[name_length(*each)] == '=') *end++ = *each;
  }
  return list;
}

// Handlers end with this program by themselves; what is ignored stays ignored. Node ignores two
// signals, and no longer ignores those that its parent did.
static void ignore_only(const struct numbers *signals) {
  signal(SIGPIPE, SIG_DFL);
  signal(SIGXFSZ, SIG_DFL);
  for (uint32_t i = 0; i < signals->count; i++)
    signal(signals->list[i], SIG_IGN);
}

static void limit_open_files(size_t soft) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur <= soft) return;
  limit.rlim_cur = soft;
  setrlimit(RLIMIT_NOFILE, &limit);
}

struct request {
  struct numbers inherited, flags, ignored;
  size_t open_files;
};

// Returns when it failed. Then SIGPIPE is ignored as before and no signal is blocked, so that Node
// can say so and end.
static int replace(char **words, char **variables, const struct request *request) {
  for (uint32_t i = 0; i < request->inherited.count; i++) {
    const int flags = fcntl(request->inherited.list[i], F_GETFD);
    if (flags >= 0) fcntl(request->inherited.list[i], F_SETFD, flags & ~FD_CLOEXEC);
  }
  for (int fd = 0; fd < STDIO; fd++) {
    if (request->flags.list[fd] >= 0) fcntl(fd, F_SETFL, request->flags.list[fd]);
  }
  limit_open_files(request->open_files);
  sigset_t none, before;
  sigemptyset(&none);
  ignore_only(&request->ignored);
  pthread_sigmask(SIG_SETMASK, &none, &before);
  // As the shells do: PATH is searched, and a script without #! is given to /bin/sh.
  execvpe(words[0], words, variables);
  const int failed = -errno;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  signal(SIGPIPE, SIG_IGN);
  return failed;
}

// (arguments, changes of the environment: strings with their NULs; descriptors that the program
// inherits, file status flags of 0, 1 and 2, signals to ignore: arrays of numbers; soft limit of
// open files) -> -errno, if it returns at all.
static napi_value exec_(napi_env env, napi_callback_info info) {
  napi_value argv[6], result = NULL;
  struct request *request = calloc(1, sizeof(*request));
  char **words = NULL, **changes = NULL, **variables = NULL;
  size_t word_count = 0, change_count = 0;
  if (request == NULL || !mr_args(env, info, 6, argv) || !numbers_of(env, argv[2], &request->inherited) ||
      !numbers_of(env, argv[3], &request->flags) || !numbers_of(env, argv[4], &request->ignored) ||
      !mr_size(env, argv[5], &request->open_files) || (words = strings_of(env, argv[0], &word_count)) == NULL ||
      (changes = strings_of(env, argv[1], &change_count)) == NULL) {
    goto out;
  }
  if (word_count == 0 || words[0][0] == 0 || request->flags.count != STDIO) {
    mr_throw_range(env, "expected a program, and flags of three descriptors");
    goto out;
  }
  variables = environment_with(changes, change_count);
  result = mr_return(env, variables == NULL ? -ENOMEM : replace(words, variables, request));
out:
  free(request);
  free(words);
  free(changes);
  free(variables);
  return result;
}

// (exit code). Threads that are stuck in a system call or in a script are not waited for, as
// exit(3) of Node does.
static napi_value end_process(napi_env env, napi_callback_info info) {
  int32_t code;
  if (!mr_int_args(env, info, 1, &code)) return NULL;
  if (code < 0 || code > MAX_EXIT_CODE) return mr_throw_range(env, "expected an exit code from 0 to 255");
  _exit(code);
}

MR_EXPORTS(exec) {
  const napi_property_descriptor functions[] = {
      MR_FUNCTION("exec", exec_),
      MR_FUNCTION("endProcess", end_process),
  };
  return MR_DEFINE(env, exports, functions);
}
