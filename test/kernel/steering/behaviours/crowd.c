// Behaviours of many connections at once, and the server that answers them: each answer names the
// listener it came from.

#include "talk.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { SHORT = 1000, BURST = 10000, OPEN = 5000, THREADS = 8, PER_THREAD = 50, MESSAGE_BYTES = 16 };
enum { CROWD_FDS = 20000 };

// By descriptor: the number of the listener that accepted it, or that it is.
static uint8_t listeners[CROWD_FDS];
static bool listens[CROWD_FDS];

static void admit(int poller, int listener) {
  int fd;
  while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    listeners[fd] = listeners[listener];
    listens[fd] = false;
    epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event);
  }
}

static void answer(int fd) {
  char message[MESSAGE_BYTES];
  // Short messages on an empty connection come and go as a whole.
  const ssize_t got = recv(fd, message, sizeof(message), 0);
  if (got == MESSAGE_BYTES) {
    message[0] = (char)('0' + listeners[fd]);
    if (send(fd, message, sizeof(message), MSG_NOSIGNAL) == MESSAGE_BYTES) return;
  } else if (got < 0 && errno == EAGAIN) {
    return;
  }
  close(fd);
}

static void *serve(void *argument) {
  const int poller = epoll_create1(EPOLL_CLOEXEC);
  for (int listener = 0; listener < CROWD_PORTS; listener++) {
    for (int i = 0; i < 2; i++) {
      const int fd = listen_at(i == 0 ? AF_INET : AF_INET6, CROWD_PORT + listener, false);
      struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
      fcntl(fd, F_SETFL, O_NONBLOCK);
      listeners[fd] = (uint8_t)listener;
      listens[fd] = true;
      epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event);
    }
  }
  pthread_barrier_wait(argument);
  for (;;) {
    struct epoll_event events[256];
    const int ready = epoll_wait(poller, events, 256, -1);
    for (int i = 0; i < ready; i++) {
      if (listens[events[i].data.fd])
        admit(poller, events[i].data.fd);
      else
        answer(events[i].data.fd);
    }
  }
  return NULL;
}

void serve_crowd(void) {
  static pthread_barrier_t ready;
  pthread_t thread;
  pthread_barrier_init(&ready, NULL, 2);
  if (pthread_create(&thread, NULL, serve, &ready) != 0) exit(1);
  pthread_barrier_wait(&ready);
}

static void write_question(char message[MESSAGE_BYTES], int number) {
  memset(message, 0, MESSAGE_BYTES);
  snprintf(message, MESSAGE_BYTES, "?%d", number);
}

static bool is_answer(const char message[MESSAGE_BYTES], int number) {
  char expected[MESSAGE_BYTES];
  write_question(expected, number);
  expected[0] = (char)('0' + number % CROWD_PORTS);
  return memcmp(message, expected, MESSAGE_BYTES) == 0;
}

static int connect_one(const struct talk *talk, int number, int flags) {
  const struct sockaddr_storage there = at_port(&talk->to, CROWD_PORT + number % CROWD_PORTS);
  const int fd = open_socket(talk);
  fcntl(fd, F_SETFL, flags);
  if (connect(fd, (const struct sockaddr *)&there, length_of(&there)) == 0 || errno == EINPROGRESS) return fd;
  close(fd);
  return -1;
}

// One question and its answer. 0 when all was right.
static int ask(int fd, int number) {
  char message[MESSAGE_BYTES];
  write_question(message, number);
  if (send(fd, message, sizeof(message), MSG_NOSIGNAL) != MESSAGE_BYTES) return errno;
  if (recv(fd, message, sizeof(message), MSG_WAITALL) != MESSAGE_BYTES) return errno ? errno : ENODATA;
  return is_answer(message, number) ? 0 : EBADMSG;
}

static int converse(const struct talk *talk, int number) {
  const int fd = connect_one(talk, number, 0);
  if (fd < 0) return errno;
  const int error = ask(fd, number);
  close(fd);
  return error;
}

