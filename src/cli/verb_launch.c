/* `hyper launch`: a verb as several processes, and how often it is started again. */
#include "base/log.h"
#include "cli/cli.h"
#include "cli/launch.h"
#include "comm/world.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* --- tries ------------------------------------------------------------------------------------ */

static int give_up(launch_result *r, const char *why) {
  cli_say(HP_ERR_COMM, " launch: %s%s", r->why.at ? r->why.at : "the job failed", why);
  str_free(&r->why);
  return 1;
}

static int give_up_asked(launch_result *r) { return give_up(r, "; the job had been told to stop"); }

static void tell_restart(const launch_options *o, const launch_result *r, int64_t in_vain,
                         double pause_s) {
  str when = {0};
  if (pause_s > 0) str_printf(&when, ", in %g s", pause_s);
  log_warn("%s; starting the job again from its last checkpoint (restart %lld of %lld without a "
           "newer one)%s",
           r->why.at ? r->why.at : "", (long long)in_vain, (long long)o->restarts,
           when.at ? when.at : "");
  str_free(&when);
}

/* A checkpoint that is newer than all before is progress: what comes after it has another chance.
 */
static int supervise(const launch_options *o, watchdog *w) {
  int64_t in_vain = 0, failed = 0, best = -1; /* failed: tries in a row without a newer one */
  launch_result r;
  for (;;) {
    hp_status st = launch_try(o, w, &r);
    if (st) {
      str_free(&r.why);
      return cli_fail(st);
    }
    if (!r.died) {
      str_free(&r.why);
      return r.code;
    }
    if (r.told_to_end) return give_up_asked(&r);
    if (strcmp(o->verb[0], "train")) return give_up(&r, "");
    failed++;
    if (w->saved > best) in_vain = failed = 0;
    if (w->saved > best) best = w->saved;
    if (in_vain == o->restarts)
      return give_up(&r, in_vain
                             ? "; the job is not started again: the restarts that --max-restarts "
                               "allows brought no newer checkpoint"
                             : "; the job is not started again (--max-restarts 0)");
    double pause_s = launch_pause_s(o->pause_s, failed);
    in_vain++;
    tell_restart(o, &r, in_vain, pause_s);
    if (!launch_pause(pause_s, launch_is_asked)) return give_up_asked(&r);
    str_free(&r.why);
  }
}

/* Asked once: where a new build takes the file's place, later tries run that. */
static hp_status find_program(char out[4096]) {
  ssize_t n = readlink("/proc/self/exe", out, 4095);
  if (n < 0) HP_FAIL(HP_ERR_IO, "/proc/self/exe: %s", strerror(errno));
  out[n] = 0;
  return HP_OK;
}

static int launch_job(launch_options *o) {
  watchdog w;
  char program[4096];
  hp_status st = find_program(program);
  o->program = program;
  if (!st) st = launch_check_hosts(o);
  if (!st && o->processes > 1) st = world_check_plugin();
  if (!st) st = watchdog_open(o, &w);
  if (st) return cli_fail(st);
  int code = supervise(o, &w);
  watchdog_close(&w);
  return code;
}

enum { NOT_GIVEN = INT32_MIN };

int verb_launch(int argc, char **argv) {
  launch_options o = {.processes = NOT_GIVEN, .patience_s = 60, .pause_s = 1, .restarts = 3};
  const char *rest[CLI_WORDS + 1];
  int n;
  const cli_option option[] = {
      {"--processes", CLI_INT, &o.processes, "N", "so many processes (-n N)"},
      {"-n", CLI_INT, &o.processes, "N", NULL},
      {"--hostfile", CLI_TEXT, &o.hostfile, "F", "the machines, as mpirun or srun reads them"},
      {"--max-restarts", CLI_INT, &o.restarts, "K",
       "when a process dies or hangs, start a training run again; give up after K restarts without "
       "a newer checkpoint (default: 3)"},
      {"--restart-pause", CLI_NUM, &o.pause_s, "SECONDS",
       "wait so long before such a restart, then twice as long each time, 30 s at most (default: "
       "1; 0: no pause)"},
      {"--watchdog", CLI_NUM, &o.patience_s, "SECONDS",
       "a process that is not heard or does not move for so long is dead or hangs, from the start "
       "on (default: 60; 0: nobody watches)"},
      {"--interface", CLI_TEXT, &o.interface, "NAME|ADDRESS",
       "where the launcher listens for its processes (default: on one machine loopback, else what "
       "leads to the others)"},
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
  int code = cli_parse(&spec, argc, argv, rest, &n);
  if (code != CLI_GO_ON) return code;
  if (!n) return cli_usage(argv[0], "what shall be run? Write it after --");
  if (o.processes == NOT_GIVEN) return cli_usage(argv[0], "how many processes? Write -n N");
  if (o.processes < 1 || o.processes > 1024)
    return cli_usage(argv[0], "-n %lld: expected 1 to 1024 processes", (long long)o.processes);
  if (o.restarts < 0) return cli_usage(argv[0], "--max-restarts: expected 0 or more");
  if (!(o.patience_s >= 0 && o.patience_s < 1e6))
    return cli_usage(argv[0], "--watchdog: expected seconds, or 0");
  if (!(o.pause_s >= 0 && o.pause_s <= 30))
    return cli_usage(argv[0], "--restart-pause: expected 0 to 30 seconds");
  rest[n] = NULL;
  o.verb = rest;
  return launch_job(&o);
}
