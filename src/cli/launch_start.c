/* The command that starts a job: what Open MPI, MPICH and Slurm call the same things. */
#include "base/thread.h"
#include "cli/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* The options of a starter; NULL: it has no such option, or does not need it. */
typedef struct {
  const char *mark;   /* in what it prints for --version */
  const char *always; /* one word each between spaces */
  const char *hostfile, *root, *crowded, *pass;
  int signals_from; /* see launch_command */
} starter;

/* Processes share out the cores themselves, so none is bound; -q, which Open MPI has up to version
 * 4: what ends a job is told by `hyper launch`.  The first mark that is found counts. */
static const starter starters[] = {{"(Open MPI) 3", "-q --bind-to none", "--hostfile",
                                    "--allow-run-as-root", "--oversubscribe", "-x", 128},
                                   {"(Open MPI) 4", "-q --bind-to none", "--hostfile",
                                    "--allow-run-as-root", "--oversubscribe", "-x", 128},
                                   {"Open MPI", "--bind-to none", "--hostfile",
                                    "--allow-run-as-root", "--oversubscribe", "-x", 128},
                                   {"HYDRA", "-bind-to none", "-f", NULL, NULL, NULL, 0},
                                   {"slurm", "--cpu-bind=none --kill-on-bad-exit=1", "--nodefile",
                                    NULL, "--overcommit", NULL, 128}};

/* The names under which processes hear of the launcher. */
static const char *const passed[] = {HEARTBEAT_VARIABLE, HEARTBEAT_JOB, "HYPER_ISA", "HYPER_TRACE",
                                     "HYPER_MPI"};

static hp_status add_word(launch_command *c, const char *word) {
  char *copy = word ? mem_calloc(strlen(word) + 1, 1) : NULL;
  if (word && !copy) return HP_ERR_OOM;
  if (word) memcpy(copy, word, strlen(word));
  if (vec_push(&c->words, copy)) return HP_OK;
  mem_free(copy);
  return HP_ERR_OOM;
}

static hp_status add_words(launch_command *c, const char *words) {
  char one[64];
  while (*words) {
    size_t n = strcspn(words, " ");
    snprintf(one, sizeof one, "%.*s", (int)n, words);
    HP_TRY(add_word(c, one));
    words += n + (words[n] == ' ');
  }
  return HP_OK;
}

/* The beginning of what `program --version` prints; "" when it is not there. */
static void ask_version(const char *program, char text[512]) {
  int ends[2];
  size_t n = 0;
  ssize_t more;
  text[0] = 0;
  if (pipe(ends)) return;
  pid_t pid = fork();
  if (!pid) {
    dup2(ends[1], STDOUT_FILENO);
    close(STDERR_FILENO);
    execlp(program, program, "--version", (char *)NULL);
    _exit(127);
  }
  close(ends[1]);
  while (n < 511 && (more = read(ends[0], text + n, 511 - n)) > 0) n += (size_t)more;
  text[n] = 0;
  close(ends[0]);
  while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR) {}
}

/* Which of the starters `program` is, by what it says of itself; NULL: none, or not there. */
static const starter *recognize_starter(const char *program) {
  char text[512];
  ask_version(program, text);
  for (size_t i = 0; i < sizeof starters / sizeof *starters; i++)
    if (strstr(text, starters[i].mark)) return &starters[i];
  return NULL;
}

/* Inside of a Slurm job that is srun, else mpirun. */
static hp_status choose_starter(const char *asked, const char **program, const starter **out) {
  const char *const names[] = {getenv("SLURM_JOB_ID") ? "srun" : "mpirun", "mpirun", "mpiexec"};
  if (asked) {
    *program = asked;
    if ((*out = recognize_starter(asked))) return HP_OK;
    HP_FAIL(HP_ERR_ARG,
            "--starter %s: it is not there, or is neither mpirun of Open MPI or MPICH nor srun",
            asked);
  }
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if ((*out = recognize_starter(*program = names[i]))) return HP_OK;
  HP_FAIL(HP_ERR_UNSUPPORTED,
          "neither mpirun nor srun is there to start processes: install an MPI library "
          "(tools/bootstrap mpi), or use several devices of one process (--devices, --strategy)");
}

static hp_status add_options(const launch_options *o, const starter *s, launch_command *c) {
  char number[24];
  bool crowded = !o->hostfile && o->processes > cpu_count();
  HP_TRY(add_words(c, s->always));
  if (s->root && geteuid() == 0) HP_TRY(add_word(c, s->root));
  if (s->crowded && crowded) HP_TRY(add_word(c, s->crowded));
  if (o->hostfile) {
    HP_TRY(add_word(c, s->hostfile));
    HP_TRY(add_word(c, o->hostfile));
  }
  for (size_t i = 0; s->pass && i < sizeof passed / sizeof *passed; i++) {
    if (!getenv(passed[i])) continue;
    HP_TRY(add_word(c, s->pass));
    HP_TRY(add_word(c, passed[i]));
  }
  snprintf(number, sizeof number, "%lld", (long long)o->processes);
  HP_TRY(add_word(c, "-n"));
  return add_word(c, number);
}

static hp_status make_command(const launch_options *o, launch_command *c) {
  const starter *s;
  const char *program;
  HP_TRY(choose_starter(o->starter, &program, &s));
  c->signals_from = s->signals_from;
  HP_TRY(add_word(c, program));
  HP_TRY(add_options(o, s, c));
  HP_TRY(add_word(c, o->program));
  for (const char *const *w = o->verb; *w; w++) HP_TRY(add_word(c, *w));
  return add_word(c, NULL);
}

hp_status launch_command_make(const launch_options *o, launch_command *out) {
  *out = (launch_command){0};
  hp_status st = make_command(o, out);
  if (st) launch_command_free(out);
  return st;
}

void launch_command_free(launch_command *c) {
  for (size_t i = 0; i < c->words.len; i++) mem_free(c->words.at[i]);
  vec_free(&c->words);
}

void launch_command_print(const launch_command *c, str *out) {
  for (size_t i = 0; i + 1 < c->words.len; i++) str_printf(out, i ? " %s" : "%s", c->words.at[i]);
}

/* A starter in the background may not read from the terminal: it would be stopped. */
static void redirect_input(void) {
  int fd = isatty(STDIN_FILENO) ? open("/dev/null", O_RDONLY) : -1;
  if (fd >= 0) dup2(fd, STDIN_FILENO);
}

hp_status launch_start(const launch_command *c, const launch_output *o, pid_t *out) {
  pid_t launcher = getpid(), pid = fork();
  if (pid < 0) HP_FAIL(HP_ERR_IO, "cannot start a process: %s", strerror(errno));
  if (pid > 0) {
    *out = pid;
    return HP_OK;
  }
  /* SIGTERM, at which the starters end their processes, here and elsewhere */
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != launcher) _exit(127);
  setpgid(0, 0);
  redirect_input();
  launch_output_enter(o);
  execvp(c->words.at[0], c->words.at);
  fprintf(stderr, "hyper launch: %s: %s\n", c->words.at[0], strerror(errno));
  _exit(127);
}
