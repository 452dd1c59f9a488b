#include "rt/heartbeat.h"

#include "base/milestone.h"
#include "base/str.h"
#include "base/thread.h"
#include "comm/world.h"
#include "rt/heartbeat_wire.h"
#include "rt/progress_record.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { GREET_S = 30, LAST_WORDS_S = 5 };

/* The connection to the supervisor; it belongs to the thread until that has ended. */
typedef struct {
  int fd, interval_ms;
  int wake; /* an eventfd that ends the thread */
  double patience_s;
  char host[64];
  wire_session session;
  pthread_t thread;
  _Atomic int rank; /* -1: not known yet */
  _Atomic bool joined;
  _Atomic int
      refused;       /* the code with which a signal handler ends the process; 0: no handler does */
  _Atomic bool told; /* the supervisor has received it */
  progress_place last;
  uint64_t work;                         /* of base/milestone.h */
  double since_s[STREAM_COUNT], quiet_s; /* last change of a stream, and of all of them */
  double looked_s;                       /* time of the last check */
  heartbeat out;                         /* partly sent */
  size_t unsent;
  heartbeat_order in; /* partly received */
  size_t got;
} connection;
static connection *supervised; /* NULL: no supervisor */

/* --- where it is ------------------------------------------------------------------------------ */

/* Time in which the process or its machine was stopped does not count as time without progress. */
static void forgive_stop(connection *l, double now_s) {
  double stopped_s = now_s - l->looked_s - l->interval_ms * 1e-3;
  if (stopped_s < 1) return; /* the check was only late */
  l->quiet_s += stopped_s;
  for (int s = 0; s < STREAM_COUNT; s++) l->since_s[s] += stopped_s;
}

static void look(connection *l) {
  progress_place now;
  double t = time_now_s();
  forgive_stop(l, t);
  l->looked_s = t;
  progress_record_read(&now);
  uint64_t work = milestone_get_work();
  bool same = now.runs == l->last.runs;
  for (int s = 0; s < STREAM_COUNT; s++) {
    if (same && now.at[s] == l->last.at[s]) continue;
    l->since_s[s] = l->quiet_s = t;
  }
  if (!same || work != l->work) l->quiet_s = t;
  l->work = work;
  l->last = now;
}

/* The stream that has not moved for longest; a stream that computes comes before one that waits
 * for other processes, since they may wait for this one. */
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
  b->still_s = l->looked_s - (s < 0 ? l->quiet_s : l->since_s[s]);
  if (s < 0) {
    b->syncing = milestone_is_syncing();
    snprintf(b->text, sizeof b->text, "%s", milestone_get_activity());
    return;
  }
  b->instruction = (int32_t)l->last.at[s];
  snprintf(b->stream, sizeof b->stream, "%s", stream_name((uint32_t)s));
  progress_record_print(l->last.at[s], &text);
  snprintf(b->text, sizeof b->text, "%.*s", (int)strcspn(text.at ? text.at : "", "\n"),
           text.at ? text.at : "");
  str_free(&text);
}

/* --- messages --------------------------------------------------------------------------------- */

