/* One try of a job: its processes are started, watched until they have ended, and what happened is
 * told. */
#include "base/log.h"
#include "base/thread.h"
#include "cli/cli.h"
#include "cli/launch.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>

/* TURN_MS: between two looks; GRACE_S: for what has been told to end. */
enum { TURN_MS = 50, GRACE_S = 5 };

/* The signal to the launcher that came last, until it is handled. */
static volatile sig_atomic_t asked;
static void on_signal(int number) { asked = number; }
bool launch_is_asked(void) { return asked != 0; }

/* Under nohup SIGHUP stays ignored: the job continues without its terminal. */
static void catch_signals(void) {
  static const int caught[] = {SIGTERM, SIGINT, SIGUSR1, SIGHUP};
  for (size_t i = 0; i < sizeof caught / sizeof *caught; i++) {
    struct sigaction before;
    bool is_read = !sigaction(caught[i], NULL, &before);
    if (caught[i] == SIGHUP && is_read && before.sa_handler == SIG_IGN) continue;
    sigaction(caught[i], &(struct sigaction){.sa_handler = on_signal}, NULL);
  }
}

typedef struct {
  watchdog *w;
  launch_result *out;
  const char *starter;
  int signals_from;
  pid_t pid;
  launch_output output;
  bool over, ending, lost; /* the starter has ended; is being ended; a process went */
  int status;
  double until_s; /* then the starter is killed; 0: it has all the time */
} attempt;

static void finish_off(attempt *a) {
  if (a->ending) return;
  a->ending = true;
  a->until_s = time_now_s() + GRACE_S;
  watchdog_kill(a->w);
  kill(a->pid, SIGTERM);
}

/* The first signal goes to the processes, which end when they have saved; a second one ends them at
 * once, but for SIGHUP: a terminal that closes sends it twice, by the kernel and by its shell. */
static void take_signal(attempt *a) {
  int number = asked;
  if (!number) return;
  asked = 0;
  if (a->out->told_to_end && number == SIGHUP) return;
  if (a->out->told_to_end || !watchdog_signal(a->w, number)) finish_off(a);
  a->out->told_to_end = true;
}

static void check_processes(attempt *a) {
  int code;
  if (a->ending || a->until_s > 0) return;
  if (watchdog_all_ended(a->w, &code) || watchdog_find_refused(a->w)) {
    a->until_s = time_now_s() + GRACE_S; /* it has no reason to stay */
  } else if (watchdog_find_lost(a->w)) { /* the starter sees that too, and ends the others */
    a->lost = true;
    a->until_s = time_now_s() + GRACE_S;
  } else if (!a->over && watchdog_find(a->w, &a->out->why)) {
    a->out->died = true;
    finish_off(a);
  }
}

/* Processes of other machines can be reached only by their connections. */
static void await_processes(attempt *a) {
  double until_s = time_now_s() + GRACE_S;
  str who = {0};
  watchdog_kill(a->w);
  while (watchdog_find_living(a->w) && time_now_s() < until_s) watchdog_listen(a->w, TURN_MS);
  launch_sweep(GRACE_S);
  const heartbeat_peer *x = watchdog_find_living(a->w);
  if (!x) return;
  peer_print(x, &who);
  log_warn("%s cannot be reached, and may still run; it ends when it finds its connection closed",
           who.at ? who.at : "a process");
  str_free(&who);
}

/* A starter ends after its processes.  One that still lives then is out of its hands: its output
 * goes nowhere, and nobody would end the others when it dies. */
static void find_left(attempt *a) {
  const heartbeat_peer *x = watchdog_find_living(a->w);
  if (!x || a->out->died) return;
  peer_print(x, &a->out->why);
  str_printf(&a->out->why, " was still running when %s, which had started it, ended (", a->starter);
  if (WIFSIGNALED(a->status))
    str_printf(&a->out->why, "signal %d (%s))", WTERMSIG(a->status),
               strsignal(WTERMSIG(a->status)));
  else str_printf(&a->out->why, "exit code %d)", WEXITSTATUS(a->status));
  a->out->died = true;
}

static void await_end(attempt *a) {
  while (!a->over) {
    watchdog_listen(a->w, TURN_MS);
    if (waitpid(a->pid, &a->status, WNOHANG) == a->pid) a->over = true;
    take_signal(a);
    check_processes(a);
    if (a->until_s > 0 && time_now_s() > a->until_s) kill(a->pid, SIGKILL);
  }
  for (int i = 0; i < 4; i++) watchdog_listen(a->w, 0); /* last words */
  check_processes(a);
  if (!a->lost && !watchdog_find_refused(a->w)) find_left(a);
  await_processes(a);
}

