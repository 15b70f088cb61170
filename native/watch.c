// Descriptors on Node's own event loop: a callback when one is readable. For programs that must not
// block their thread.
#include "addon.h"

#include <stdlib.h>
#include <uv.h>

struct watch {
  uv_poll_t poll;
  napi_env env;
  napi_ref callback;
  napi_async_context context;
  napi_async_cleanup_hook_handle cleanup;
  bool is_closing;
};

static const napi_type_tag watch_tag = {0x6d696c6c72616365, 0x77617463682d7576};

// The last step, when the loop has let go of the handle.
static void closed(uv_handle_t *handle) {
  struct watch *watch = handle->data;
  napi_remove_async_cleanup_hook(watch->cleanup);
  free(watch);
}

static void stop(struct watch *watch) {
  if (watch->is_closing) return;
  watch->is_closing = true;
  uv_poll_stop(&watch->poll);
  napi_delete_reference(watch->env, watch->callback);
  napi_async_destroy(watch->env, watch->context);
  uv_close((uv_handle_t *)&watch->poll, closed);
}

// The environment ends with the watch still there: a worker was terminated, say.
static void environment_ends(napi_async_cleanup_hook_handle handle, void *data) {
  stop(data);
}

static void readable(uv_poll_t *poll, int status, int events) {
  struct watch *watch = poll->data;
  napi_handle_scope scope;
  napi_value callback, receiver, argument;
  napi_env env = watch->env;
  if (watch->is_closing || napi_open_handle_scope(env, &scope) != napi_ok) return;
  if (napi_get_reference_value(env, watch->callback, &callback) == napi_ok &&
      napi_get_global(env, &receiver) == napi_ok && napi_create_int32(env, status, &argument) == napi_ok) {
    // An exception in the callback is reported by Node as any other that nobody caught.
    napi_value exception;
    if (napi_make_callback(env, watch->context, receiver, callback, 1, &argument, NULL) == napi_pending_exception &&
        napi_get_and_clear_last_exception(env, &exception) == napi_ok)
      napi_fatal_exception(env, exception);
  }
  napi_close_handle_scope(env, scope);
}

// Returns a handle, or -errno. The watch does not keep the process alive until `watchHold` says so.
static napi_value watch_start(napi_env env, napi_callback_info info) {
  napi_value argv[2], external, name;
  int32_t fd;
  napi_valuetype type = napi_undefined;
  uv_loop_t *loop;
  if (!mr_args(env, info, 2, argv) || !mr_int(env, argv[0], &fd)) return NULL;
  napi_typeof(env, argv[1], &type);
  if (type != napi_function) {
    napi_throw_type_error(env, "ERR_INVALID_ARG_TYPE", "expected a function");
    return NULL;
  }
  struct watch *watch = calloc(1, sizeof(*watch));
  if (watch == NULL || napi_get_uv_event_loop(env, &loop) != napi_ok) {
    free(watch);
    return mr_return(env, -ENOMEM);
  }
  int result = uv_poll_init(loop, &watch->poll, fd);
  if (result < 0) {
    free(watch);
    return mr_return(env, result);
  }
  watch->env = env;
  watch->poll.data = watch;
  napi_create_string_utf8(env, "millrace.watch", NAPI_AUTO_LENGTH, &name);
  napi_async_init(env, NULL, name, &watch->context);
  napi_create_reference(env, argv[1], 1, &watch->callback);
  napi_add_async_cleanup_hook(env, environment_ends, watch, &watch->cleanup);
  uv_unref((uv_handle_t *)&watch->poll);
  result = uv_poll_start(&watch->poll, UV_READABLE, readable);
  if (result < 0) {
    stop(watch);
    return mr_return(env, result);
  }
  napi_create_external(env, watch, NULL, NULL, &external);
  napi_type_tag_object(env, external, &watch_tag);
  return external;
}

static struct watch *watch_of(napi_env env, napi_value value) {
  napi_valuetype type = napi_undefined;
  bool is_ours = false;
  void *data = NULL;
  napi_typeof(env, value, &type);
  if (type == napi_external) napi_check_object_type_tag(env, value, &watch_tag, &is_ours);
  if (is_ours && napi_get_value_external(env, value, &data) == napi_ok) return data;
  napi_throw_type_error(env, "ERR_INVALID_ARG_TYPE", "expected a watch");
  return NULL;
}

// Once only: the handle is dead afterwards. The wrapper in TypeScript sees to that.
static napi_value watch_stop(napi_env env, napi_callback_info info) {
  napi_value argv[1];
  if (!mr_args(env, info, 1, argv)) return NULL;
  struct watch *watch = watch_of(env, argv[0]);
  if (watch != NULL) stop(watch);
  return NULL;
}

// Whether the watch keeps the process alive.
static napi_value watch_hold(napi_env env, napi_callback_info info) {
  napi_value argv[2];
  int32_t is_held;
  if (!mr_args(env, info, 2, argv) || !mr_int(env, argv[1], &is_held)) return NULL;
  struct watch *watch = watch_of(env, argv[0]);
  if (watch == NULL) return NULL;
  if (is_held)
    uv_ref((uv_handle_t *)&watch->poll);
  else
    uv_unref((uv_handle_t *)&watch->poll);
  return NULL;
}

MR_EXPORTS(watch) {
  const napi_property_descriptor functions[] = {
      MR_FUNCTION("watchStart", watch_start),
      MR_FUNCTION("watchStop", watch_stop),
      MR_FUNCTION("watchHold", watch_hold),
  };
  return MR_DEFINE(env, exports, functions);
}