/* Sends as much as the connection accepts now; false: it is broken. */
static bool push(connection *l) {
  while (l->unsent) {
    const char *at = (const char *)&l->out + sizeof l->out - l->unsent;
    ssize_t n = send(l->fd, at, l->unsent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN;
    l->unsent -= (size_t)n;
  }
  return true;
}

static bool send_heartbeat(connection *l, heartbeat_kind kind, int code, const char *message) {
  l->out = (heartbeat){.kind = kind,
                       .rank = l->rank,
                       .pid = getpid(),
                       .code = code,
                       .refused = l->refused != 0,
                       .step = milestone_get_step(),
                       .saved = milestone_get_saved(),
                       .joined = l->joined};
  memcpy(l->out.host, l->host, sizeof l->host);
  look(l);
  tell_place(l, &l->out);
  if (kind == HEARTBEAT_END) snprintf(l->out.text, sizeof l->out.text, "%s", message);
  wire_seal_heartbeat(&l->session, &l->out);
  l->unsent = sizeof l->out;
  return push(l);
}

/* Reads the supervisor's messages; false: it is gone, or is not the supervisor. */
static bool take_orders(connection *l) {
  for (;;) {
    ssize_t n = recv(l->fd, (char *)&l->in + l->got, sizeof l->in - l->got, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN;
    if (!n) return false;
    l->got += (size_t)n;
    if (l->got < sizeof l->in) continue;
    l->got = 0;
    if (!wire_check_order(&l->session, &l->in)) return false;
    if (l->in.number > 0 && l->in.number < NSIG) kill(getpid(), l->in.number);
  }
}

/* Has the supervisor's machine acknowledged what was sent?  Data that could not be sent, for
 * lack of a route, counts as not acknowledged. */
static bool answers(const connection *l) {
  struct tcp_info info;
  int waiting = 0;
  socklen_t n = sizeof info;
  double limit = l->patience_s > HEARTBEAT_ANSWER_S ? l->patience_s : HEARTBEAT_ANSWER_S;
  if (getsockopt(l->fd, IPPROTO_TCP, TCP_INFO, &info, &n)) return true;
  if (ioctl(l->fd, SIOCOUTQ, &waiting)) return true;
  return !waiting || info.tcpi_last_ack_recv <= limit * 1000;
}

static bool wait_for(int fd, short events, double until_s) {
  struct pollfd p = {.fd = fd, .events = events};
  double left;
  while ((left = until_s - time_now_s()) > 0) {
    int n = poll(&p, 1, (int)(left * 1e3) + 1);
    if (n > 0) return true;
    if (n < 0 && errno != EINTR) return false;
  }
  errno = ETIMEDOUT;
  return false;
}

/* With unread data `close` would discard what was just sent, so the supervisor closes first. */
static void say_last_words(connection *l, int code, const char *message) {
  double until_s = time_now_s() + LAST_WORDS_S;
  char rest[64];
  bool there = push(l);
  while (there && l->unsent) there = wait_for(l->fd, POLLOUT, until_s) && push(l);
  there = there && send_heartbeat(l, HEARTBEAT_END, code, message);
  while (there && l->unsent) there = wait_for(l->fd, POLLOUT, until_s) && push(l);
  shutdown(l->fd, SHUT_WR);
  while (there && wait_for(l->fd, POLLIN, until_s)) there = recv(l->fd, rest, sizeof rest, 0) > 0;
}

/* --- the thread ------------------------------------------------------------------------------- */

/* The process, or a signal handler that waits for it, wakes the thread to end. */
static void *finish(connection *l) {
  if (l->refused) {
    say_last_words(l, l->refused, "");
    l->told = true;
  }
  return NULL;
}

/* Without its supervisor a process would continue unobserved, and write where the next job
 * writes.  Ending at once loses no more than a kill. */
static _Noreturn void end_orphaned(const connection *l) {
  if (l->rank <= 0)
    dprintf(STDERR_FILENO, "hyper: the supervisor of this job is gone, and its processes end; "
                           "start the job again to go on from its last checkpoint\n");
  _exit(1);
}

static void *heartbeat_main(void *arg) {
  connection *l = arg;
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, NULL); /* signals belong to the caller */
  double due_s = 0;
  for (;;) {
    double now_s = time_now_s();
    bool there = answers(l), due = now_s >= due_s && !l->unsent;
    if (due) {
      due_s = now_s + l->interval_ms * 1e-3;
      there = there && send_heartbeat(l, HEARTBEAT_ALIVE, 0, "");
    } else there = there && push(l);
    struct pollfd p[2] = {{.fd = l->wake, .events = POLLIN},
                          {.fd = l->fd, .events = (short)(POLLIN | (l->unsent ? POLLOUT : 0))}};
    if (!there) end_orphaned(l);
    double wait_s = due_s - time_now_s();
    poll(p, 2, wait_s > 0 ? (int)(wait_s * 1e3) + 1 : l->interval_ms);
    if (p[0].revents) return finish(l);
    if (p[1].revents & ~POLLOUT && !take_orders(l)) end_orphaned(l);
  }
}

/* --- connecting ------------------------------------------------------------------------------- */

/* errno has the reason. */
static bool connect_to(int fd, const char *address, int port, double until_s) {
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  int failed = 0;
  socklen_t n = sizeof failed;
  errno = EADDRNOTAVAIL;
  if (inet_pton(AF_INET, address, &at.sin_addr) != 1) return false;
  if (!connect(fd, (struct sockaddr *)&at, sizeof at)) return true;
  if (errno != EINPROGRESS || !wait_for(fd, POLLOUT, until_s)) return false;
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &n)) return false;
  errno = failed;
  return !failed;
}

