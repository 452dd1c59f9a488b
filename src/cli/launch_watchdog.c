/* The watchdog of a job: what its processes say of themselves, and what that means. */
#include "base/thread.h"
#include "cli/launch.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Before they have met, and between programs, where data is read and checkpoints are written, a
 * process has so many times the time without progress; and while it waits for a disk, which shows
 * none. */
enum { BETWEEN = 10, SYNCING = 60 };

/* --- a try ------------------------------------------------------------------------------------ */

/* Connections are files. */
static void allow_files(int64_t processes) {
  struct rlimit l;
  rlim_t want = (rlim_t)processes + 4 * HEARTBEAT_STRANGERS;
  if (getrlimit(RLIMIT_NOFILE, &l) || l.rlim_cur >= want) return;
  l.rlim_cur = want < l.rlim_max ? want : l.rlim_max;
  setrlimit(RLIMIT_NOFILE, &l);
}

hp_status watchdog_open(const launch_options *o, watchdog *out) {
  *out = (watchdog){.port.listener = -1, .patience_s = o->patience_s, .saved = -1};
  unsetenv(HEARTBEAT_VARIABLE);
  HP_TRY(launch_mark());
  if (gethostname(out->self, sizeof out->self - 1)) out->self[0] = 0;
  if (!(o->patience_s > 0)) return HP_OK;
  HP_TRY(launch_find_address(o, out->address));
  allow_files(o->processes);
  return heartbeat_port_open(out->address, o->processes, &out->port);
}

void watchdog_close(watchdog *w) { heartbeat_port_close(&w->port); }

hp_status watchdog_begin(watchdog *w) {
  char text[256], key[2 * SHA256_BYTES + 1];
  double interval = w->patience_s / 8;
  w->began_s = w->listened_s = time_now_s();
  if (w->port.listener < 0) return HP_OK;
  if (interval > 1) interval = 1;
  if (interval < 0.02) interval = 0.02;
  HP_TRY(heartbeat_port_reset(&w->port));
  wire_key_print(&w->port.key, key);
  int port = heartbeat_port_number(&w->port);
  snprintf(text, sizeof text, "%s:%d:%s:%d:%d", w->address, port, key, (int)(interval * 1000),
           (int)(w->patience_s * 1000) + 1);
  if (setenv(HEARTBEAT_VARIABLE, text, 1)) return HP_ERR_OOM;
  return HP_OK;
}

/* A time moved by the length of a stop, but not into the future. */
static double add_pause(double s, double by, double now) { return s + by < now ? s + by : now; }

/* Time in which the launcher itself was stopped, or the whole machine, is nobody's fault.
 * expected: what it had to do since it listened last takes so many seconds. */
static void forgive_stop(watchdog *w, double expected) {
  double now = time_now_s(), by = now - w->listened_s - expected - 1;
  w->listened_s = now;
  if (by <= 0) return;
  w->began_s = add_pause(w->began_s, by, now);
  for (size_t i = 0; i < w->port.peers.len; i++) {
    heartbeat_peer *x = &w->port.peers.at[i];
    x->heard_s = add_pause(x->heard_s, by, now);
    x->since_s = add_pause(x->since_s, by, now);
    if (x->lost_s > 0) x->lost_s = add_pause(x->lost_s, by, now);
  }
}

void watchdog_listen(watchdog *w, int milliseconds) {
  forgive_stop(w, 0);
  if (w->port.listener < 0) usleep((useconds_t)milliseconds * 1000);
  else heartbeat_port_listen(&w->port, milliseconds);
  forgive_stop(w, milliseconds * 1e-3);
  for (size_t i = 0; i < w->port.peers.len; i++) {
    const heartbeat_peer *x = &w->port.peers.at[i];
    if (!x->known || x->last.rank) continue;
    if (x->last.saved > w->saved) w->saved = x->last.saved;
  }
}

/* --- all of them ------------------------------------------------------------------------------ */

static bool is_alive(const heartbeat_peer *x) { return x->known && !x->ended && x->fd >= 0; }

bool watchdog_signal(watchdog *w, int number) {
  bool any = false;
  for (size_t i = 0; i < w->port.peers.len; i++)
    any |= heartbeat_port_order(&w->port.peers.at[i], number);
  return any;
}

void watchdog_kill(watchdog *w) {
  watchdog_signal(w, SIGKILL);
  for (size_t i = 0; i < w->port.peers.len; i++) { /* one that is stopped takes no orders */
    const heartbeat_peer *x = &w->port.peers.at[i];
    if (is_alive(x) && !strcmp(x->last.host, w->self) && launch_owns(x->last.pid))
      kill(x->last.pid, SIGKILL);
  }
}

