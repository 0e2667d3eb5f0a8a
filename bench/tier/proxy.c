/* A proxy before an object store that costs next to nothing, adds latency, and notes each request.
 *
 *     proxy PORT STOREPORT DELAY_US LOG     listens on PORT of 127.0.0.1 (0: any)
 *
 * tests-outside/proxy.py does the same with faults and in Python; at a GB/s that would be what is measured. Bodies pass
 * through a pipe by splice(2), so their bytes are not copied. Each request is passed on DELAY_US after it came. A line of
 * LOG for each, as it ends, with times of CLOCK_MONOTONIC:
 *
 *     METHOD STATUS came_us first_byte_us end_us bytes_in bytes_out target
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { HEAD_MAX = 64 * 1024, PIPE = 1 << 20 };

static int store_port, log_fd;
static long delay_us;

/* One end of a connection: what was read of it and not passed on yet. */
struct end {
  int fd;
  size_t have;
  char buf[HEAD_MAX + 1];
};

struct head {
  size_t len;   /* with the empty line; 0: the connection ended */
  int64_t body; /* bytes that follow; -1: in chunks */
};

static long long now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000LL + t.tv_nsec / 1000;
}

static int send_all(int fd, const char *from, size_t len) {
  while (len > 0) {
    ssize_t n = send(fd, from, len, MSG_NOSIGNAL);
    if (n <= 0) return -1;
    from += n, len -= (size_t)n;
  }
  return 0;
}

/* Reads until a whole head is there. */
static struct head read_head(struct end *from) {
  struct head head = {0, 0};
  for (;;) {
    from->buf[from->have] = 0;
    char *stop = from->have ? memmem(from->buf, from->have, "\r\n\r\n", 4) : NULL;
    if (stop) {
      head.len = (size_t)(stop - from->buf) + 4;
      char kept = *stop;
      *stop = 0;
      char *field = strcasestr(from->buf, "\ncontent-length:");
      if (field) head.body = atoll(field + 16);
      field = strcasestr(from->buf, "\ntransfer-encoding:");
      if (field && strcasestr(field, "chunked")) head.body = -1;
      *stop = kept;
      return head;
    }
    if (from->have == HEAD_MAX) return head;
    ssize_t n = recv(from->fd, from->buf + from->have, HEAD_MAX - from->have, 0);
    if (n <= 0) return head;
    from->have += (size_t)n;
  }
}

/* Passes on what is in the buffer, at most 'len' bytes; how many, or -1. */
static int64_t pass_held(struct end *from, int to, int64_t len) {
  size_t held = from->have < (size_t)len ? from->have : (size_t)len;
  if (held && send_all(to, from->buf, held)) return -1;
  memmove(from->buf, from->buf + held, from->have - held);
  from->have -= held;
  return (int64_t)held;
}

/* Passes on a body of 'len' bytes. */
static int pass(struct end *from, int to, int64_t len, int pipe[2]) {
  int64_t held = pass_held(from, to, len);
  if (held < 0) return -1;
  len -= held;
  while (len > 0) {
    ssize_t n = splice(from->fd, NULL, pipe[1], NULL, len < PIPE ? (size_t)len : PIPE, SPLICE_F_MOVE);
    if (n <= 0) return -1;
    len -= n;
    while (n > 0) {
      ssize_t out = splice(pipe[0], NULL, to, NULL, (size_t)n, SPLICE_F_MOVE | (len > 0 ? SPLICE_F_MORE : 0));
      if (out <= 0) return -1;
      n -= out;
    }
  }
  return 0;
}

