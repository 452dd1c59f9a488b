#include "rt/heartbeat.h"

#include "base/str.h"
#include "base/thread.h"
#include "comm/world.h"
#include "rt/progress_record.h"

#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* The connection to the supervisor: the thread's, until it has ended. */
typedef struct {
  int fd, interval_ms;
  uint64_t key;
  pthread_t thread;
  _Atomic bool stop;
  progress_place last;
  double since_s[STREAM_COUNT], quiet_s; /* when a stream, and all of it, last changed */
} connection;
static connection *supervised; /* NULL: nobody listens */

/* --- where it is ------------------------------------------------------------------------------ */

static void look(connection *l) {
  progress_place now;
  double t = time_now_s();
  progress_record_read(&now);
  bool same = now.runs == l->last.runs;
  for (int s = 0; s < STREAM_COUNT; s++) {
    if (same && now.at[s] == l->last.at[s]) continue;
    l->since_s[s] = l->quiet_s = t;
  }
  if (!same) l->quiet_s = t;
  l->last = now;
}

/* The stream that has stood still for longest; one that computes before one that waits for other
 * processes, which may be for what this one does not finish. */
static int stillest(const connection *l, bool waits) {
  int best = -1;
  for (int s = 0; s < STREAM_COUNT; s++) {
    if (l->last.at[s] == PROG_NONE) continue;
    bool better = best < 0 || (waits && best == STREAM_COMM) ||
                  (l->since_s[s] < l->since_s[best] && !(waits && s == STREAM_COMM));
    if (better) best = s;
  }
  return best;
}

static void tell_place(const connection *l, heartbeat *b) {
  int waits_for = world_waits_for(), s = stillest(l, waits_for >= 0);
  str text = {0};
  bool computes = s == STREAM_COMPUTE && l->last.at[STREAM_COMM] != PROG_NONE;
  b->runs = l->last.runs;
  b->waits_for = computes ? -1 : waits_for;
  b->instruction = -1;
  b->still_s = time_now_s() - (s < 0 ? l->quiet_s : l->since_s[s]);
  if (s < 0) return;
  b->instruction = (int32_t)l->last.at[s];
  snprintf(b->stream, sizeof b->stream, "%s", stream_name((uint32_t)s));
  progress_record_print(l->last.at[s], &text);
  snprintf(b->text, sizeof b->text, "%.*s", (int)strcspn(text.at ? text.at : "", "\n"),
           text.at ? text.at : "");
  str_free(&text);
}

/* --- the connection --------------------------------------------------------------------------- */

static bool send_heartbeat(connection *l, heartbeat_kind kind, int code) {
  const world_facts *w = world_get();
  heartbeat b = {.key = l->key, .kind = kind, .rank = w->rank, .pid = getpid(), .code = code};
  memcpy(b.host, w->host, sizeof b.host);
  look(l);
  tell_place(l, &b);
  for (size_t sent = 0; sent < sizeof b;) {
    ssize_t n = send(l->fd, (char *)&b + sent, sizeof b - sent, MSG_NOSIGNAL);
    if (n <= 0) return false;
    sent += (size_t)n;
  }
  return true;
}

/* A process whose supervisor is gone ends as if it had been asked to. */
static void *heartbeat_main(void *arg) {
  connection *l = arg;
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, NULL); /* signals are the caller's */
  while (!l->stop) {
    unsigned char number;
    struct pollfd p = {.fd = l->fd, .events = POLLIN};
    bool there = send_heartbeat(l, HEARTBEAT_ALIVE, 0);
    if (poll(&p, 1, l->interval_ms) > 0) {
      ssize_t n = recv(l->fd, &number, 1, 0);
      if (n == 1) kill(getpid(), number);
      else there = false;
    }
    if (!there && !l->stop) {
      kill(getpid(), SIGTERM);
      break;
    }
  }
  return NULL;
}

static int connect_to(const char *host, const char *port) {
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *all = NULL;
  int fd = -1;
  if (getaddrinfo(host, port, &hints, &all)) return -1;
  for (struct addrinfo *a = all; a && fd < 0; a = a->ai_next) {
    fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, 0);
    if (fd < 0 || !connect(fd, a->ai_addr, a->ai_addrlen)) continue;
    close(fd);
    fd = -1;
  }
  freeaddrinfo(all);
  return fd;
}

hp_status heartbeat_begin(void) {
  const char *where = getenv(HEARTBEAT_VARIABLE);
  char host[128], port[16];
  unsigned long long key;
  int interval;
  if (!where || supervised) return HP_OK;
  if (sscanf(where, "%127[^:]:%15[0-9]:%llx:%d", host, port, &key, &interval) != 4)
    HP_FAIL(HP_ERR_ARG, HEARTBEAT_VARIABLE "=%s: expected HOST:PORT:KEY:MILLISECONDS", where);
  connection *l = mem_calloc(1, sizeof *l);
  HP_TRY_MEM(l);
  *l = (connection){.interval_ms = interval, .key = key, .quiet_s = time_now_s()};
  l->fd = connect_to(host, port);
  if (l->fd < 0 || pthread_create(&l->thread, NULL, heartbeat_main, l)) {
    mem_free(l);
    HP_FAIL(HP_ERR_COMM,
            "the supervisor of the job cannot be reached at %s:%s; --watchdog 0 does without it",
            host, port);
  }
  supervised = l;
  return HP_OK;
}

void heartbeat_end(int code) {
  connection *l = supervised;
  if (!l) return;
  supervised = NULL;
  l->stop = true;
  shutdown(l->fd, SHUT_RD);
  pthread_join(l->thread, NULL);
  send_heartbeat(l, HEARTBEAT_END, code);
  close(l->fd);
  mem_free(l);
}
