// What attackers and their victims do, by the first word:
//
//   serve PORT                               tells each client under which address it was accepted, and on which port
//   check HOST PORT COUNT [SOURCE [SPORT]]   connects so often, and compares with what it meant and is; prints
//                                            "right N wrong N failed N ERROR"
//   late PORT                                listens; accepts one client only when told to, and prints its address
//   reset HOST PORT                          when told to, connects and resets at once; prints "done SPORT"
//   impostor HOST PORT                       listens there as soon as it can; prints "got" for each client
//   freeze THREAD                            stops a thread until its standard input ends
//   storm OWN HOST PORT LANE SECONDS SEED    binds, listens, connects and resets at random, from its own address OWN to
//                                            the server, to ports of lanes (from LANE on) and to nobody; prints how
//                                            often it did each
//
// Told to: a line on standard input.
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TEXT_BYTES = 80, ANSWER_BYTES = 100, TIMEOUT_S = 20 };

static void die(const char *what) {
  printf("%s: %s\n", what, strerror(errno));
  fflush(stdout);
  exit(1);
}

static struct sockaddr_storage address_of(const char *host, const char *port, socklen_t *size) {
  const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
  struct addrinfo *found;
  struct sockaddr_storage address = {};
  if (getaddrinfo(host, port, &hints, &found)) die(host);
  memcpy(&address, found->ai_addr, found->ai_addrlen);
  *size = found->ai_addrlen;
  freeaddrinfo(found);
  return address;
}

// "host port"; IPv4 addresses in IPv6 are shown as IPv4.
static void show(const struct sockaddr_storage *address, char text[TEXT_BYTES]) {
  char host[INET6_ADDRSTRLEN] = "?";
  int port = 0;
  if (address->ss_family == AF_INET) {
    const struct sockaddr_in *in = (const void *)address;
    inet_ntop(AF_INET, &in->sin_addr, host, sizeof(host));
    port = ntohs(in->sin_port);
  } else {
    const struct sockaddr_in6 *in6 = (const void *)address;
    if (IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr))
      inet_ntop(AF_INET, &in6->sin6_addr.s6_addr[12], host, sizeof(host));
    else
      inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof(host));
    port = ntohs(in6->sin6_port);
  }
  snprintf(text, TEXT_BYTES, "%s %d", host, port);
}

static int listen_at(const char *host, const char *port) {
  socklen_t size;
  const struct sockaddr_storage address = address_of(host, port, &size);
  const int listener = socket(address.ss_family, SOCK_STREAM, 0), on = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bind(listener, (const void *)&address, size) == 0 && listen(listener, 1024) == 0) return listener;
  close(listener);
  return -1;
}

static void wait_until_told(void) {
  char line[8];
  if (!fgets(line, sizeof(line), stdin)) exit(0);
}

static int say(const char *text) {
  printf("%s\n", text);
  return fflush(stdout);
}

static void serve(const char *port) {
  const int listener = listen_at("::", port);
  if (listener < 0) die("listen");
  say("listening");
  for (;;) {
    struct sockaddr_storage peer = {};
    socklen_t size = sizeof(peer);
    const int client = accept(listener, (void *)&peer, &size);
    if (client < 0) continue;
    char text[TEXT_BYTES], answer[ANSWER_BYTES];
    show(&peer, text);
    const int length = snprintf(answer, sizeof(answer), "%s to %s\n", text, port);
    if (send(client, answer, (size_t)length, MSG_NOSIGNAL) < 0) perror("send");
    close(client);
  }
}

