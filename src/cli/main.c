#include "base/str.h"
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

const cli_verb cli_verbs[] = {
#define VERB(name, about) {#name, verb_##name, about},
#include "cli/verbs.def"
#undef VERB
};
enum { VERBS = sizeof cli_verbs / sizeof *cli_verbs };

static void print_usage(FILE *f) {
  fprintf(f,
          "HyperParallel %s: write a model as if the supernode were one computer.\n\n"
          "usage: hyper VERB [options]      hyper VERB --help\n\n",
          hp_version());
  for (int i = 0; i < VERBS; i++) fprintf(f, "  %-10s %s\n", cli_verbs[i].name, cli_verbs[i].about);
  fputs("\nexample: hyper generate --model models/tiny --prompt \"Once upon a time\"\n", f);
}

static int refuse_verb(const char *word) {
  const char *names[VERBS];
  for (int i = 0; i < VERBS; i++) names[i] = cli_verbs[i].name;
  const char *near = str_nearest(word, names, VERBS);
  cli_say(HP_ERR_ARG, ": \"%s\" is not a verb%s%s%s; `hyper --help` lists them", word,
          near ? ", did you mean \"" : "", near ? near : "", near ? "\"?" : "");
  return 2;
}

/* Standard streams that were closed become /dev/null: else the next file that is opened takes
 * their number, and is written over with messages. */
static void open_streams(void) {
  int fd = open("/dev/null", O_RDWR);
  while (fd >= 0 && fd <= STDERR_FILENO) fd = dup(fd);
  if (fd > STDERR_FILENO) close(fd);
}

/* Output that could not be written is a failure, whatever the verb thought of it.  But where who
 * read it has gone, as `head` does, there is nothing to say: the exit code is that of a process
 * that SIGPIPE ends.  What a training run prints is not its result. */
static int close_output(int code, bool trains) {
  bool failed = ferror(stdout) != 0;
  errno = 0;
  if (fflush(stdout)) failed = true;
  if (!failed) return code;
  if (cli_output_is_closed()) return code || trains ? code : 128 + SIGPIPE;
  cli_say(HP_ERR_IO, ": standard output: cannot be written: %s",
          errno ? strerror(errno) : "an earlier write failed");
  return code ? code : 1;
}

static int run_verb(int argc, char **argv) {
  if (argc < 2) {
    print_usage(stderr);
    return 2;
  }
  if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
    print_usage(stdout);
    return 0;
  }
  if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "version")) {
    printf("hyper %s\n", hp_version());
    return 0;
  }
  for (int i = 0; i < VERBS; i++)
    if (!strcmp(argv[1], cli_verbs[i].name)) return cli_verbs[i].run(argc - 1, argv + 1);
  return refuse_verb(argv[1]);
}

static int run_and_close(int argc, char **argv) {
  bool trains = argc > 1 && !strcmp(argv[1], "train");
  return close_output(run_verb(argc, argv), trains);
}

int main(int argc, char **argv) {
  open_streams();
  signal(SIGPIPE, SIG_IGN); /* a closed pipe is a failed write, and ends no training run */
  signal(SIGXFSZ, SIG_IGN); /* and so is a file that may not grow */
  cli_name_file_faults();
  return cli_run_in_job(run_and_close, argc, argv);
}
