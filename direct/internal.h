// What the files of the library share: its state in this process, its connections, its lock.
//
// The library is preloaded into programs of glibc and of musl alike. So it is linked against
// neither (no versioned symbols), keeps no threads, and allocates nothing after a connection is
// known.
#ifndef MILLRACE_DIRECT_INTERNAL_H
#define MILLRACE_DIRECT_INTERNAL_H

#include "layout.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

#define MR_EXPORT __attribute__((visibility("default")))
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

enum {
  MR_MAX_FDS = 1 << 20,         // descriptors above are left to the kernel
  MR_MAX_CONNECTIONS = 1 << 17, // tracked at once
  MR_MAX_ARENAS = 4096,
  MR_HOLDERS = 4,        // processes that share a connection after fork; more: left to the kernel
  MR_OFFER_AFTER = 12,   // reads and writes
  MR_OFFER_AGAIN = 4096, // reads and writes after it went back to TCP
  MR_OFFER_SOON = 256,   // after a lane was lost
  MR_OFFER_LATE = 65536, // after its lane left it because it moves bulk
};

// Held for tens of nanoseconds, except around a call of a blocking socket. Process-shared, and
// taken over from an owner that is dead.
struct mr_lock {
  _Atomic uint32_t owner; // a thread id
};

struct mr_arena_map {
  struct mr_arena *shared;
  size_t size_bytes;
  uint32_t id; // the daemon's
  uint32_t party;
  uint32_t ring_bytes;
  bool has_lane;         // the other party is a lane, the other program on another host
  int ours, theirs;      // eventfds
  uint32_t used;         // slots with a connection of this process
  bool is_inherited;     // the parent collects its news
  bool is_forgotten;     // by the daemon: the other program has ended
  uint32_t conversation; // with which daemon
  struct mr_connection *connections[MR_SLOTS];
};

// Promoting: a call counts itself as a user and then looks at the state; who promotes sets the
// state and then looks at the users. So no call moves bytes while the positions are taken.
enum mr_state { MR_PLAIN, MR_OFFERED, MR_DIRECT, MR_PROMOTING };

// Where the next byte is read from, or written to.
enum mr_mode {
  MR_TCP,      // and may go on in the ring
  MR_TCP_LAST, // reading: the last bytes before those in the ring
  MR_RING,
  MR_SKIP,     // reading: bytes that were in the ring come again on TCP
  MR_FLUSH,    // writing: bytes of the ring go by TCP after all
  MR_TCP_ONLY, // for good
};

// A TCP connection that may become direct. In memory that forked children share, because the
// positions are those of the socket, which they share, too.
struct mr_connection {
  uint32_t index;
  uint32_t id;             // of the offer
  _Atomic uint32_t state;  // enum mr_state
  _Atomic uint32_t users;  // calls that are using it
  _Atomic uint32_t pinned; // never offered
  _Atomic uint32_t closed; // no descriptor is left: free when nobody uses it
  _Atomic uint32_t forks;  // children that have not entered themselves yet
  _Atomic int32_t holders[MR_HOLDERS];
  uint32_t messages;
  uint32_t offer_at;
  uint32_t conversation;   // of the offer
  _Atomic bool is_invited; // the daemon has found the other end
  // What the program has set.
  bool is_listening;
  bool is_nonblocking;
  bool is_shut;      // the program sends no more
  bool is_read_shut; // the program has said that it reads no more; what comes is read all the same
  int32_t low_water;
  int64_t receive_timeout_ns, send_timeout_ns; // 0: none
  // While the library keeps its TCP alive, what the program has set; see keepalive.c.
  bool is_kept;
  int keep_idle, keep_interval, keep_probes;
  // While it is direct.
  _Atomic(struct mr_arena_map *) arena; // NULL: none. Another thread of a call may leave the slot
  uint32_t slot;
  uint32_t ring_mask;
  struct mr_flow *in, *out;
  uint8_t *in_ring, *out_ring;
  struct mr_lock in_lock, out_lock;
  uint32_t in_mode, out_mode;
  uint64_t in_position; // of the next byte that the program reads
  uint64_t in_from;     // where the ring begins
  uint64_t out_from;
  uint64_t out_base;
  uint64_t out_position;        // of the next byte that the program writes
  uint64_t flush_position;      // of the next byte that goes from the ring to TCP
  uint64_t idle_position;       // out_position when the daemon asked for idle rings
  bool is_trimmed;              // and the ring had no pages any more
  _Atomic uint32_t kernel_news; // the socket may have something to say
  _Atomic uint32_t is_broken;   // the other party broke the protocol
  _Atomic uint32_t has_peer_ended;
  int pending_error; // the kernel has told it, the program does not know yet
  bool is_reset_told;
  // Through a lane; see resume.c.
  bool has_lane;
  bool is_resumed;    // the writer has gone on by TCP: the ring ends at in_end
  bool wants_back;    // bytes that were not read are wanted on TCP, and not from the ring
  bool leaves_rest;   // it is closed, and its lane sends the rest
  bool is_bulk;       // the lane left it for that
  bool wants_fin;     // the program has shut it, and bytes of the ring go by TCP first
  bool awaits_word;   // TCP has ended: the lane says whether more comes by the ring
  bool has_heard_all; // TCP has ended, and nothing is in the ring
  uint64_t token;     // of both ends
  uint64_t in_end;    // where reading of the ring ends
  uint64_t in_skip;   // bytes on TCP that were in the ring before
  struct mr_resume header;
  uint32_t header_left; // bytes of it that are not on TCP yet
};

