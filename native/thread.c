// The calling thread: where it runs, what it is called, and the clock it reads.
#include "addon.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

static napi_value pin(napi_env env, napi_callback_info info) {
  int32_t cpu;
  if (!mr_int_args(env, info, 1, &cpu)) return NULL;
  if (cpu < 0 || cpu >= CPU_SETSIZE) return mr_return(env, -EINVAL);
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  return mr_result(env, sched_setaffinity(0, sizeof(set), &set));
}

// The numbers of the processors this thread may run on, or -errno.
static napi_value affinity(napi_env env, napi_callback_info info) {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) < 0) return mr_return(env, -errno);
  napi_value result;
  napi_create_array(env, &result);
  uint32_t index = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
    if (CPU_ISSET(cpu, &set)) napi_set_element(env, result, index++, mr_return(env, cpu));
  }
  return result;
}

static napi_value set_name(napi_env env, napi_callback_info info) {
  napi_value argv[1];
  char name[16]; // the kernel's limit
  if (!mr_args(env, info, 1, argv) || !mr_string(env, argv[0], name, sizeof(name))) return NULL;
  return mr_return(env, -pthread_setname_np(pthread_self(), name));
}

// Moves the calling thread to another network namespace; the other threads stay where they are.
static napi_value enter_netns(napi_env env, napi_callback_info info) {
  int32_t fd;
  if (!mr_int_args(env, info, 1, &fd)) return NULL;
  return mr_result(env, setns(fd, CLONE_NEWNET));
}

static napi_value thread_id(napi_env env, napi_callback_info info) {
  return mr_return(env, gettid());
}

// CLOCK_MONOTONIC in ns: exact to 1 ns for the first 104 days of uptime, to 2 ns for the next 104.
static double now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

// To the scratch double.
static napi_value clock_(napi_env env, napi_callback_info info) {
  *mr_state(env)->scratch = now_ns();
  return NULL;
}

// How long it took, in ns, to the scratch double.
static napi_value yield_processor(napi_env env, napi_callback_info info) {
  const double start_ns = now_ns();
  sched_yield();
  *mr_state(env)->scratch = now_ns() - start_ns;
  return NULL;
}

// Does nothing: what a crossing costs.
static napi_value nothing(napi_env env, napi_callback_info info) {
  return NULL;
}

MR_EXPORTS(thread) {
  const napi_property_descriptor functions[] = {
      MR_FUNCTION("pin", pin),          MR_FUNCTION("affinity", affinity),
      MR_FUNCTION("setName", set_name), MR_FUNCTION("threadId", thread_id),
      MR_FUNCTION("clock", clock_),     MR_FUNCTION("yieldProcessor", yield_processor),
      MR_FUNCTION("nothing", nothing),  MR_FUNCTION("enterNetns", enter_netns),
  };
  return MR_DEFINE(env, exports, functions);
}
