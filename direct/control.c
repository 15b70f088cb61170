// The conversation with the daemon: offers and withdrawals go there, arenas and promotions come
// back. No call of the program ever waits for it.
#include "internal.h"
#include "real.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

static const int64_t redial_ns = 1000000000;
static const uint32_t smallest_ring = 4096, largest_ring = 16 << 20;
static const char default_socket[] = "/run/millrace/millrace.direct";
static struct sockaddr_un daemon_address;

// Connections by the last digits of their offers.
enum { MR_OFFERS = 1 << 16 };
static uint32_t offers[MR_OFFERS];

static bool tell(uint32_t kind, uint32_t connection, uint32_t value, uint32_t flags, int fd) {
  struct mr_message message = {.kind = kind, .connection = connection, .value = value, .flags = flags};
  struct iovec bytes = {.iov_base = &message, .iov_len = sizeof(message)};
  union {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(int))];
  } control = {.header = {.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
  struct msghdr packet = {.msg_iov = &bytes, .msg_iovlen = 1};
  if (fd >= 0) {
    memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
    packet.msg_control = &control;
    packet.msg_controllen = sizeof(control.bytes);
  }
  return real.sendmsg(mr.control, &packet, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof(message);
}

static void hang_up(void) {
  if (mr.control < 0) return;
  mr_disown(mr.control);
  mr.control = -1;
  // It stays mapped: another thread may be looking at it.
  atomic_store(&mr.desk, NULL);
  // Its lanes have ended with it.
  for (uint32_t i = 0; i < mr.arena_count; i++) {
    struct mr_arena_map *arena = &mr.arenas[i];
    if (arena->shared == NULL || !arena->has_lane || arena->conversation != mr.conversation) continue;
    for (uint32_t slot = 0; slot < MR_SLOTS; slot++)
      if (arena->connections[slot] != NULL) mr_lose(arena->connections[slot]);
  }
  mr.conversation++;
  mr.next_dial_ns = mr_now_ns() + redial_ns;
  mr_say("the daemon has ended; connections go on, new ones stay plain TCP until it is back");
}

// At the start: programs change their environment later.
void mr_remember_daemon(const char *path) {
  if (path == NULL || path[0] == 0) path = default_socket;
  const size_t length = strlen(path);
  if (length >= sizeof(daemon_address.sun_path)) return;
  daemon_address.sun_family = AF_UNIX;
  memcpy(daemon_address.sun_path, path, length + 1);
}

// The hook may leave connects of this process alone from now on, where the other end has the
// library as well.
static void sign(void) {
  const struct sockaddr_in to = {
      .sin_family = AF_INET, .sin_port = htons(MR_SIGN_PORT), .sin_addr.s_addr = htonl(MR_SIGN_ADDRESS)};
  const int fd = real.socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  real.connect(fd, (const struct sockaddr *)&to, sizeof(to));
  real.close(fd);
}

// By its inode: another descriptor would keep the port in use after the program has closed it.
static void tell_listener(int fd) {
  struct stat status;
  if (real.syscall(SYS_fstat, fd, &status) == 0) tell(MR_LISTENS, 0, (uint32_t)status.st_ino, 0, -1);
}

static void tell_listeners(void) {
  const uint32_t highest = atomic_load(&mr.highest_fd);
  for (uint32_t fd = 0; fd <= highest && fd < mr.table_size; fd++) {
    const struct mr_connection *connection = mr_entry((int)fd, MR_CONNECTION);
    if (connection != NULL && connection->is_listening) tell_listener((int)fd);
  }
}

static bool dial(void) {
  const int64_t now = mr_now_ns();
  if (now < mr.next_dial_ns) return false;
  mr.next_dial_ns = now + redial_ns;
  if (daemon_address.sun_family != AF_UNIX) return false;
  const int fd = real.socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  if (real.connect(fd, (const struct sockaddr *)&daemon_address, sizeof(daemon_address)) != 0) {
    real.close(fd);
    static bool is_told;
    if (!is_told) mr_say("no daemon listens for direct connections here: plain TCP");
    is_told = true;
    return false;
  }
  mr.control = mr_own(fd);
  if (mr.control < 0) return false;
  mr_watch_control();
  mr.conversation++;
  mr.heard = 0;
  if (tell(MR_HELLO, 0, MR_DIRECT_VERSION, 0, -1)) {
    sign();
    tell_listeners();
    return true;
  }
  hang_up();
  return false;
}

void mr_greet(void) {
  if (mr.control >= 0 || mr.is_off || mr.has_uring) return;
  const int saved = errno;
  if (mr_acquire(&mr.lock)) {
    if (mr.control < 0) dial();
    mr_release(&mr.lock);
  }
  errno = saved;
}

void mr_listens(int fd) {
  struct mr_connection *connection = mr_entry(fd, MR_CONNECTION);
  if (connection == NULL || connection->is_listening || mr.is_off || mr.has_uring) return;
  connection->is_listening = true;
  const int saved = errno;
  if (mr_acquire(&mr.lock)) {
    // Who dials tells of all of them.
    if (mr.control >= 0)
      tell_listener(fd);
    else
      dial();
    mr_release(&mr.lock);
  }
  errno = saved;
}

// Offers

static bool is_established(int fd) {
  struct tcp_info info;
  socklen_t size = sizeof(info);
  if (real.getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return false;
  return info.tcpi_state == TCP_ESTABLISHED && (info.tcpi_options & TCPI_OPT_SYN_DATA) == 0;
}

static void offer(struct mr_connection *connection, int fd) {
  if (!mr_acquire(&mr.lock)) return;
  if ((mr.control >= 0 || dial()) && is_established(fd)) {
    connection->id = ++mr.next_offer;
    connection->conversation = mr.conversation;
    connection->is_invited = false;
    offers[connection->id % MR_OFFERS] = connection->index;
    if (tell(MR_OFFER, connection->id, 0, 0, fd)) atomic_store(&connection->state, MR_OFFERED);
  }
  mr_release(&mr.lock);
}

void mr_counted(struct mr_connection *connection, int fd) {
  const uint32_t state = atomic_load_explicit(&connection->state, memory_order_relaxed);
  if (state == MR_OFFERED && connection->conversation != mr.conversation) atomic_store(&connection->state, MR_PLAIN);
  if (++connection->messages < connection->offer_at || state != MR_PLAIN) return;
  connection->offer_at = connection->messages + 256;
  if (mr.is_off || mr.has_uring || atomic_load(&connection->pinned) != 0) return;
  if (connection->arena != NULL || mr_is_shared(connection)) return;
  const int saved = errno;
  mr_look_for_uring();
  if (!mr.has_uring) offer(connection, fd);
  errno = saved;
}

void mr_withdraw(struct mr_connection *connection) {
  if (mr.control < 0 || connection->conversation != mr.conversation) return;
  const uint32_t flags = (connection->leaves_rest ? MR_LEAVES_REST : 0) | (connection->is_bulk ? MR_WAS_BULK : 0);
  for (int tries = 0; !tell(MR_WITHDRAW, connection->id, 0, flags, -1) && errno == EAGAIN && tries < 100; tries++) {
    struct pollfd full = {.fd = mr.control, .events = POLLOUT};
    real.poll(&full, 1, 10);
  }
}

// What comes

static struct mr_connection *offered(uint32_t id) {
  struct mr_connection *connection = &mr.connections[offers[id % MR_OFFERS]];
  if (connection == mr.connections || connection->id != id || connection->conversation != mr.conversation) return NULL;
  return mr_local_of(connection)->fds != 0 && atomic_load(&connection->state) != MR_PLAIN ? connection : NULL;
}

static void welcome(int memory) {
  if (memory < 0 || lseek(memory, 0, SEEK_END) < 4096) return;
  void *desk = mmap(NULL, 4096, PROT_READ, MAP_SHARED, memory, 0);
  if (desk != MAP_FAILED) atomic_store(&mr.desk, desk);
}

static struct mr_arena_map *arena_of(uint32_t id) {
  for (uint32_t i = 0; i < mr.arena_count; i++) {
    struct mr_arena_map *arena = &mr.arenas[i];
    if (arena->shared != NULL && arena->id == id && arena->conversation == mr.conversation) return arena;
  }
  return NULL;
}

static void add_arena(const struct mr_message *message, int *fds) {
  const uint64_t ring = message->value;
  if (ring < smallest_ring || ring > largest_ring || (ring & (ring - 1)) != 0 || message->party > 1) return;
  const size_t size = MR_RINGS_OFFSET + 2 * MR_SLOTS * (size_t)ring;
  if (fds[2] < 0 || lseek(fds[0], 0, SEEK_END) < (off_t)size) return;
  // Memory that can shrink would end the program with SIGBUS.
  if ((real.fcntl(fds[0], F_GET_SEALS) & F_SEAL_SHRINK) == 0 || arena_of(message->arena) != NULL) return;
  struct mr_arena_map *arena = NULL;
  for (uint32_t i = 0; i < mr.arena_count && arena == NULL; i++)
    if (mr.arenas[i].shared == NULL) arena = &mr.arenas[i];
  if (arena == NULL && mr.arena_count == MR_MAX_ARENAS) return;
  void *shared = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
  if (shared == MAP_FAILED) return;
  const int ours = mr_own(fds[1]), theirs = mr_own(fds[2]);
  fds[1] = fds[2] = -1;
  if (ours < 0 || theirs < 0) {
    if (ours >= 0) mr_disown(ours);
    if (theirs >= 0) mr_disown(theirs);
    munmap(shared, size);
    return;
  }
  if (arena == NULL) arena = &mr.arenas[mr.arena_count];
  *arena = (struct mr_arena_map){.shared = shared,
                                 .size_bytes = size,
                                 .id = message->arena,
                                 .party = message->party,
                                 .ring_bytes = (uint32_t)ring,
                                 .has_lane = (message->flags & MR_WITH_LANE) != 0,
                                 .ours = ours,
                                 .theirs = theirs,
                                 .conversation = mr.conversation};
  if (arena == &mr.arenas[mr.arena_count]) mr.arena_count++;
  if (mr.watch >= 0) {
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    real.epoll_ctl(mr.watch, EPOLL_CTL_ADD, ours, &event);
  }
}

void mr_drop_arena(struct mr_arena_map *arena) {
  if (arena->used != 0 || arena->is_inherited || arena->shared == NULL) return;
  if (!arena->is_forgotten && arena->conversation == mr.conversation) return;
  munmap(arena->shared, arena->size_bytes);
  mr_disown(arena->ours);
  mr_disown(arena->theirs);
  arena->shared = NULL;
}

static void promote(const struct mr_message *message) {
  struct mr_connection *connection = offered(message->connection);
  struct mr_arena_map *arena = arena_of(message->arena);
  if (connection == NULL) return; // closed meanwhile: it was withdrawn
  if (arena == NULL || message->slot >= MR_SLOTS || arena->connections[message->slot] != NULL ||
      connection->is_invited) {
    mr_withdraw(connection);
    atomic_store(&connection->state, MR_PLAIN);
    return;
  }
  connection->arena = arena;
  connection->slot = message->slot;
  connection->token = message->token;
  connection->is_invited = true;
  arena->connections[message->slot] = connection;
  arena->used++;
  mr_promote(connection, 0);
}

static void trim(struct mr_arena_map *arena) {
  const int saved = errno;
  for (uint32_t slot = 0; slot < MR_SLOTS; slot++) {
    struct mr_connection *connection = arena->connections[slot];
    if (connection != NULL && atomic_load(&connection->state) == MR_DIRECT) mr_trim_out(connection);
  }
  errno = saved;
}

static void take(const struct mr_message *message, int *fds) {
  struct mr_connection *connection;
  struct mr_arena_map *arena;
  switch (message->kind) {
  case MR_WELCOME:
    welcome(fds[0]);
    break;
  case MR_ARENA:
    add_arena(message, fds);
    break;
  case MR_PROMOTE:
    promote(message);
    break;
  case MR_DECLINE:
    connection = offered(message->connection);
    if (connection == NULL || connection->is_invited) break;
    connection->offer_at = connection->messages + MR_OFFER_AGAIN;
    atomic_store(&connection->state, MR_PLAIN);
    break;
  case MR_DEMOTE:
    connection = offered(message->connection);
    if (connection != NULL) mr_demote_locked(connection, mr_local_of(connection)->fd);
    break;
  case MR_FORGET:
    arena = arena_of(message->arena);
    if (arena == NULL) break;
    arena->is_forgotten = true;
    mr_drop_arena(arena);
    break;
  case MR_TRIM:
    arena = arena_of(message->arena);
    if (arena != NULL) trim(arena);
    break;
  default:
    break;
  }
}

void mr_hear_locked(void) {
  const struct mr_desk *desk = atomic_load(&mr.desk);
  // Before the messages are received: one that comes after that is heard the next time.
  if (desk != NULL) mr.heard = atomic_load(&desk->news);
  while (mr.control >= 0) {
    struct mr_message message;
    struct iovec bytes = {.iov_base = &message, .iov_len = sizeof(message)};
    union {
      struct cmsghdr header;
      char bytes[CMSG_SPACE(3 * sizeof(int))];
    } control;
    struct msghdr packet = {
        .msg_iov = &bytes, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control.bytes)};
    const ssize_t size = real.recvmsg(mr.control, &packet, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (size < 0 && errno == EAGAIN) break;
    if (size <= 0) {
      hang_up();
      break;
    }
    int fds[3] = {-1, -1, -1};
    struct cmsghdr *header = CMSG_FIRSTHDR(&packet);
    if (header != NULL && header->cmsg_type == SCM_RIGHTS)
      memcpy(fds, CMSG_DATA(header), header->cmsg_len - CMSG_LEN(0));
    if (size == (ssize_t)sizeof(message)) take(&message, fds);
    for (int i = 0; i < 3; i++)
      if (fds[i] >= 0) real.close(fds[i]);
  }
}

void mr_hear(void) {
  const int saved = errno;
  if (mr_acquire(&mr.lock)) {
    mr_hear_locked();
    mr_release(&mr.lock);
  }
  errno = saved;
}