static hp_status watch_to_its_end(attempt *a) {
  launch_keeper keeper = {0};
  hp_status st = launch_keep(a->pid, &keeper);
  if (!st) st = launch_output_begin(&a->output);
  if (st) kill(a->pid, SIGTERM);
  else await_end(a);
  launch_keep_end(&keeper);
  return st;
}

/* --- what happened ---------------------------------------------------------------------------- */

static int find_exit_code(const attempt *a) {
  return WIFEXITED(a->status) ? WEXITSTATUS(a->status) : 128 + WTERMSIG(a->status);
}

/* The starters say in their exit code by which signal a process was ended; 0: by none. */
static int signal_of(const attempt *a) {
  int number = WIFEXITED(a->status) ? WEXITSTATUS(a->status) - a->signals_from : 0;
  int least = a->signals_from ? 1 : 3; /* 1 and 2 are exit codes of our own */
  return number >= least && number < NSIG ? number : 0;
}

static void tell_death(attempt *a, const heartbeat_peer *x) {
  int number = signal_of(a);
  str *why = &a->out->why;
  if (x) peer_print(x, why);
  else str_add(why, "a process, before it was heard,");
  if (number) str_printf(why, " was ended by signal %d (%s)", number, strsignal(number));
  else if (x && x->broken) str_add(why, " sent what is no heartbeat of it");
  else str_printf(why, " died (exit code %d of %s)", find_exit_code(a), a->starter);
}

/* The job could not begin, and would not begin the next time.  What process 0 has to say it has
 * said. */
static void tell_refusal(attempt *a, const heartbeat_peer *x) {
  a->out->code = x->last.code;
  if (x->last.rank && x->last.text[0])
    cli_say(HP_ERR_COMM, " launch: process %d on %s%s", x->last.rank, x->last.host, x->last.text);
}

/* Nobody was heard, and nobody died of a signal: it is not there, or cannot be run. */
static hp_status refuse_start(const attempt *a, const char *line) {
  HP_FAIL(HP_ERR_COMM,
          "the processes were not started (exit code %d); run it by hand, without -q, to see why: "
          "%s",
          find_exit_code(a), line);
}

/* The processes have said which, and ended. */
static void tell_failed_device(launch_result *out) {
  out->died = !out->told_to_end;
  out->code = 1;
  str_add(&out->why, "a device of the job failed");
}

static hp_status judge_line(attempt *a, const char *line) {
  launch_result *out = a->out;
  const heartbeat_peer *x = watchdog_find_refused(a->w);
  if (watchdog_all_ended(a->w, &out->code)) {
    out->died = false;
    if (!out->told_to_end && (a->ending || WIFSIGNALED(a->status) || signal_of(a)))
      log_warn("the processes have done their work, and did not leave by themselves (exit code %d "
               "of %s)",
               find_exit_code(a), a->starter);
    if (out->code == HEARTBEAT_AGAIN) tell_failed_device(out);
    return HP_OK;
  }
  if (x) tell_refusal(a, x);
  if (x || out->died) return HP_OK;
  a->lost = watchdog_find_lost(a->w) != NULL; /* also after the starter's end, or while it ended */
  out->code = find_exit_code(a);
  out->died = a->lost || WIFSIGNALED(a->status);
  if (a->w->port.listener >= 0 && signal_of(a) && !watchdog_any_known(a->w)) out->died = true;
  if (a->lost) tell_death(a, watchdog_find_lost(a->w));
  else if (WIFSIGNALED(a->status))
    str_printf(&out->why, "%s (pid %d) was ended by signal %d (%s)", a->starter, (int)a->pid,
               WTERMSIG(a->status), strsignal(WTERMSIG(a->status)));
  else if (out->died) tell_death(a, NULL);
  else if (out->code && a->w->port.listener >= 0 && !watchdog_any_known(a->w))
    return refuse_start(a, line);
  return HP_OK;
}

hp_status launch_try(const launch_options *o, watchdog *w, launch_result *out) {
  launch_command c;
  str line = {0};
  attempt a = {.w = w, .out = out, .starter = o->starter ? o->starter : "mpirun"};
  *out = (launch_result){0};
  catch_signals();
  HP_TRY(watchdog_begin(w));
  HP_TRY(launch_command_make(o, &c));
  launch_command_print(&c, &line);
  log_info("%s", line.at ? line.at : "");
  hp_status st = launch_output_open(&a.output);
  if (!st) st = launch_start(&c, &a.output, &a.pid);
  a.signals_from = c.signals_from;
  launch_command_free(&c);
  if (!st) st = watch_to_its_end(&a);
  launch_output_end(&a.output);
  if (!st) st = judge_line(&a, line.at ? line.at : "");
  str_free(&line);
  return st;
}
