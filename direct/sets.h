// An epoll set as the program sees it: what the kernel watches, and the direct connections in it.
#ifndef MILLRACE_DIRECT_SETS_H
#define MILLRACE_DIRECT_SETS_H

#include "internal.h"

struct mr_member {
  struct mr_set *set;
  struct mr_connection *connection;
  int fd;
  uint32_t events;
  uint64_t data;
  bool is_direct;   // the kernel does not watch it
  bool is_disabled; // one-shot, and shot
  bool is_absent;   // neither direct nor in the kernel's set, until it is armed again
  bool is_listed;
  struct mr_member *next_of_connection;
  struct mr_member *next_ready, *previous_ready;
};

struct mr_set {
  int fd;
  uint32_t refs;          // descriptors
  uint32_t direct_count;  // direct members
  bool has_watch;         // the kernel's set contains a watcher, maybe the parent's
  int32_t watched_by;     // the last process that put its watcher there
  bool is_pinned;         // its connections stay with the kernel
  bool is_inherited;      // from the parent
  struct mr_member ready; // head of the list of those that may be ready
  struct mr_set *next_free;
  int64_t asked_ns; // when the kernel was asked last
};

// What the watcher's events have as their data in the program's sets.
#define MR_WATCH_DATA UINT64_C(0x6d696c6c72616365)

struct mr_set *mr_set_of(int fd);
struct mr_set *mr_make_set(int fd);
void mr_close_set(int fd);
struct mr_member *mr_member_of(struct mr_set *set, struct mr_connection *connection, int fd);
bool mr_add_member(struct mr_set *set, struct mr_connection *connection, int fd, const struct epoll_event *event);
void mr_remove_member(struct mr_member *member);
void mr_list_member(struct mr_member *member);
void mr_make_direct(struct mr_member *member);
void mr_make_kernel(struct mr_member *member);
int mr_change_kernel(struct mr_member *member, int operation, struct epoll_event *event);
void mr_pin_set(int fd); // without the process lock
int mr_take_ready(struct mr_set *set, struct epoll_event *events, int most);

#endif
