// Closes descriptors that came from others, on a thread of its own: their last close may take as
// long as those others like. A socket lingers, and a file of theirs is flushed first.
#include "addon.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

enum { MR_ASIDE_MAX = 256, MR_ASIDE_STACK = 64 * 1024 };

struct job {
  uint32_t count;
  int fds[];
};

// Threads that have not closed all of theirs yet, in the whole process.
static atomic_int threads;

static void *close_all(void *argument) {
  struct job *job = argument;
  for (uint32_t i = 0; i < job->count; i++)
    close(job->fds[i]);
  free(job);
  atomic_fetch_sub(&threads, 1);
  return NULL;
}

static int start(struct job *job) {
  pthread_attr_t attributes;
  pthread_t thread;
  sigset_t all, before;
  sigfillset(&all);
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, MR_ASIDE_STACK);
  // Signals are for the threads of Node.
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int error = pthread_create(&thread, &attributes, close_all, job);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attributes);
  return error;
}

// An array of descriptors that this environment owns; others are left alone. Without a thread they
// are closed here.
static napi_value close_aside(napi_env env, napi_callback_info info) {
  napi_value argv[1];
  uint32_t count = 0;
  if (!mr_args(env, info, 1, argv)) return NULL;
  if (napi_get_array_length(env, argv[0], &count) != napi_ok || count == 0 || count > MR_ASIDE_MAX) {
    return mr_throw_range(env, "expected an array of 1 to 256 descriptors");
  }
  struct job *job = malloc(sizeof(*job) + count * sizeof(int));
  if (job == NULL) return mr_return(env, -ENOMEM);
  job->count = 0;
  for (uint32_t i = 0; i < count; i++) {
    napi_value element;
    int32_t fd;
    napi_get_element(env, argv[0], i, &element);
    if (napi_get_value_int32(env, element, &fd) == napi_ok && mr_disown(mr_state(env), fd)) job->fds[job->count++] = fd;
  }
  atomic_fetch_add(&threads, 1);
  int error = start(job);
  if (error != 0) close_all(job);
  return mr_return(env, -error);
}

static napi_value closing_aside(napi_env env, napi_callback_info info) {
  return mr_return(env, atomic_load(&threads));
}

MR_EXPORTS(aside) {
  const napi_property_descriptor functions[] = {
      MR_FUNCTION("closeAside", close_aside),
      MR_FUNCTION("closingAside", closing_aside),
  };
  return MR_DEFINE(env, exports, functions);
}