struct mr_set; // sets.h

// What only this process knows of a connection.
struct mr_local {
  uint32_t fds; // descriptors of it
  int fd;       // one of them, for calls that have none at hand
  struct mr_member *members;
};

struct mr_process {
  _Atomic int32_t pid;
  struct mr_lock lock; // control conversation, arenas, epoll sets
  // Read without the lock as well, as hints.
  _Atomic int control; // -1: no daemon
  int watch;           // an epoll of all doorbells, all direct sockets and the control socket
  int news;            // another one, which tells which of the sockets it was
  _Atomic(const struct mr_desk *) desk;
  _Atomic uint32_t heard;        // messages of the desk that were received
  _Atomic uint32_t conversation; // counts the daemons
  _Atomic uint32_t calls;        // while the desk has not come yet
  uint32_t next_offer;
  uint32_t offer_after;
  int64_t next_dial_ns;
  bool is_off, is_verbose;
  _Atomic bool has_uring;
  _Atomic bool has_watched; // some epoll set has the watcher in it
  _Atomic uint32_t direct_count;
  uint32_t arena_count;
  struct mr_arena_map *arenas;
  struct mr_connection *connections; // MR_MAX_CONNECTIONS of them
  struct mr_local *locals;           // by their index
  _Atomic uint32_t highest_fd;
  uint32_t table_size;
};

extern struct mr_process mr;

static inline struct mr_local *mr_local_of(const struct mr_connection *connection) {
  return &mr.locals[connection->index];
}

// Descriptors that are none of the kernel's alone: low bits say which kind.
enum mr_kind { MR_NONE = 0, MR_CONNECTION = 1, MR_SET = 2, MR_OWN = 3 };
extern _Atomic uintptr_t *mr_table;

void mr_resolve(void);
extern bool mr_is_resolved;
static inline void mr_ensure_resolved(void) {
  if (likely(mr_is_resolved)) return;
  mr_resolve();
  mr_is_resolved = true;
}

// lock.c
bool mr_acquire(struct mr_lock *lock); // false: this very thread has it (a signal handler)
bool mr_try_acquire(struct mr_lock *lock);
void mr_release(struct mr_lock *lock);
int32_t mr_thread_id(void);
void mr_forget_thread(void);

// table.c
enum mr_kind mr_kind_of(int fd);
struct mr_connection *mr_enter(int fd); // NULL: not tracked. Otherwise leave it again
void mr_leave(struct mr_connection *connection);
void mr_track(int fd, bool is_nonblocking);
void mr_untrack(int fd); // before the descriptor is closed
void mr_alias(int fd, int copy);
void mr_mistaken(int fd); // it was closed past the library
bool mr_is_shared(struct mr_connection *connection);
void mr_table_forking(void);
void mr_table_forked(void);
void mr_set_entry(int fd, enum mr_kind kind, void *object);
void *mr_entry(int fd, enum mr_kind kind);
int mr_own(int fd); // moves a descriptor of the library out of the program's way
void mr_disown(int fd);
void mr_relocate(int fd); // the program wants this number for itself

// control.c
void mr_remember_daemon(const char *path);
void mr_greet(void); // finds the daemon, if there is one
void mr_listens(int fd);
void mr_hear(void);        // takes the messages of the daemon
void mr_hear_locked(void); // with the process lock
void mr_withdraw(struct mr_connection *connection);
void mr_drop_arena(struct mr_arena_map *arena); // unless it is in use
void mr_counted(struct mr_connection *connection, int fd);
static inline void mr_listen(void) {
  const struct mr_desk *desk = atomic_load_explicit(&mr.desk, memory_order_acquire);
  // Acquire: its partner is the daemon's increment after it has sent the message.
  if (desk != NULL ? atomic_load_explicit(&desk->news, memory_order_acquire) != mr.heard
                   : mr.control >= 0 && ++mr.calls % 32 == 0)
    mr_hear();
}

