// Shared libraries that a machine may or may not have.
#include "addon.h"

#include <dlfcn.h>
#include <link.h>

// [0, path] when the library opens and has the symbol; [-ENOENT, why] when it does not open;
// [-ENOSYS, why] when the symbol is missing.
static napi_value look_up(napi_env env, napi_callback_info info) {
  napi_value argv[2], result, text;
  char name[256], symbol[256];
  if (!mr_args(env, info, 2, argv) || !mr_string(env, argv[0], name, sizeof(name)) ||
      !mr_string(env, argv[1], symbol, sizeof(symbol))) {
    return NULL;
  }
  int status = 0;
  struct link_map *map = NULL;
  void *library = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
  if (library == NULL)
    status = -ENOENT;
  else if (dlsym(library, symbol) == NULL)
    status = -ENOSYS;
  else
    dlinfo(library, RTLD_DI_LINKMAP, &map);
  const char *why = status < 0 ? dlerror() : NULL;
  napi_create_string_utf8(env, map != NULL ? map->l_name : (why != NULL ? why : ""), NAPI_AUTO_LENGTH, &text);
  napi_create_array_with_length(env, 2, &result);
  napi_set_element(env, result, 0, mr_return(env, status));
  napi_set_element(env, result, 1, text);
  if (library != NULL) dlclose(library);
  return result;
}

MR_EXPORTS(library) {
  const napi_property_descriptor functions[] = {
      MR_FUNCTION("libraryLookUp", look_up),
  };
  return MR_DEFINE(env, exports, functions);
}
