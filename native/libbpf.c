// Finds libbpf's functions in the library of the machine.
#include "libbpf.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

static struct mr_libbpf functions;
static bool is_open;

static void open_library(void) {
  void *library = dlopen("libbpf.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) return;
  is_open = true;
#define MR_RESOLVE(name)                                                                                               \
  functions.name = (__typeof__(functions.name))dlsym(library, #name);                                                  \
  if (functions.name == NULL) is_open = false;
  MR_LIBBPF_FUNCTIONS(MR_RESOLVE)
#undef MR_RESOLVE
}

const struct mr_libbpf *mr_libbpf(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, open_library);
  return is_open ? &functions : NULL;
}