const heartbeat_peer *watchdog_find_lost(const watchdog *w) {
  const heartbeat_peer *first = NULL;
  for (size_t i = 0; i < w->port.peers.len; i++) {
    const heartbeat_peer *x = &w->port.peers.at[i];
    if (x->lost_s > 0 && (!first || x->lost_s < first->lost_s)) first = x;
  }
  return first;
}

const heartbeat_peer *watchdog_find_living(const watchdog *w) {
  for (size_t i = 0; i < w->port.peers.len; i++)
    if (is_alive(&w->port.peers.at[i])) return &w->port.peers.at[i];
  return NULL;
}

const heartbeat_peer *watchdog_find_refused(const watchdog *w) {
  const heartbeat_peer *found = NULL, *lost = watchdog_find_lost(w);
  for (size_t i = 0; i < w->port.peers.len; i++) {
    const heartbeat_peer *x = &w->port.peers.at[i];
    bool alone = !x->last.joined || x->last.refused;
    bool refuses = x->ended && x->last.code && x->last.code != HEARTBEAT_AGAIN && alone;
    if (lost && x->heard_s > lost->lost_s) continue;
    if (refuses && (!found || !x->last.rank)) found = x;
  }
  return found;
}

/* What process 0 says counts, but for a device that failed: of that only its own process may know.
 */
static int64_t count_ended(const watchdog *w, int *code) {
  int64_t n = 0;
  for (size_t i = 0; i < w->port.peers.len; i++) {
    const heartbeat_peer *x = &w->port.peers.at[i];
    if (!x->ended) continue;
    n++;
    if (*code == HEARTBEAT_AGAIN) continue;
    if (!x->last.rank || !*code || x->last.code == HEARTBEAT_AGAIN) *code = x->last.code;
  }
  return n;
}

bool watchdog_all_ended(const watchdog *w, int *code) {
  int said = 0;
  if (w->port.listener < 0 || count_ended(w, &said) < w->port.processes) return false;
  *code = said;
  return true;
}

bool watchdog_any_known(const watchdog *w) {
  for (size_t i = 0; i < w->port.peers.len; i++)
    if (w->port.peers.at[i].known) return true;
  return false;
}

/* --- what holds it up ------------------------------------------------------------------------- */

void peer_print(const heartbeat_peer *x, str *out) {
  if (x->last.rank < 0) str_printf(out, "a process (%s, pid %d)", x->last.host, x->last.pid);
  else str_printf(out, "process %d (%s, pid %d)", x->last.rank, x->last.host, x->last.pid);
}

/* The seconds that the process has been without progress, as far as is known. */
static double find_still_time(const heartbeat_peer *x) {
  return x->last.still_s + time_now_s() - x->heard_s;
}

static void print_place(const heartbeat_peer *x, str *out) {
  if (!x->last.joined) str_add(out, "starting, before it has met the other processes (MPI_Init)");
  else if (x->last.instruction >= 0)
    str_printf(out, "in stream %s, instruction %d: %s", x->last.stream, x->last.instruction,
               x->last.text);
  else if (x->last.runs)
    str_printf(out, "between programs, after %llu of them", (unsigned long long)x->last.runs);
  else str_add(out, "before its first program");
  if (x->last.instruction < 0 && x->last.text[0]) str_printf(out, ", %s", x->last.text);
  if (x->last.syncing) str_add(out, ", waiting for the disk (fsync)");
  if (x->last.step >= 0) str_printf(out, " (after step %lld)", (long long)x->last.step);
}

/* Where another process stands that waits for this one: the place that it does not come to. */
static void print_waiting(const watchdog *w, const heartbeat_peer *x, str *out) {
  for (size_t i = 0; i < w->port.peers.len; i++) {
    const heartbeat_peer *y = &w->port.peers.at[i];
    if (!is_alive(y) || y->last.waits_for != x->last.rank || y->last.waits_for < 0) continue;
    str_printf(out, "; process %d waits for it ", y->last.rank);
    print_place(y, out);
    return;
  }
}

static bool is_silent(const watchdog *w, const heartbeat_peer *x, str *why) {
  double s = time_now_s() - x->heard_s;
  if (s <= w->patience_s) return false;
  peer_print(x, why);
  str_printf(why,
             " has not been heard of for %.0f s: it is stopped, or its machine cannot be reached; "
             "it was last seen ",
             s);
  print_place(x, why);
  print_waiting(w, x, why);
  return true;
}

/* The seconds that the process may be without progress, by what it is doing. */
static double find_patience(const watchdog *w, const heartbeat_peer *x) {
  if (x->last.instruction >= 0) return w->patience_s;
  return w->patience_s * (x->last.syncing ? SYNCING : BETWEEN);
}