/* Receives the supervisor's challenge and answers it. */
static bool greet(connection *l, const wire_key *key, double until_s) {
  wire_hello challenge, answer;
  for (size_t got = 0; got < sizeof challenge;) {
    if (!wait_for(l->fd, POLLIN, until_s)) return false;
    ssize_t n = recv(l->fd, (char *)&challenge + got, sizeof challenge - got, 0);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (!n) errno = ECONNRESET;
    if (n <= 0) return false;
    got += (size_t)n;
  }
  errno = EPROTO;
  if (!wire_hello_is_ours(&challenge) || wire_hello_make(&answer)) return false;
  wire_session_begin(&l->session, key, &challenge, &answer);
  return send(l->fd, &answer, sizeof answer, MSG_NOSIGNAL) == sizeof answer;
}

static hp_status begin(connection *l, const char *address, int port, const wire_key *key) {
  double limit_s = l->patience_s / 2 > GREET_S ? l->patience_s / 2 : GREET_S;
  double until_s = time_now_s() + limit_s;
  l->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  l->wake = eventfd(0, EFD_CLOEXEC);
  if (l->fd < 0 || l->wake < 0 || !connect_to(l->fd, address, port, until_s) ||
      !greet(l, key, until_s))
    HP_FAIL(HP_ERR_COMM,
            "the supervisor of the job cannot be reached at %s:%d: %s; if the processes reach its "
            "machine by another interface, name that with hyper launch --interface; --watchdog 0 "
            "does without a supervisor's connection",
            address, port, strerror(errno));
  int failed = pthread_create(&l->thread, NULL, heartbeat_main, l);
  if (failed) HP_FAIL(HP_ERR_IO, "cannot start a thread for heartbeats: %s", strerror(failed));
  return HP_OK;
}

static void close_connection(connection *l) {
  if (l->fd >= 0) close(l->fd);
  if (l->wake >= 0) close(l->wake);
  mem_free(l);
}

hp_status heartbeat_begin(void) {
  const char *where = getenv(HEARTBEAT_VARIABLE);
  char address[64], digits[2 * SHA256_BYTES + 1];
  wire_key key;
  int port, interval_ms, patience_ms;
  if (!where || supervised) return HP_OK;
  if (sscanf(where, "%63[^:]:%d:%64[0-9a-f]:%d:%d", address, &port, digits, &interval_ms,
             &patience_ms) != 5 ||
      !wire_key_parse(digits, &key) || port < 1 || port > 65535 || interval_ms < 1 ||
      patience_ms < 1) /* its value is secret */
    HP_FAIL(HP_ERR_ARG,
            HEARTBEAT_VARIABLE " in the environment is not what hyper launch writes: expected "
                               "ADDRESS:PORT:KEY:MILLISECONDS:MILLISECONDS; unset it");
  connection *l = mem_calloc(1, sizeof *l);
  HP_TRY_MEM(l);
  *l = (connection){.interval_ms = interval_ms,
                    .patience_s = patience_ms * 1e-3,
                    .quiet_s = time_now_s(),
                    .looked_s = time_now_s(),
                    .rank = world_told_rank(),
                    .fd = -1,
                    .wake = -1};
  if (gethostname(l->host, sizeof l->host - 1)) l->host[0] = 0;
  hp_status st = begin(l, address, port, &key);
  if (st) close_connection(l);
  else supervised = l;
  return st;
}

void heartbeat_joined(void) {
  if (!supervised) return;
  supervised->rank = world_get()->rank;
  supervised->joined = true;
}

void heartbeat_end(int code, const char *message) {
  connection *l = supervised;
  uint64_t one = 1;
  if (!l) return;
  supervised = NULL;
  while (write(l->wake, &one, sizeof one) < 0 && errno == EINTR) {}
  pthread_join(l->thread, NULL);
  say_last_words(l, code, message);
  close_connection(l);
}

/* The thread sends it: a handler may not lock, and the session's counters belong to the thread. */
void heartbeat_refuse(int code) {
  connection *l = supervised;
  uint64_t one = 1;
  if (!l) return;
  double until_s = time_now_s() + LAST_WORDS_S;
  l->refused = code;
  while (write(l->wake, &one, sizeof one) < 0 && errno == EINTR) {}
  while (!l->told && time_now_s() < until_s) time_sleep_until(time_now_s() + 0.01);
}