static void short_client(struct talk *talk) {
  int right = 0, error = 0;
  const long start_ms = now_ms();
  for (int i = 0; i < SHORT; i++) {
    const int failure = converse(talk, i);
    right += failure == 0;
    if (failure != 0) error = failure;
  }
  fprintf(stderr, "short took %ld ms\n", now_ms() - start_ms);
  say(talk, "%d of %d right, %s", right, SHORT, name_of_error(error));
}

struct worker {
  const struct talk *talk;
  int first;
  atomic_int *right;
};

static void *work(void *argument) {
  const struct worker *worker = argument;
  for (int i = 0; i < PER_THREAD; i++)
    *worker->right += converse(worker->talk, worker->first + i) == 0;
  return NULL;
}

static void threads_client(struct talk *talk) {
  pthread_t threads[THREADS];
  struct worker workers[THREADS];
  atomic_int right = 0;
  for (int i = 0; i < THREADS; i++) {
    workers[i] = (struct worker){.talk = talk, .first = i * PER_THREAD, .right = &right};
    if (pthread_create(&threads[i], NULL, work, &workers[i]) != 0) exit(1);
  }
  for (int i = 0; i < THREADS; i++)
    pthread_join(threads[i], NULL);
  say(talk, "%d of %d right", right, THREADS * PER_THREAD);
}

// Connects them all before looking at any; each is closed as soon as it has its answer.
static void burst_client(struct talk *talk) {
  static int numbers[CROWD_FDS];
  const int poller = epoll_create1(EPOLL_CLOEXEC);
  int left = 0, right = 0, error = 0;
  const long start_ms = now_ms();
  for (int i = 0; i < BURST; i++) {
    const int fd = connect_one(talk, i, O_NONBLOCK);
    if (fd < 0) {
      error = errno;
      continue;
    }
    struct epoll_event event = {.events = EPOLLOUT, .data.fd = fd};
    numbers[fd] = i;
    left++;
    epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event);
  }
  fprintf(stderr, "burst began %d connects in %ld ms\n", BURST, now_ms() - start_ms);
  while (left > 0) {
    struct epoll_event events[256];
    const int ready = epoll_wait(poller, events, 256, TIMEOUT_MS);
    if (ready <= 0) break;
    for (int i = 0; i < ready; i++) {
      const int fd = events[i].data.fd;
      char message[MESSAGE_BYTES];
      int failure = 0;
      if (events[i].events == EPOLLOUT) {
        struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
        write_question(message, numbers[fd]);
        if (send(fd, message, sizeof(message), MSG_NOSIGNAL) == MESSAGE_BYTES) {
          epoll_ctl(poller, EPOLL_CTL_MOD, fd, &event);
          continue;
        }
        failure = errno;
      } else if (recv(fd, message, sizeof(message), 0) != MESSAGE_BYTES) {
        failure = errno ? errno : ENODATA;
      } else if (!is_answer(message, numbers[fd])) {
        failure = EBADMSG;
      }
      right += failure == 0;
      if (failure != 0) error = failure;
      left--;
      close(fd);
    }
  }
  fprintf(stderr, "burst took %ld ms\n", now_ms() - start_ms);
  say(talk, "%d of %d right, %d without an answer, %s", right, BURST, left, name_of_error(error));
  close(poller);
}

static void open_client(struct talk *talk) {
  static int fds[OPEN];
  int opened = 0, right = 0;
  const long start_ms = now_ms();
  for (; opened < OPEN; opened++) {
    fds[opened] = connect_one(talk, opened, 0);
    if (fds[opened] < 0) break;
  }
  say(talk, "%d of %d open", opened, OPEN);
  for (int round = 0; round < 2; round++) {
    right = 0;
    for (int i = 0; i < opened; i++)
      right += ask(fds[i], i) == 0;
    say(talk, "%d answered", right);
  }
  fprintf(stderr, "open took %ld ms\n", now_ms() - start_ms);
  for (int i = 0; i < opened; i++)
    close(fds[i]);
}

const struct behaviour crowd_behaviours[] = {
    {"threads", threads_client, NULL, false},
    {"short", short_client, NULL, false},
    {"burst", burst_client, NULL, false},
    {"open", open_client, NULL, false},
    {0},
};
