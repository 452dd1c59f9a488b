/* The watchdog of a job: what its processes say of themselves, and what that means. */
#include "base/thread.h"
#include "cli/launch.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

/* Between programs a process may read data or write a checkpoint: it has so many times the time. */
enum { BETWEEN = 10, LINES_MAX = 2048 };

/* --- lines ------------------------------------------------------------------------------------ */

/* Processes on other machines find this one by its name. */
static hp_status tell_where(const watchdog *w, bool elsewhere) {
  struct sockaddr_in at;
  socklen_t n = sizeof at;
  char text[160];
  double interval = w->patience_s / 8;
  if (interval > 1) interval = 1;
  if (interval < 0.02) interval = 0.02;
  if (getsockname(w->listener, (struct sockaddr *)&at, &n))
    HP_FAIL(HP_ERR_IO, "cannot listen for the processes: %s", strerror(errno));
  snprintf(text, sizeof text, "%s:%d:%llx:%d", elsewhere ? w->self : "127.0.0.1",
           ntohs(at.sin_port), (unsigned long long)w->key, (int)(interval * 1000));
  if (setenv(HEARTBEAT_VARIABLE, text, 1)) return HP_ERR_OOM;
  return HP_OK;
}

hp_status watchdog_open(const launch_options *o, watchdog *out) {
  bool elsewhere = o->hostfile || getenv("SLURM_JOB_ID");
  struct sockaddr_in at = {.sin_family = AF_INET,
                           .sin_addr.s_addr = htonl(elsewhere ? INADDR_ANY : INADDR_LOOPBACK)};
  *out = (watchdog){.listener = -1, .patience_s = o->patience_s, .lost = -1};
  unsetenv(HEARTBEAT_VARIABLE);
  unsetenv(HEARTBEAT_RESTARTED);
  if (!(o->patience_s > 0)) return HP_OK;
  if (gethostname(out->self, sizeof out->self - 1)) out->self[0] = 0;
  if (getrandom(&out->key, sizeof out->key, 0) < 0) out->key = (uint64_t)getpid();
  out->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (out->listener < 0 || bind(out->listener, (struct sockaddr *)&at, sizeof at) ||
      listen(out->listener, 128)) {
    watchdog_close(out);
    HP_FAIL(HP_ERR_IO, "cannot listen for the processes: %s", strerror(errno));
  }
  return tell_where(out, elsewhere);
}

void watchdog_reset(watchdog *w) {
  for (size_t i = 0; i < w->lines.len; i++)
    if (w->lines.at[i].fd >= 0) close(w->lines.at[i].fd);
  w->lines.len = 0;
  w->lost = -1;
}

void watchdog_close(watchdog *w) {
  watchdog_reset(w);
  vec_free(&w->lines);
  if (w->listener >= 0) close(w->listener);
  w->listener = -1;
}

static void accept_connection(watchdog *w) {
  connection l = {.fd = accept4(w->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)};
  if (l.fd < 0) return;
  if (w->lines.len >= LINES_MAX || !vec_push(&w->lines, l)) close(l.fd);
}

/* A whole heartbeat has come; false: of somebody else. */
static bool take_heartbeat(watchdog *w, connection *l) {
  heartbeat *b = &l->next;
  if (b->key != w->key) return false;
  b->host[sizeof b->host - 1] = b->stream[sizeof b->stream - 1] = b->text[sizeof b->text - 1] = 0;
  l->known = true;
  l->ended = b->kind == HEARTBEAT_END;
  l->heard_s = time_now_s();
  l->last = *b;
  if (!b->rank && b->runs) w->ran = true;
  return true;
}

static void lose(watchdog *w, size_t i) {
  connection *l = &w->lines.at[i];
  close(l->fd);
  l->fd = -1;
  if (l->known && !l->ended && w->lost < 0) w->lost = (int)i;
}

static void read_connection(watchdog *w, size_t i) {
  connection *l = &w->lines.at[i];
  for (;;) {
    ssize_t n = recv(l->fd, (char *)&l->next + l->got, sizeof l->next - l->got, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) break;
    l->got += (size_t)n;
    if (l->got < sizeof l->next) continue;
    l->got = 0;
    if (!take_heartbeat(w, l)) break;
  }
  lose(w, i);
}