static bool does_hang(const watchdog *w, const heartbeat_peer *x, str *why) {
  if (x->last.joined && x->last.waits_for >= 0) return false;
  if (find_still_time(x) <= find_patience(w, x)) return false;
  peer_print(x, why);
  str_printf(why, " hangs: for %.0f s it has been ", find_still_time(x));
  print_place(x, why);
  str_printf(why, " (it has %g s there; --watchdog %g gives a longer time)", find_patience(w, x),
             2 * w->patience_s);
  print_waiting(w, x, why);
  return true;
}

static const heartbeat_peer *find_rank(const watchdog *w, int rank) {
  for (size_t i = 0; i < w->port.peers.len; i++)
    if (w->port.peers.at[i].known && w->port.peers.at[i].last.rank == rank)
      return &w->port.peers.at[i];
  return NULL;
}

/* Does it wait for one that has ended, or through others for itself?  Then their programs do not
 * match; processes of another mesh may go on meanwhile. */
static bool does_wait(const watchdog *w, const heartbeat_peer *x, str *why) {
  const heartbeat_peer *y = x;
  for (size_t k = 0; k <= w->port.peers.len && (y == x || !y->ended); k++) {
    if (y->last.waits_for < 0 || find_still_time(y) <= w->patience_s) return false;
    y = find_rank(w, y->last.waits_for);
    if (!y) return false;
  }
  y = find_rank(w, x->last.waits_for);
  peer_print(x, why);
  str_printf(why, " waits for process %d, which %s: for %.0f s it has been ", x->last.waits_for,
             y->ended ? "has ended" : "waits too", find_still_time(x));
  print_place(x, why);
  if (y->ended) return true;
  str_printf(why, "; process %d is ", y->last.rank);
  print_place(y, why);
  return true;
}

/* Two of one rank: each takes itself for the whole job. */
static bool is_double(const watchdog *w, const heartbeat_peer *x, str *why) {
  for (size_t i = 0; i < w->port.peers.len; i++) {
    const heartbeat_peer *y = &w->port.peers.at[i];
    if (y == x || !is_alive(y) || x->last.rank < 0 || y->last.rank != x->last.rank) continue;
    peer_print(x, why);
    str_add(why, " and ");
    peer_print(y, why);
    str_add(why, " replace each other: their starter does not tell them that they are "
                 "processes of one job; start with the mpirun of the MPI library that "
                 "hyper_mpi.so was built for");
    return true;
  }
  return false;
}

static bool is_known(const watchdog *w, int64_t rank) {
  for (size_t i = 0; i < w->port.peers.len; i++)
    if (w->port.peers.at[i].known && w->port.peers.at[i].last.rank == rank) return true;
  return false;
}

/* Ranks that were not heard, "1, 3"; returns how many.  *nameless: processes that were heard
 * without a rank, and so are some of these. */
static int64_t print_missing(const watchdog *w, int64_t *nameless, str *out) {
  enum { NAMED = 8 };
  int64_t n = 0;
  *nameless = 0;
  for (int64_t r = 0; r < w->port.processes; r++) {
    if (is_known(w, r)) continue;
    if (n++ < NAMED) str_printf(out, n > 1 ? ", %lld" : "%lld", (long long)r);
  }
  for (size_t i = 0; i < w->port.peers.len; i++)
    *nameless += w->port.peers.at[i].known && w->port.peers.at[i].last.rank < 0;
  if (n > NAMED) str_printf(out, " and %lld more", (long long)n - NAMED);
  return n;
}

/* Every process must be heard within the patience, counted from the start. */
static bool is_unheard(const watchdog *w, str *why) {
  str missing = {0};
  int64_t nameless;
  if (time_now_s() - w->began_s <= w->patience_s) return false;
  int64_t n = print_missing(w, &nameless, &missing);
  if (nameless)
    str_printf(&missing, " (%lld of them heard, without a number yet)", (long long)nameless);
  if (n > nameless)
    str_printf(why,
               "process%s %s of %lld %s not been heard within %g s of the start: %s stopped, "
               "did not start, or cannot reach the launcher at %s (--interface names another "
               "address of this machine, --watchdog a longer time)",
               n > 1 ? "es" : "", missing.at ? missing.at : "", (long long)w->port.processes,
               n > 1 ? "have" : "has", w->patience_s, n > 1 ? "they are" : "it is", w->address);
  str_free(&missing);
  return n > nameless;
}

bool watchdog_find(const watchdog *w, str *why) {
  static bool (*const signs[])(const watchdog *, const heartbeat_peer *,
                               str *) = {is_silent, is_double, does_hang, does_wait};
  if (w->port.listener < 0) return false;
  for (size_t k = 0; k < sizeof signs / sizeof *signs; k++)
    for (size_t i = 0; i < w->port.peers.len; i++)
      if (is_alive(&w->port.peers.at[i]) && signs[k](w, &w->port.peers.at[i], why)) return true;
  return is_unheard(w, why);
}
