// Finds libibverbs' functions in the library of the machine.
#include "libibverbs.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

static struct mr_libibverbs functions;
static bool is_open;

// Names that have several versions resolve to the default one, which is that of the header.
static void open_library(void) {
  void *library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) return;
  is_open = true;
#define MR_RESOLVE(name)                                                                                               \
  functions.name = (__typeof__(functions.name))dlsym(library, #name);                                                  \
  if (functions.name == NULL) is_open = false;
  MR_LIBIBVERBS_FUNCTIONS(MR_RESOLVE)
#undef MR_RESOLVE
}

const struct mr_libibverbs *mr_libibverbs(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, open_library);
  return is_open ? &functions : NULL;
}