void watchdog_listen(watchdog *w, int milliseconds) {
  struct pollfd p[LINES_MAX + 1];
  size_t n = w->lines.len;
  p[0] = (struct pollfd){.fd = w->listener, .events = POLLIN};
  for (size_t i = 0; i < n; i++)
    p[i + 1] = (struct pollfd){.fd = w->lines.at[i].fd, .events = POLLIN};
  if (poll(p, (nfds_t)n + 1, milliseconds) <= 0) return;
  for (size_t i = 0; i < n; i++)
    if (p[i + 1].revents) read_connection(w, i);
  if (p[0].revents & POLLIN) accept_connection(w);
}

bool watchdog_signal(const watchdog *w, int number) {
  unsigned char byte = (unsigned char)number;
  bool any = false;
  for (size_t i = 0; i < w->lines.len; i++)
    if (w->lines.at[i].known && !w->lines.at[i].ended && w->lines.at[i].fd >= 0)
      any |= send(w->lines.at[i].fd, &byte, 1, MSG_NOSIGNAL) == 1;
  return any;
}

void watchdog_kill(const watchdog *w) {
  for (size_t i = 0; i < w->lines.len; i++) {
    const connection *l = &w->lines.at[i];
    if (l->known && l->fd >= 0 && !strcmp(l->last.host, w->self)) kill(l->last.pid, SIGKILL);
  }
}

/* --- the watchdog ----------------------------------------------------------------------------- */

void connection_print(const connection *l, str *out) {
  str_printf(out, "process %d (%s, pid %d)", l->last.rank, l->last.host, l->last.pid);
}

static bool lives(const connection *l) { return l->known && !l->ended && l->fd >= 0; }

/* How long nothing has changed in the process, as far as is known. */
static double still(const connection *l) { return l->last.still_s + time_now_s() - l->heard_s; }

static void print_place(const connection *l, str *out) {
  if (l->last.instruction >= 0)
    str_printf(out, "in stream %s, instruction %d: %s", l->last.stream, l->last.instruction,
               l->last.text);
  else str_printf(out, "between programs, after %llu of them", (unsigned long long)l->last.runs);
}

/* Where another process stands that waits for this one: the place that it does not come to. */
static void print_waiting(const watchdog *w, const connection *l, str *out) {
  for (size_t i = 0; i < w->lines.len; i++) {
    const connection *x = &w->lines.at[i];
    if (!lives(x) || x->last.waits_for != l->last.rank) continue;
    str_printf(out, "; process %d waits for it ", x->last.rank);
    print_place(x, out);
    return;
  }
}

static bool is_silent(const watchdog *w, const connection *l, str *why) {
  double s = time_now_s() - l->heard_s;
  if (s <= w->patience_s) return false;
  str_printf(why,
             " has not been heard of for %.0f s: it is stopped, or its machine cannot be reached; "
             "it was last seen ",
             s);
  print_place(l, why);
  print_waiting(w, l, why);
  return true;
}

static bool hangs(const watchdog *w, const connection *l, str *why) {
  bool inside = l->last.instruction >= 0;
  if (!l->last.runs || l->last.waits_for >= 0) return false;
  if (still(l) <= w->patience_s * (inside ? 1 : BETWEEN)) return false;
  str_printf(why, " hangs: for %.0f s it has been ", still(l));
  print_place(l, why);
  print_waiting(w, l, why);
  return true;
}

/* All wait for one another: the program itself is wrong. */
static bool waits(const watchdog *w, const connection *l, str *why) {
  for (size_t i = 0; i < w->lines.len; i++) {
    const connection *x = &w->lines.at[i];
    if (lives(x) && (x->last.waits_for < 0 || still(x) <= w->patience_s)) return false;
  }
  str_printf(why, " waits for process %d, and all others wait too: for %.0f s it has been ",
             l->last.waits_for, still(l));
  print_place(l, why);
  return true;
}

const connection *watchdog_find(const watchdog *w, str *why) {
  static bool (*const signs[])(const watchdog *, const connection *, str *) = {is_silent, hangs,
                                                                               waits};
  for (size_t k = 0; k < sizeof signs / sizeof *signs; k++)
    for (size_t i = 0; i < w->lines.len; i++)
      if (lives(&w->lines.at[i]) && signs[k](w, &w->lines.at[i], why)) return &w->lines.at[i];
  return NULL;
}
