// What the library, the daemon and the program at the other end agree on: the messages between a
// program and its daemon, and the memory that two programs share. src/direct/layout.ts says the
// same in TypeScript; a test compares them.
#ifndef MILLRACE_DIRECT_LAYOUT_H
#define MILLRACE_DIRECT_LAYOUT_H

#include <stdatomic.h>
#include <stdint.h>

enum { MR_DIRECT_VERSION = 4 };

// Messages: one packet of a SOCK_SEQPACKET unix socket each, of exactly this size.
struct mr_message {
  uint32_t kind;
  uint32_t connection; // chosen by the program; never used twice on one conversation
  uint32_t arena;      // chosen by the daemon; never used twice on one conversation
  uint32_t slot;
  uint32_t party; // 0 or 1: which of the two this program is in the arena
  uint32_t value; // HELLO, WELCOME: version. ARENA: bytes of each ring, a power of two
  union {
    uint32_t flags; // ARENA: enum mr_arena_flags. WITHDRAW: enum mr_withdraw_flags
    uint64_t token; // PROMOTE, in an arena of a lane: see struct mr_resume
  };
};

enum mr_arena_flags {
  MR_WITH_LANE = 1, // the other party is a lane of the daemon; the program is party 0
};

enum mr_withdraw_flags {
  MR_LEAVES_REST = 1, // the lane sends what the ring still has
  MR_WAS_BULK = 2,    // the lane left it for that: enum mr_lost
};

enum mr_message_kind {
  // From the program.
  MR_HELLO = 1,    // first
  MR_OFFER = 2,    // with the socket: this connection may be promoted
  MR_WITHDRAW = 3, // the connection has ended, or has left its slot for good
  MR_LISTENS = 4,  // the program listens at the socket with this inode
  // From the daemon.
  MR_WELCOME = 16, // answers HELLO; with the desk
  MR_ARENA = 17,   // before its first PROMOTE; with the memory, our doorbell and theirs
  MR_PROMOTE = 18, // the other end was found: both use this slot of this arena
  MR_DECLINE = 19, // an OFFER is refused or forgotten: there is no room, or it is no such socket
  MR_DEMOTE = 20,  // go back to TCP, then WITHDRAW
  MR_FORGET = 21,  // this arena is not used any more: the other program has ended
  MR_TRIM = 22,    // rings of this arena that are idle give their pages back
};

// The sign: a UDP socket is connected to here, which sends nothing. So the kernel's hook knows that
// the process has the library and a daemon (bpf/steer.bpf.h has the same numbers).
enum { MR_SIGN_ADDRESS = 0x7f4d5231, MR_SIGN_PORT = 4799 };

// The desk: one page that the daemon writes and the program reads. Each message to the program
// counts `news` up, so that a busy program sees by one load that there is one.
struct mr_desk {
  _Atomic uint32_t news;
};

// An arena: memory that two parties share, and nobody else. Either may write all of it, so neither
// believes what it reads there: positions that matter have a private copy, and offsets into a ring
// are masked by its size.
enum { MR_SLOTS = 64, MR_RINGS_OFFSET = 64 * 1024 };

// Rung by one party, heard by the other.
struct mr_doorbell {
  // Bit n: slot n has news. Set by the other party after it changed the slot; exchanged for 0 here.
  _Alignas(64) _Atomic uint64_t ready;
  // 1: about to sleep; whoever rings exchanges it for 0 and writes the eventfd if it was 1.
  _Alignas(64) _Atomic uint32_t asleep;
};

// One direction of a connection. Positions count the bytes of the TCP stream in this direction from
// its first one. `from` and `until` hold a position plus one, so that 0 says "none"; `written`,
// `base` and `read` are the low 32 bits of positions, which are never a ring's size apart.
struct mr_flow {
  // Written by the writer, but for the compare-and-exchange of `from` and `until`.
  _Alignas(64) _Atomic uint32_t written; // the position after the last byte in the ring
  _Atomic uint32_t base;                 // the position that is at offset 0 of the ring
  _Atomic uint64_t from;                 // bytes from here on are in the ring
  _Atomic uint64_t until;                // bytes from here on are on TCP again
  _Atomic uint32_t wants_room;           // the writer waits for room
  _Atomic uint32_t is_shut;              // the writer sends no more, but may still read
  // the writer demotes: the reader takes back what it has not read
  _Atomic uint32_t wants_back;
  _Atomic uint32_t is_lost; // no more bytes come by this ring, but by TCP: enum mr_lost
  // Written by the reader, but for the first `read`, which is where the ring begins.
  _Alignas(64) _Atomic uint32_t read; // the position after the last byte that was taken
  _Atomic uint32_t looks;             // 1: the reader looks into the ring, so `from` may be set
  _Atomic uint32_t is_gone;           // the reader has closed the connection
};

enum mr_lost {
  MR_LOST = 1,
  MR_LOST_BULK = 2, // TCP alone is faster for what the connection moves
};

// Flags of `from`.
// the reader has noticed: it reads TCP up to there and no further
#define MR_SEEN (UINT64_C(1) << 63)
#define MR_RETRACTED (UINT64_C(1) << 62) // the bytes of the ring go by TCP after all
// Flag of `until`: the reader decided it. Bytes from there on that are in the ring go by TCP as
// well.
#define MR_TAKEN_BACK (UINT64_C(1) << 63)
// With it, on one host: the writer sends them. Without it the reader may still change its mind.
#define MR_ANSWERED (UINT64_C(1) << 62)
#define MR_POSITION (MR_RETRACTED - 1)

struct mr_slot {
  struct mr_flow flow[2]; // flow[p] is written by party p
};

// Ring of party p in slot s: at MR_RINGS_OFFSET + (2 * s + p) * ring size.
struct mr_arena {
  struct mr_doorbell doorbell[2]; // doorbell[p] is heard by party p
  struct mr_slot slot[MR_SLOTS];
};

// Through an arena of a lane, bytes go to a program of another host: two lanes mirror two slots.
// When one of them stops, the two programs go on over TCP without them. What a writer sends there
// first, after the bytes before the ring, is this; then all bytes from `position` on, of which the
// reader skips those that it has.
struct mr_resume {
  uint64_t token; // known to the two ends of the connection only
  uint64_t position;
  uint64_t flags; // enum mr_resume_flags
};

enum mr_resume_flags {
  MR_RESUME_CLOSED = 1, // the writer has closed the connection: it does not read any more
  MR_RESUME_BOTH = 2,   // it does not read its ring any more either: the other way goes by TCP, too
};

_Static_assert(sizeof(struct mr_message) == 32, "a message has 32 bytes");
_Static_assert(sizeof(struct mr_slot) == 256, "a slot has four cache lines");
_Static_assert(sizeof(struct mr_arena) <= MR_RINGS_OFFSET, "the rings come after all words");

#endif