// 1: right, 0: another address or server, -1: no answer, and errno says why.
static int check_once(const struct sockaddr_storage *to, socklen_t to_size, const char *port, const char *source,
                      const char *source_port) {
  const int client = socket(to->ss_family, SOCK_STREAM, 0), on = 1;
  const struct timeval timeout = {.tv_sec = TIMEOUT_S};
  const struct linger reset = {.l_onoff = 1};
  setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
  setsockopt(client, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
  setsockopt(client, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  setsockopt(client, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
  int result = -1;
  struct sockaddr_storage local = {};
  socklen_t size = 0;
  if (source) local = address_of(source, source_port, &size);
  if ((!source || bind(client, (const void *)&local, size) == 0) && connect(client, (const void *)to, to_size) == 0) {
    char told[ANSWER_BYTES] = "", text[TEXT_BYTES], mine[ANSWER_BYTES] = "";
    size_t length = 0;
    ssize_t got;
    while ((got = recv(client, told + length, sizeof(told) - 1 - length, 0)) > 0)
      length += (size_t)got;
    size = sizeof(local);
    getsockname(client, (void *)&local, &size);
    show(&local, text);
    snprintf(mine, sizeof(mine), "%s to %s\n", text, port);
    if (length > 0) result = strcmp(told, mine) == 0;
    if (length > 0 && !result) fprintf(stderr, "is %swas told %s", mine, told);
  }
  const int error = errno;
  close(client);
  errno = error;
  return result;
}

static void check(char **words) {
  socklen_t size;
  const struct sockaddr_storage to = address_of(words[0], words[1], &size);
  const char *source = words[3], *source_port = source && words[4] ? words[4] : "0";
  int right = 0, wrong = 0, failed = 0, last = 0;
  for (int i = atoi(words[2]); i > 0; i--) {
    errno = 0;
    const int result = check_once(&to, size, words[1], source, source_port);
    if (result < 0) last = errno;
    right += result == 1;
    wrong += result == 0;
    failed += result < 0;
  }
  printf("right %d wrong %d failed %d %s\n", right, wrong, failed, failed ? strerrorname_np(last) : "-");
}

static void late(const char *port) {
  const int listener = listen_at("::", port);
  if (listener < 0) die("listen");
  say("listening");
  wait_until_told();
  struct sockaddr_storage peer = {};
  socklen_t size = sizeof(peer);
  if (accept(listener, (void *)&peer, &size) < 0) die("accept");
  char text[TEXT_BYTES];
  show(&peer, text);
  printf("accepted %s\n", text);
}

static void reset_once(const char *host, const char *port) {
  socklen_t size;
  const struct sockaddr_storage to = address_of(host, port, &size);
  const struct linger reset = {.l_onoff = 1};
  say("ready");
  wait_until_told();
  const int client = socket(to.ss_family, SOCK_STREAM, 0);
  setsockopt(client, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
  if (connect(client, (const void *)&to, size)) die("connect");
  struct sockaddr_storage local = {};
  size = sizeof(local);
  getsockname(client, (void *)&local, &size);
  close(client);
  char text[TEXT_BYTES];
  show(&local, text);
  printf("done %s\n", text);
}

static void impostor(const char *host, const char *port) {
  int listener;
  say("trying");
  while ((listener = listen_at(host, port)) < 0)
    usleep(200);
  say("listening");
  for (;;) {
    const int client = accept(listener, NULL, NULL);
    if (client >= 0) say("got");
    close(client);
  }
}

// A thread that ends while it is frozen is gone only when its tracer has heard of it.
static void hear_end(int signal __attribute__((unused))) {
  const int error = errno;
  while (waitpid(-1, NULL, __WALL | WNOHANG) > 0)
    ;
  errno = error;
}

static void freeze(pid_t thread) {
  if (ptrace(PTRACE_SEIZE, thread, NULL, NULL) || ptrace(PTRACE_INTERRUPT, thread, NULL, NULL)) die("ptrace");
  if (waitpid(thread, NULL, __WALL) < 0) die("waitpid");
  const struct sigaction ended = {.sa_handler = hear_end, .sa_flags = SA_RESTART};
  sigaction(SIGCHLD, &ended, NULL);
  say("frozen");
  wait_until_told();
}

enum { STORM_KINDS = 8, LANE_PORTS = 4 };

static void aim(struct sockaddr_storage *address, int port) {
  if (address->ss_family == AF_INET)
    ((struct sockaddr_in *)address)->sin_port = htons((uint16_t)port);
  else
    ((struct sockaddr_in6 *)address)->sin6_port = htons((uint16_t)port);
}

// One step of a storm: a socket that does one of these things, and is closed in one of two ways.
static void storm_step(int kind, const char *own, const struct sockaddr_storage *server, socklen_t size, int lane) {
  const int client = socket(server->ss_family, SOCK_STREAM | SOCK_NONBLOCK, 0), on = 1;
  if (client < 0) return;
  const struct linger reset = {.l_onoff = rand() % 2};
  struct sockaddr_storage local = address_of(kind == 5 ? "127.0.0.1" : own, "0", &size), to = *server;
  setsockopt(client, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (rand() % 2) setsockopt(client, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on));
  setsockopt(client, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
  // Ports that others are given by the kernel, and those next to each other.
  if (kind != 0) aim(&local, 32768 + rand() % (rand() % 2 ? 28000 : 64));
  if (kind == 2) aim(&local, lane + rand() % LANE_PORTS);
  if (kind == 4) aim(&to, 1 + rand() % 65535);
  if (kind != 0 && bind(client, (const void *)&local, size)) kind = -1;
  if (kind == 1 || kind == 2) {
    if (listen(client, 8) == 0) usleep(rand() % 2000);
  } else if (kind >= 0) {
    char bytes[64] = "storm";
    if (kind == 3) {
      to = address_of(own, "0", &size);
      aim(&to, lane + rand() % LANE_PORTS);
    }
    if (connect(client, (const void *)&to, size) && errno == EINPROGRESS) usleep(rand() % 500);
    if (rand() % 2 && send(client, bytes, sizeof(bytes), MSG_NOSIGNAL) > 0) usleep(rand() % 500);
  }
  close(client);
}

static void storm(char **words) {
  socklen_t size;
  const struct sockaddr_storage server = address_of(words[1], words[2], &size);
  const time_t end = time(NULL) + atoi(words[4]);
  int done[STORM_KINDS] = {};
  srand((unsigned)atoi(words[5]));
  say("storming");
  while (time(NULL) < end) {
    const int kind = rand() % STORM_KINDS;
    storm_step(kind, words[0], &server, size, atoi(words[3]));
    done[kind]++;
  }
  printf("done");
  for (int i = 0; i < STORM_KINDS; i++)
    printf(" %d", done[i]);
  say("");
}

int main(int count, char **words) {
  signal(SIGPIPE, SIG_IGN);
  const char *what = count > 1 ? words[1] : "";
  if (!strcmp(what, "serve") && count == 3) serve(words[2]);
  if (!strcmp(what, "check") && count >= 5) check(words + 2);
  if (!strcmp(what, "late") && count == 3) late(words[2]);
  if (!strcmp(what, "reset") && count == 4) reset_once(words[2], words[3]);
  if (!strcmp(what, "impostor") && count == 4) impostor(words[2], words[3]);
  if (!strcmp(what, "storm") && count == 8) storm(words + 2);
  if (!strcmp(what, "freeze") && count == 3) freeze(atoi(words[2]));
  return 0;
}
