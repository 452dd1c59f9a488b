/* `hyper launch`: a verb as several processes, and their supervisor. */
#include "base/log.h"
#include "base/thread.h"
#include "cli/cli.h"
#include "cli/launch.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/wait.h>

enum { TURN_MS = 50, GRACE_S = 5 };

/* --- one try ---------------------------------------------------------------------------------- */

static volatile sig_atomic_t asked; /* the signal that came last, until it is dealt with */
static void on_signal(int number) { asked = number; }

typedef struct {
  watchdog *w;
  const char *starter;
  int signals_from;
  pid_t pid;
  bool over, ending, told_to_end; /* the starter has ended; is being ended; by a signal */
  int status;
  double until_s; /* then the starter is killed */
  bool died;      /* a process did, or was found hanging */
  str why;
} attempt;

static void finish_off(attempt *a) {
  if (a->ending) return;
  a->ending = true;
  a->until_s = time_now_s() + GRACE_S;
  watchdog_kill(a->w);
  kill(a->pid, SIGTERM);
}

/* The first signal goes to the processes, which end when they have saved; a second one ends them at
 * once. */
static void take_signal(attempt *a) {
  int number = asked;
  if (!number) return;
  asked = 0;
  if (a->told_to_end || !watchdog_signal(a->w, number)) finish_off(a);
  a->told_to_end = true;
}

static void look(attempt *a) {
  const connection *l;
  if (a->ending || a->died) return;
  if (a->w->lost >= 0) { /* the starter sees that too, and ends the others */
    a->died = true;
    a->until_s = time_now_s() + GRACE_S;
    return;
  }
  str why = {0};
  if ((l = watchdog_find(a->w, &why))) {
    connection_print(l, &a->why);
    str_add(&a->why, why.at ? why.at : "");
    a->died = true;
    finish_off(a);
  }
  str_free(&why);
}

static void await(attempt *a) {
  while (!a->over) {
    watchdog_listen(a->w, TURN_MS);
    if (waitpid(a->pid, &a->status, WNOHANG) == a->pid) a->over = true;
    take_signal(a);
    look(a);
    if ((a->ending || a->died) && time_now_s() > a->until_s) kill(a->pid, SIGKILL);
  }
  for (int i = 0; i < 4; i++) watchdog_listen(a->w, 0); /* last words */
  look(a);
  watchdog_kill(a->w);
}

/* How the process ended that was lost: the starters say it in their exit code. */
static void tell_death(attempt *a) {
  int code = WIFEXITED(a->status) ? WEXITSTATUS(a->status) : 0, number = code - a->signals_from;
  connection_print(&a->w->lines.at[a->w->lost], &a->why);
  if (number > 0 && number < 64)
    str_printf(&a->why, " was ended by signal %d (%s)", number, strsignal(number));
  else str_printf(&a->why, " died (exit code %d of %s)", code, a->starter);
}

static int code_of(const attempt *a) {
  return WIFEXITED(a->status) ? WEXITSTATUS(a->status) : 128 + WTERMSIG(a->status);
}

/* Why the try failed, where the processes have not said it themselves. */
static void judge(attempt *a) {
  if (a->why.len) return;
  if (WIFSIGNALED(a->status) && !a->ending) {
    str_printf(&a->why, "%s (pid %d) was ended by signal %d (%s)", a->starter, (int)a->pid,
               WTERMSIG(a->status), strsignal(WTERMSIG(a->status)));
    a->died = true;
  } else if (a->died && a->w->lost >= 0) tell_death(a);
}

/* Did all processes end of themselves? */
static bool ended_well(const watchdog *w) {
  for (size_t i = 0; i < w->lines.len; i++)
    if (!w->lines.at[i].ended) return false;
  return w->listener < 0 || w->lines.len > 0;
}

static hp_status try_once(const launch_options *o, watchdog *w, attempt *a) {
  launch_command c;
  str line = {0};
  *a = (attempt){.w = w};
  HP_TRY(launch_command_make(o, &c));
  launch_command_print(&c, &line);
  log_info("%s", line.at ? line.at : "");
  hp_status st = launch_start(&c, &a->pid);
  a->starter = o->starter ? o->starter : "mpirun";
  a->signals_from = c.signals_from;
  launch_command_free(&c);
  if (!st) await(a);
  if (!st) judge(a);
  if (!st && code_of(a) && !a->died && !ended_well(w))
    st =
        err_set(HP_ERR_COMM, __FILE__, __LINE__,
                "the processes were not started (exit code %d); run it by hand, without -q, to see "
                "why: %s",
                code_of(a), line.at ? line.at : "");
  str_free(&line);
  return st;
}

/* --- tries ------------------------------------------------------------------------------------ */

