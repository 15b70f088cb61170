// What both ends of a behaviour share: the connection, what was observed on it, and streams whose
// every byte is known.
#pragma once

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

// Nobody listens here. Behaviours follow in the order of the table: a connection's port says what
// will happen on it.
enum { CLOSED_PORT = 7099, FIRST_PORT = 7100, CROWD_PORT = 7300, UNACCEPTED_PORT = 7310, PASSING_PORT = 7320 };
enum { CROWD_PORTS = 4 };
// Nothing takes longer; what does is said and is a difference.
enum { TIMEOUT_MS = 10000, BEHAVIOUR_SECONDS = 25 };

// One end of a connection. The server's is accepted already; the client opens its own.
struct talk {
  int fd;
  struct sockaddr_storage to;   // the client's: where the server is
  struct sockaddr_storage from; // the server's: what accept() said
  size_t length;
  char said[2000];
};

struct behaviour {
  const char *name;
  void (*client)(struct talk *talk);
  void (*server)(struct talk *talk); // none when the crowd's server or nobody answers
  bool is_dual;                      // the server has one socket for both families
};

extern const struct behaviour stream_behaviours[], ending_behaviours[], reading_behaviours[], connecting_behaviours[],
    crowd_behaviours[];

// Adds to what was observed.
__attribute__((format(printf, 2, 3))) void say(struct talk *talk, const char *format, ...);
// The count of a call that succeeded, the name of the error of one that did not.
const char *outcome(ssize_t result);
const char *name_of_error(int error);
const char *name_of_address(const struct sockaddr_storage *address, char text[80]);

socklen_t length_of(const struct sockaddr_storage *address);
struct sockaddr_storage at_port(const struct sockaddr_storage *address, int port);
// A socket of the right family that never waits longer than TIMEOUT_MS.
int open_socket(const struct talk *talk);
void limit_waits(int fd);
// Connects, or says why not.
bool dial(struct talk *talk);
int listen_at(int family, int port, bool is_dual);

// One byte to keep both ends in step.
void nudge(struct talk *talk);
bool await_nudge(struct talk *talk);
// True once that many bytes wait to be read.
bool await_queued(struct talk *talk, int size_bytes);
// What poll() found, in words.
const char *polled(int fd, short events, int timeout_ms);
long now_ms(void);
void pause_ms(int duration_ms);

// Every byte follows from its position and the seed of its direction.
enum { UPWARD = 11, DOWNWARD = 23 };
void fill(uint8_t *bytes, size_t size_bytes, uint64_t position, uint64_t seed);
bool is_filled(const uint8_t *bytes, size_t size_bytes, uint64_t position, uint64_t seed);
uint32_t next_random(uint32_t *state);
// Sends so much in pieces of random size. Says what went wrong.
bool send_stream(struct talk *talk, size_t size_bytes, uint64_t seed);
// Reads to the end and says how much came, whether it was right, and how it ended.
void read_stream(struct talk *talk, uint64_t seed);
// A file in memory with the stream's bytes.
int stream_file(size_t size_bytes, uint64_t seed);

void serve_crowd(void);