/* Passes on a body in chunks: lists and errors, which are small. */
static int64_t pass_chunks(struct end *from, int to) {
  int64_t all = 0;
  for (;;) {
    char *line;
    while (!(line = memmem(from->buf, from->have, "\r\n", 2))) {
      ssize_t n = from->have < HEAD_MAX ? recv(from->fd, from->buf + from->have, HEAD_MAX - from->have, 0) : 0;
      if (n <= 0) return -1;
      from->have += (size_t)n;
    }
    int64_t size = strtoll(from->buf, NULL, 16), left = (line - from->buf) + 2 + size + 2;
    all += size;
    while (left > 0) {
      int64_t held = pass_held(from, to, left);
      if (held < 0) return -1;
      left -= held;
      if (left > 0 && from->have == 0) {
        ssize_t n = recv(from->fd, from->buf, HEAD_MAX, 0);
        if (n <= 0) return -1;
        from->have = (size_t)n;
      }
    }
    if (size == 0) return all;
  }
}

static int dial(void) {
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)store_port)};
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
  if (fd < 0 || connect(fd, (struct sockaddr *)&at, sizeof at)) return -1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  return fd;
}

/* One request and its answer; -1: the connection is not to be used any more. */
static int turn(struct end *client, struct end *store, int pipe[2]) {
  char method[16] = "", target[512] = "", line[768];
  struct head asked = read_head(client);
  if (!asked.len) return -1;
  long long came = now_us();
  sscanf(client->buf, "%15s %511s", method, target);
  target[strcspn(target, "?")] = client->buf[0] == 'G' && strstr(target, "list-type") ? '?' : 0;
  if (delay_us) usleep((useconds_t)delay_us);
  if (pass_held(client, store->fd, (int64_t)asked.len) < 0) return -1;
  int64_t in = asked.body;
  if (in < 0 ? (in = pass_chunks(client, store->fd)) < 0 : pass(client, store->fd, in, pipe)) return -1;
  struct head said = read_head(store);
  if (!said.len) return -1;
  long long first = now_us();
  int status = 0;
  sscanf(store->buf, "%*s %d", &status);
  int ends = strcasestr(store->buf, "\nconnection: close") != NULL;
  int64_t out = strcmp(method, "HEAD") && status != 204 && status != 304 ? said.body : 0;
  if (pass_held(store, client->fd, (int64_t)said.len) < 0) return -1;
  if (out < 0 ? (out = pass_chunks(store, client->fd)) < 0 : pass(store, client->fd, out, pipe)) return -1;
  int len = snprintf(line, sizeof line, "%s %d %lld %lld %lld %lld %lld %s\n", method, status, came, first, now_us(),
                     (long long)in, (long long)out, target);
  if (write(log_fd, line, (size_t)len) != len) return -1;
  return ends ? -1 : 0;
}

static void *serve(void *arg) {
  int fd = (int)(intptr_t)arg, pipe[2] = {-1, -1}, one = 1;
  struct end *client = calloc(1, sizeof *client), *store = calloc(1, sizeof *store);
  if (client && store && !pipe2(pipe, O_CLOEXEC)) {
    fcntl(pipe[0], F_SETPIPE_SZ, PIPE);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    client->fd = fd, store->fd = dial();
    while (store->fd >= 0 && !turn(client, store, pipe)) {
    }
    if (store->fd >= 0) close(store->fd);
    close(pipe[0]), close(pipe[1]);
  }
  close(fd);
  free(client), free(store);
  return NULL;
}

int main(int argc, char **argv) {
  if (argc != 5) return fputs("proxy PORT STOREPORT DELAY_US LOG\n", stderr), 2;
  signal(SIGPIPE, SIG_IGN);
  store_port = atoi(argv[2]), delay_us = atol(argv[3]);
  log_fd = open(argv[4], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[1]))};
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (log_fd < 0 || bind(listener, (struct sockaddr *)&at, sizeof at) || listen(listener, 1024)) {
    return perror("tier-proxy"), 1;
  }
  for (;;) {
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0 && errno != EINTR && errno != ECONNABORTED) return perror("tier-proxy: accept"), 1;
    pthread_t thread;
    if (fd >= 0 && pthread_create(&thread, NULL, serve, (void *)(intptr_t)fd)) close(fd);
    else if (fd >= 0) pthread_detach(thread);
  }
}