// promotion.c
void mr_promote(struct mr_connection *connection, uint32_t users); // with the process lock
void mr_demote(struct mr_connection *connection, int fd, bool is_for_good);
void mr_demote_locked(struct mr_connection *connection, int fd); // with the process lock
// leaves the slot when both ways are TCP
void mr_settle(struct mr_connection *connection, int fd);
// before a FIN: all bytes are on their way, and none can be taken back
void mr_shut_out(struct mr_connection *connection, int fd, bool is_closing);
// before it is shut both ways: the bytes of the ring go by TCP, which takes none after that
void mr_bring_back(struct mr_connection *connection, int fd);
// before its last descriptor is closed
void mr_depart(struct mr_connection *connection, int fd);
void mr_pin(int fd);         // demotes, and never offers again
void mr_pin_inherited(void); // all that an exec would keep
void mr_pin_all(void);
void mr_part_from_closed(void); // all that an exec of this process closes
void mr_leave_to_uring(void);
void mr_look_for_uring(void);
void mr_leave_slot_of(struct mr_connection *connection);

// flow.c
void mr_advance_in(struct mr_connection *connection);  // with in_lock
void mr_advance_out(struct mr_connection *connection); // with out_lock
void mr_begin_out(struct mr_connection *connection);   // with out_lock
uint64_t mr_readable(struct mr_connection *connection);
uint64_t mr_room(struct mr_connection *connection);
size_t mr_take(struct mr_connection *connection, uint8_t *to, size_t size, uint64_t skip);
void mr_taken(struct mr_connection *connection, size_t size);
size_t mr_put(struct mr_connection *connection, const uint8_t *from, size_t size);
uint8_t *mr_put_begin(struct mr_connection *connection, size_t *size);
void mr_put_end(struct mr_connection *connection, size_t size);
bool mr_stop_in(struct mr_connection *connection);
void mr_keep_ring(struct mr_connection *connection, uint32_t mode); // with in_lock
void mr_stop_out(struct mr_connection *connection);
void mr_seal_out(struct mr_connection *connection);
void mr_trim_out(struct mr_connection *connection);
void mr_broken(struct mr_connection *connection);

// resume.c
enum mr_outcome { MR_TAKEN, MR_NOTHING, MR_ENDED, MR_FAILED };
void mr_advance_in_lane(struct mr_connection *connection);
void mr_give_back(struct mr_connection *connection);
void mr_look_aside(struct mr_connection *connection); // without in_lock
bool mr_has_closed(struct mr_connection *connection); // with out_lock
void mr_resume_out(struct mr_connection *connection, uint64_t flags);
enum mr_outcome mr_look(struct mr_connection *connection, int fd); // with in_lock
void mr_skip(struct mr_connection *connection, int fd);            // with in_lock
void mr_leave_ring(struct mr_connection *connection);              // with in_lock
void mr_stop_in_lane(struct mr_connection *connection, int fd);
bool mr_bring_back_in_lane(struct mr_connection *connection, int fd);
void mr_lose(struct mr_connection *connection);

// keepalive.c
void mr_keep_alive(struct mr_connection *connection, int fd);
void mr_stop_keeping(struct mr_connection *connection, int fd);
bool mr_is_keep_option(int level, int option);
void mr_kept_option(struct mr_connection *connection, int level, int option, void *value, socklen_t size);

// doorbell.c
void mr_ring(struct mr_connection *connection);
bool mr_has_fin(struct mr_connection *connection, int fd); // the socket says that there is an end
void mr_check_peer(struct mr_connection *connection, int fd);
int mr_watcher(void); // the epoll of this process, or -1
void mr_watch_control(void);
void mr_watch_connection(struct mr_connection *connection, int fd);
void mr_unwatch_connection(int fd);
void mr_falling_asleep(void);
void mr_collect(bool with_kernel); // with the process lock
int mr_borrow_alarm(void);         // an epoll that becomes readable at the next doorbell
void mr_return_alarm(int alarm);
void mr_clear_alarm(int alarm);
void mr_forget_alarms(void);
void mr_renumber_alarm(int fd, int moved);

// spin.c
int64_t mr_now_ns(void);
bool mr_may_spin(void);
void mr_spun(void);
void mr_found(void);

// wait.c
uint32_t mr_events(struct mr_connection *connection, int fd, uint32_t wanted);
int mr_wait(struct mr_connection *connection, int fd, short events, int64_t deadline_ns);
bool mr_restarts(void);

// transfer.c
ssize_t mr_receive(struct mr_connection *connection, int fd, struct msghdr *message, int flags);
ssize_t mr_transmit(struct mr_connection *connection, int fd, const struct msghdr *message, int flags);
ssize_t mr_send_file(struct mr_connection *connection, int fd, int file, off_t *offset, size_t count);
void mr_flush_all(void);
bool mr_flush(struct mr_connection *connection, int fd, bool is_waiting);

// sets.c
void mr_members_direct(struct mr_connection *connection);
void mr_members_kernel(struct mr_connection *connection);
void mr_members_unwatched(struct mr_connection *connection);
void mr_members_closed(struct mr_connection *connection, int fd);
void mr_members_ready(struct mr_connection *connection);
void mr_members_present(const struct mr_set *set); // NULL: of all sets
void mr_sets_forked(void);

void mr_say(const char *text);
void mr_forked_without_handlers(void);

#endif
