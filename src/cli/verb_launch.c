/* `hyper launch`: a verb as several processes. */
#include "base/log.h"
#include "cli/cli.h"
#include "cli/launch.h"

#include <string.h>
#include <sys/wait.h>

static int launch(const launch_options *o) {
  launch_command c;
  str line = {0};
  pid_t pid;
  int status;
  hp_status st = launch_command_make(o, &c);
  if (st) return cli_fail(st);
  launch_command_print(&c, &line);
  if (line.at) log_info("%s", line.at);
  str_free(&line);
  st = launch_start(&c, &pid);
  launch_command_free(&c);
  if (st) return cli_fail(st);
  while (waitpid(pid, &status, 0) < 0) {}
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* -n is the short form of --processes. */
static void spell_out(int argc, char **argv) {
  static char long_form[] = "--processes";
  for (int i = 1; i < argc && strcmp(argv[i], "--"); i++)
    if (!strcmp(argv[i], "-n")) argv[i] = long_form;
}

int verb_launch(int argc, char **argv) {
  launch_options o = {.processes = 0};
  const char *rest[CLI_WORDS + 1];
  int n;
  const cli_option option[] = {{"--processes", CLI_INT, &o.processes, "N",
                                "so many processes (-n N)"},
                               {"--hostfile", CLI_TEXT, &o.hostfile, "F",
                                "the machines, as mpirun or srun reads them"},
                               {"--starter", CLI_TEXT, &o.starter, "PROGRAM",
                                "who starts them (default: srun in a Slurm job, else mpirun)"}};
  const cli_spec spec = {"hyper launch -n N [--hostfile F] -- VERB ...",
                         "Runs a verb as N processes, which share the work as its strategy says.",
                         "hyper launch -n 4 -- train config.yaml --strategy dp=2,tp=2", option,
                         sizeof option / sizeof *option};
  if (argc > CLI_WORDS) return cli_usage(argv[0], "too many arguments");
  spell_out(argc, argv);
  int code = cli_parse(&spec, argc, argv, rest, &n);
  if (code != CLI_GO_ON) return code;
  if (!n) return cli_usage(argv[0], "what shall be run? Write it after --");
  if (o.processes < 1 || o.processes > 1024)
    return cli_usage(argv[0], "-n %lld: expected 1 to 1024 processes", (long long)o.processes);
  rest[n] = NULL;
  o.verb = rest;
  return launch(&o);
}
