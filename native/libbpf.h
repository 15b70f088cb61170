// libbpf, opened at run time: a machine without it runs all the rest. iproute2 depends on it, so
// few are without.
#pragma once

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#define MR_LIBBPF_FUNCTIONS(X)                                                                                         \
  X(libbpf_set_print)                                                                                                  \
  X(bpf_object__open_mem)                                                                                              \
  X(bpf_object__close)                                                                                                 \
  X(bpf_object__load)                                                                                                  \
  X(bpf_object__next_program)                                                                                          \
  X(bpf_object__next_map)                                                                                              \
  X(bpf_object__find_program_by_name)                                                                                  \
  X(bpf_object__find_map_by_name)                                                                                      \
  X(bpf_program__name)                                                                                                 \
  X(bpf_program__fd)                                                                                                   \
  X(bpf_program__set_autoload)                                                                                         \
  X(bpf_program__expected_attach_type)                                                                                 \
  X(bpf_map__name)                                                                                                     \
  X(bpf_map__fd)                                                                                                       \
  X(bpf_map__set_autocreate)                                                                                           \
  X(bpf_link_create)                                                                                                   \
  X(bpf_prog_attach)                                                                                                   \
  X(bpf_prog_detach2)                                                                                                  \
  X(bpf_prog_test_run_opts)                                                                                            \
  X(bpf_map_create)                                                                                                    \
  X(bpf_map_lookup_elem)                                                                                               \
  X(bpf_map_update_elem)                                                                                               \
  X(bpf_map_delete_elem)                                                                                               \
  X(bpf_map_get_next_key)                                                                                              \
  X(bpf_obj_get_info_by_fd)                                                                                            \
  X(bpf_map_get_fd_by_id)                                                                                              \
  X(bpf_obj_pin)                                                                                                       \
  X(bpf_obj_get)                                                                                                       \
  X(bpf_link_update)                                                                                                   \
  X(bpf_iter_create)

#define MR_LIBBPF_MEMBER(name) __typeof__(name) *name;
struct mr_libbpf {
  MR_LIBBPF_FUNCTIONS(MR_LIBBPF_MEMBER)
};
#undef MR_LIBBPF_MEMBER

// The functions, or NULL when the machine has no libbpf 1. Opened once for the process and never
// closed.
const struct mr_libbpf *mr_libbpf(void);