static int give_up(attempt *a, const char *why) {
  cli_say(HP_ERR_COMM, " launch: %s%s", a->why.at ? a->why.at : "the job failed", why);
  str_free(&a->why);
  return 1;
}

static int supervise(const launch_options *o, watchdog *w) {
  attempt a;
  for (int64_t k = 0;; k++) {
    hp_status st = try_once(o, w, &a);
    if (st) return cli_fail(st);
    if (!a.died) {
      str_free(&a.why);
      return code_of(&a);
    }
    if (a.told_to_end) return give_up(&a, "; the job had been asked to end");
    if (strcmp(o->verb[0], "train")) return give_up(&a, "");
    if (k == o->restarts) return give_up(&a, "; the job is not started again (--max-restarts)");
    log_warn("%s; starting the job again from its last checkpoint (%lld of %lld)",
             a.why.at ? a.why.at : "", (long long)k + 1, (long long)o->restarts);
    str_free(&a.why);
    watchdog_reset(w);
    if (w->ran && setenv(HEARTBEAT_RESTARTED, "1", 1)) return cli_fail(HP_ERR_OOM);
  }
}

/* By this a try knows what an earlier one of the same job has written. */
static hp_status name_job(void) {
  uint64_t id[2];
  char text[33];
  if (getrandom(id, sizeof id, 0) != (ssize_t)sizeof id)
    HP_FAIL(HP_ERR_IO, "the system gives no random numbers: %s", strerror(errno));
  snprintf(text, sizeof text, "%016llx%016llx", (unsigned long long)id[0],
           (unsigned long long)id[1]);
  return setenv(HEARTBEAT_JOB, text, 1) ? HP_ERR_OOM : HP_OK;
}

static int launch(const launch_options *o) {
  static const int caught[] = {SIGTERM, SIGINT, SIGUSR1};
  watchdog w;
  hp_status st = name_job();
  if (!st) st = watchdog_open(o, &w);
  if (st) return cli_fail(st);
  for (size_t i = 0; i < sizeof caught / sizeof *caught; i++)
    sigaction(caught[i], &(struct sigaction){.sa_handler = on_signal}, NULL);
  int code = supervise(o, &w);
  watchdog_close(&w);
  return code;
}

/* -n is the short form of --processes. */
static void spell_out(int argc, char **argv) {
  static char long_form[] = "--processes";
  for (int i = 1; i < argc && strcmp(argv[i], "--"); i++)
    if (!strcmp(argv[i], "-n")) argv[i] = long_form;
}

int verb_launch(int argc, char **argv) {
  launch_options o = {.patience_s = 60, .restarts = 3};
  const char *rest[CLI_WORDS + 1];
  int n;
  const cli_option option[] =
      {{"--processes", CLI_INT, &o.processes, "N", "so many processes (-n N)"},
       {"--hostfile", CLI_TEXT, &o.hostfile, "F", "the machines, as mpirun or srun reads them"},
       {"--max-restarts", CLI_INT, &o.restarts, "K",
        "start a training run again so often when a process dies or hangs (default: 3)"},
       {"--watchdog", CLI_NUM, &o.patience_s, "SECONDS",
        "a process that does not move for so long hangs (default: 60; 0: nobody watches)"},
       {"--starter", CLI_TEXT, &o.starter, "PROGRAM",
        "who starts them (default: srun in a Slurm job, else mpirun)"}};
  const cli_spec spec = {
      "hyper launch -n N [--hostfile F] [--max-restarts K] [--watchdog SECONDS] -- VERB ...",
      "Runs a verb as N processes, which share the work as its strategy says.  When one of them\n"
      "dies or hangs, it says which and where, ends the job, and starts a training run again from\n"
      "its last checkpoint.",
      "hyper launch -n 4 -- train config.yaml --strategy dp=2,tp=2", option,
      sizeof option / sizeof *option};
  if (argc > CLI_WORDS) return cli_usage(argv[0], "too many arguments");
  spell_out(argc, argv);
  int code = cli_parse(&spec, argc, argv, rest, &n);
  if (code != CLI_GO_ON) return code;
  if (!n) return cli_usage(argv[0], "what shall be run? Write it after --");
  if (o.processes < 1 || o.processes > 1024)
    return cli_usage(argv[0], "-n %lld: expected 1 to 1024 processes", (long long)o.processes);
  if (o.restarts < 0) return cli_usage(argv[0], "--max-restarts: expected 0 or more");
  if (!(o.patience_s >= 0 && o.patience_s < 1e6))
    return cli_usage(argv[0], "--watchdog: expected seconds, or 0");
  rest[n] = NULL;
  o.verb = rest;
  return launch(&o);
}
