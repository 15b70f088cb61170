// Runs socket behaviours by name and prints what was observed, so that two ways of carrying a
// connection can be compared.
//
//   behaviours list                     name, port, and how many lines the server prints of it
//   behaviours server                   "ready", then a line for each connection
//   behaviours client ADDRESS NAME…     a line for each name

#include "talk.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static const struct behaviour *const tables[] = {stream_behaviours, ending_behaviours, reading_behaviours,
                                                 connecting_behaviours, crowd_behaviours};
enum { TABLES = sizeof(tables) / sizeof(tables[0]) };

// The behaviour at that place of all tables, or null after the last.
static const struct behaviour *at(int index) {
  for (int i = 0; i < TABLES; i++) {
    for (const struct behaviour *one = tables[i]; one->name; one++) {
      if (index-- == 0) return one;
    }
  }
  return NULL;
}

static void list(void) {
  const struct behaviour *one;
  for (int i = 0; (one = at(i)); i++)
    printf("%s %d %d\n", one->name, FIRST_PORT + i, one->server ? 1 : 0);
}

struct listener {
  const struct behaviour *behaviour;
  int fd;
};

static void *serve(void *argument) {
  const struct listener *listener = argument;
  for (;;) {
    struct talk talk = {0};
    socklen_t length = sizeof(talk.from);
    talk.fd = accept(listener->fd, (struct sockaddr *)&talk.from, &length);
    if (talk.fd < 0) continue;
    limit_waits(talk.fd);
    listener->behaviour->server(&talk);
    if (talk.fd >= 0) close(talk.fd);
    printf("%s: %s\n", listener->behaviour->name, talk.said);
  }
  return NULL;
}

static void start(const struct behaviour *behaviour, int family, int port) {
  struct listener *listener = malloc(sizeof(*listener));
  pthread_t thread;
  if (!listener) exit(1);
  *listener = (struct listener){.behaviour = behaviour, .fd = listen_at(family, port, behaviour->is_dual)};
  if (pthread_create(&thread, NULL, serve, listener) != 0) exit(1);
}

static void run_server(void) {
  const struct behaviour *one;
  // sendfile() and splice() have no flag against it.
  signal(SIGPIPE, SIG_IGN);
  for (int i = 0; (one = at(i)); i++) {
    if (!one->server) continue;
    if (!one->is_dual) start(one, AF_INET, FIRST_PORT + i);
    start(one, AF_INET6, FIRST_PORT + i);
  }
  listen_at(AF_INET, UNACCEPTED_PORT, false);
  listen_at(AF_INET6, UNACCEPTED_PORT, false);
  serve_crowd();
  puts("ready");
  for (;;)
    pause();
}

static void give_up(int signal) {
  static const char said[] = "timed out\n";
  (void)signal;
  if (write(STDOUT_FILENO, said, sizeof(said) - 1) < 0) _exit(4);
  _exit(3);
}

static int run_client(const struct sockaddr_storage *to, const char *name) {
  const struct behaviour *one;
  for (int i = 0; (one = at(i)); i++) {
    if (strcmp(one->name, name) != 0) continue;
    struct talk talk = {.fd = -1, .to = at_port(to, FIRST_PORT + i)};
    alarm(BEHAVIOUR_SECONDS);
    one->client(&talk);
    alarm(0);
    if (talk.fd >= 0) close(talk.fd);
    printf("%s: %s\n", name, talk.said);
    return 0;
  }
  fprintf(stderr, "no behaviour %s\n", name);
  return 2;
}

static bool parse_address(const char *text, struct sockaddr_storage *address) {
  struct sockaddr_in *v4 = (void *)address;
  struct sockaddr_in6 *v6 = (void *)address;
  address->ss_family = strchr(text, ':') ? AF_INET6 : AF_INET;
  void *bytes = address->ss_family == AF_INET ? (void *)&v4->sin_addr : (void *)&v6->sin6_addr;
  return inet_pton(address->ss_family, text, bytes) == 1;
}

int main(int count, char **words) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  struct rlimit files;
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  struct sockaddr_storage to = {0};
  if (count == 2 && strcmp(words[1], "list") == 0) {
    list();
    return 0;
  }
  if (count == 2 && strcmp(words[1], "server") == 0) run_server();
  if (count < 4 || strcmp(words[1], "client") != 0 || !parse_address(words[2], &to)) {
    fprintf(stderr, "usage: behaviours list | server | client ADDRESS NAME...\n");
    return 2;
  }
  signal(SIGALRM, give_up);
  int status = 0;
  for (int i = 3; i < count && status == 0; i++)
    status = run_client(&to, words[i]);
  return status;
}
