// A program that ends with bytes on their way, and one that reads them later.
//
//   killed kill|close|shut|exit ADDRESS PORT BYTES: exchanges messages until there is a line on its
//   standard input, writes as much of BYTES as is taken without waiting, says how much that was, and
//   ends so.
//   killed receive PORT: answers the messages, waits for a line on its standard input, reads to the
//   end, and says how much came, whether it was right, and how it ended.
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MESSAGE = 'm', LAST_MESSAGE = 'l', PAUSE_MS = 5 };

static void require(int is_right, const char *what) {
  if (is_right) return;
  perror(what);
  exit(1);
}

static unsigned char byte_at(size_t position) {
  return (unsigned char)(position * 131 + (position >> 9));
}

static void send_all(const char *how, const char *address, const char *port, size_t bytes) {
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
  require(inet_pton(AF_INET, address, &to.sin_addr) == 1, "address");
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  require(connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0, "connect");
  struct pollfd order = {.fd = STDIN_FILENO, .events = POLLIN};
  char byte;
  do {
    byte = poll(&order, 1, PAUSE_MS) == 0 ? MESSAGE : LAST_MESSAGE;
    require(send(fd, &byte, 1, 0) == 1 && recv(fd, &byte, 1, 0) == 1, "message");
  } while (byte != LAST_MESSAGE);
  unsigned char *all = malloc(bytes);
  for (size_t i = 0; i < bytes; i++)
    all[i] = byte_at(i);
  size_t done = 0;
  while (done < bytes) {
    const ssize_t sent = send(fd, all + done, bytes - done, MSG_DONTWAIT);
    if (sent < 0 && errno == EAGAIN) break;
    require(sent > 0, "send");
    done += (size_t)sent;
  }
  printf("sent %zu\n", done);
  fflush(stdout);
  if (strcmp(how, "kill") == 0) raise(SIGKILL);
  if (strcmp(how, "close") == 0) require(close(fd) == 0, "close");
  if (strcmp(how, "shut") == 0) {
    require(shutdown(fd, SHUT_WR) == 0, "shutdown");
    require(recv(fd, &byte, 1, 0) == 0, "recv");
  }
  exit(0);
}

static void receive_all(const char *port) {
  struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
  const int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
  require(bind(listener, (struct sockaddr *)&here, sizeof(here)) == 0 && listen(listener, 1) == 0, "listen");
  const int fd = accept(listener, NULL, NULL);
  require(fd >= 0, "accept");
  char byte, line[16];
  do
    require(recv(fd, &byte, 1, 0) == 1 && send(fd, &byte, 1, 0) == 1, "message");
  while (byte != LAST_MESSAGE);
  require(fgets(line, sizeof(line), stdin) != NULL, "order");
  static unsigned char buffer[65536];
  size_t done = 0;
  int is_right = 1;
  ssize_t got;
  while ((got = recv(fd, buffer, sizeof(buffer), 0)) > 0)
    for (ssize_t i = 0; i < got; i++)
      is_right = is_right && buffer[i] == byte_at(done++);
  printf("received %zu %s %s\n", done, is_right ? "right" : "wrong", got == 0 ? "end" : strerror(errno));
}

int main(int count, char **words) {
  if (count == 5) send_all(words[1], words[2], words[3], (size_t)atol(words[4]));
  require(count == 3, "killed kill|close|shut|exit ADDRESS PORT BYTES | killed receive PORT");
  receive_all(words[2]);
}
