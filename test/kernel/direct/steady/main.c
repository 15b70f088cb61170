// Connections that stay open, with a thread for each, every byte of which is checked: whatever
// happens to daemons meanwhile, the same connections go on.
//
//   steady serve PORT: sends back what comes.
//   steady call ADDRESS PORT CONNECTIONS [MOST]: sends messages of up to MOST bytes, and compares
//   what comes back. It obeys lines on its standard input: `rest` and `go`, `stop`. It says
//   `resting` when no message is on its way, and `exact BYTES` in the end.
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

// The pause leaves processors to daemons that start.
enum { MOST = 200000, PIECE = 65536, PAUSE_US = 500 };

static void require(int is_right, const char *what) {
  if (is_right) return;
  fprintf(stderr, "%s: %s\n", what, strerror(errno));
  exit(1);
}

static void send_all(int fd, const unsigned char *bytes, size_t size) {
  for (size_t done = 0; done < size;) {
    const ssize_t sent = send(fd, bytes + done, size - done, MSG_NOSIGNAL);
    require(sent > 0, "send");
    done += (size_t)sent;
  }
}

// The server

static void *echo(void *argument) {
  const int fd = (int)(long)argument;
  unsigned char *bytes = malloc(PIECE);
  for (;;) {
    const ssize_t got = recv(fd, bytes, PIECE, 0);
    require(got >= 0, "recv");
    if (got == 0) break;
    send_all(fd, bytes, (size_t)got);
  }
  free(bytes);
  close(fd);
  return NULL;
}

static void begin_thread(void *(*run)(void *), void *argument) {
  pthread_t thread;
  require(pthread_create(&thread, NULL, run, argument) == 0, "thread");
  pthread_detach(thread);
}

static void serve(const char *port) {
  struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
  const int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
  require(bind(listener, (struct sockaddr *)&here, sizeof(here)) == 0 && listen(listener, 64) == 0, "listen");
  for (;;) {
    const int fd = accept(listener, NULL, NULL);
    require(fd >= 0, "accept");
    begin_thread(echo, (void *)(long)fd);
  }
}

// The client

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int is_resting, is_ending;
static int busy;
static size_t exact, most = MOST;
static struct sockaddr_in target;

static uint32_t next(uint32_t *state) {
  *state ^= *state << 13;
  *state ^= *state >> 17;
  *state ^= *state << 5;
  return *state;
}

// Most messages are small.
static size_t size_of(uint32_t lot) {
  const size_t largest = lot % 8 == 0 ? most : most < 2000 ? most : 2000;
  return 1 + (lot >> 3) % largest;
}

static void converse(int fd, uint32_t *state, unsigned char *sent, unsigned char *back) {
  const size_t size = size_of(next(state));
  const uint32_t seed = next(state);
  for (size_t i = 0; i < size; i++)
    sent[i] = (unsigned char)((seed >> (i & 15)) + i * 131);
  send_all(fd, sent, size);
  for (size_t done = 0; done < size;) {
    const ssize_t got = recv(fd, back + done, size - done, 0);
    if (got == 0) errno = EPIPE;
    require(got > 0, "recv");
    done += (size_t)got;
  }
  for (size_t i = 0; i < size; i++) {
    if (sent[i] == back[i]) continue;
    fprintf(stderr, "byte %zu of %zu is wrong\n", i, size);
    exit(1);
  }
  pthread_mutex_lock(&lock);
  exact += size;
  pthread_mutex_unlock(&lock);
}

// False at the end.
static int may_go_on(void) {
  pthread_mutex_lock(&lock);
  if (is_resting && --busy == 0) pthread_cond_broadcast(&changed);
  const int has_rested = is_resting;
  while (is_resting)
    pthread_cond_wait(&changed, &lock);
  if (has_rested) busy++;
  const int goes_on = !is_ending;
  if (!goes_on && --busy == 0) pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
  return goes_on;
}

static void *call(void *argument) {
  uint32_t state = 1 + (uint32_t)(long)argument;
  unsigned char *sent = malloc(most), *back = malloc(most);
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  require(connect(fd, (struct sockaddr *)&target, sizeof(target)) == 0, "connect");
  while (may_go_on()) {
    converse(fd, &state, sent, back);
    usleep(PAUSE_US);
  }
  close(fd);
  free(sent);
  free(back);
  return NULL;
}

static void await_quiet(void) {
  while (busy > 0)
    pthread_cond_wait(&changed, &lock);
}

static void obey(const char *order) {
  pthread_mutex_lock(&lock);
  if (strcmp(order, "rest\n") == 0) {
    is_resting = 1;
    await_quiet();
    printf("resting\n");
  } else if (strcmp(order, "go\n") == 0) {
    is_resting = 0;
    pthread_cond_broadcast(&changed);
  } else {
    is_ending = 1;
    is_resting = 0;
    pthread_cond_broadcast(&changed);
    await_quiet();
    printf("exact %zu\n", exact);
  }
  fflush(stdout);
  pthread_mutex_unlock(&lock);
}

static void call_all(const char *address, const char *port, int connections) {
  target = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
  require(inet_pton(AF_INET, address, &target.sin_addr) == 1, "address");
  busy = connections;
  for (long i = 0; i < connections; i++)
    begin_thread(call, (void *)i);
  char order[16];
  while (!is_ending && fgets(order, sizeof(order), stdin) != NULL)
    obey(order);
}

int main(int count, char **words) {
  if (count == 3) serve(words[2]);
  require(count == 5 || count == 6, "steady serve PORT | steady call ADDRESS PORT CONNECTIONS [MOST]");
  if (count == 6) most = (size_t)atol(words[5]);
  call_all(words[2], words[3], atoi(words[4]));
  return 0;
}
