/* Starts the processes of a job with a pair of sockets between each two, in place of Open MPI's
 * mpirun: the same options, names in the environment, signals and exit codes, as far as `hyper
 * launch` uses them.  A process that dies, or fails, ends the job. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Between SIGTERM and SIGKILL to what is to end. */
enum { PROCESSES_MAX = 64, GRACE_MS = 1000, TURN_MS = 10 };

static int sockets[PROCESSES_MAX][PROCESSES_MAX]; /* of process i to process k; -1: none */
static pid_t pid[PROCESSES_MAX];                  /* 0: it has ended */
static int size, code;                            /* code: of the job */
static volatile sig_atomic_t asked;

static void on_signal(int number) { asked = number; }

static int fail(const char *what) {
  fprintf(stderr, "mpirun of the tests: %s: %s\n", what, strerror(errno));
  return 1;
}

/* The options of Open MPI that are given a word. */
static bool has_word(const char *option) {
  static const char *const options[] = {"--bind-to", "--hostfile", "-x"};
  for (size_t i = 0; i < sizeof options / sizeof *options; i++)
    if (!strcmp(option, options[i])) return true;
  return false;
}

/* Reads the options; the place of the program among the words, 0: there is none. */
static int read_options(int argc, char **argv) {
  int i = 1;
  for (; i < argc && *argv[i] == '-'; i++) {
    if (!strcmp(argv[i], "-n") && i + 1 < argc) size = atoi(argv[++i]);
    else if (has_word(argv[i])) i++;
  }
  return i < argc && size > 0 && size <= PROCESSES_MAX ? i : 0;
}

static bool make_sockets(void) {
  for (int i = 0; i < size; i++) {
    sockets[i][i] = -1;
    for (int k = 0; k < i; k++) {
      int pair[2];
      if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) return false;
      sockets[i][k] = pair[0];
      sockets[k][i] = pair[1];
    }
  }
  return true;
}

static void close_sockets(int but) {
  for (int i = 0; i < size; i++)
    for (int k = 0; k < size; k++)
      if (i != but && sockets[i][k] >= 0) close(sockets[i][k]);
}

/* In process i. */
static void become(int i, char **argv) {
  char text[12 * PROCESSES_MAX];
  int n = snprintf(text, sizeof text, "%d", i);
  for (int k = 0; k < size; k++)
    n += snprintf(text + n, sizeof text - (size_t)n, " %d", sockets[i][k]);
  setenv("HYPER_TEST_SOCKETS", text, 1);
  snprintf(text, sizeof text, "%d", i);
  setenv("OMPI_COMM_WORLD_RANK", text, 1);
  snprintf(text, sizeof text, "%d", size);
  setenv("OMPI_COMM_WORLD_SIZE", text, 1);
  close_sockets(i);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  setpgid(0, 0);
  int null = i ? open("/dev/null", O_RDONLY) : -1;
  if (null >= 0) dup2(null, STDIN_FILENO);
  execvp(*argv, argv);
  _exit(127);
}

static int count_living(void) {
  int n = 0;
  for (int i = 0; i < size; i++) n += pid[i] > 0;
  return n;
}

static void signal_all(int number) {
  for (int i = 0; i < size; i++)
    if (pid[i] > 0) kill(pid[i], number);
}

/* Takes note of those that have ended; true: the others are to end too. */
static bool reap(void) {
  bool failed = false;
  int status;
  for (pid_t p; (p = waitpid(-1, &status, WNOHANG)) > 0;) {
    int its = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    for (int i = 0; i < size; i++)
      if (pid[i] == p) pid[i] = 0;
    failed |= its != 0;
    if (!code) code = its;
  }
  return failed;
}

static void wait_for_all(void) {
  int left_ms = -1; /* until SIGKILL; -1: nothing is to end */
  while (count_living()) {
    bool ends = reap();
    int number = asked;
    asked = 0;
    if (number == SIGUSR1 || number == SIGUSR2) signal_all(number);
    else if (number && !code) code = 128 + number;
    ends |= number && number != SIGUSR1 && number != SIGUSR2;
    if (ends && left_ms < 0) {
      left_ms = GRACE_MS;
      signal_all(SIGCONT);
      signal_all(SIGTERM);
    }
    nanosleep(&(struct timespec){.tv_nsec = TURN_MS * 1000000}, NULL);
    if (left_ms >= 0 && (left_ms -= TURN_MS) < 0) {
      signal_all(SIGKILL);
      left_ms = 0;
    }
  }
}

int main(int argc, char **argv) {
  static const int caught[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};
  if (argc > 1 && !strcmp(argv[1], "--version")) {
    puts("mpirun (Open MPI) of the tests: processes over sockets");
    return 0;
  }
  int program = read_options(argc, argv);
  errno = EINVAL;
  if (!program) return fail("usage: mpirun [options of Open MPI] -n N PROGRAM ...");
  if (!make_sockets()) return fail("socketpair");
  for (int i = 0; i < size; i++) {
    pid[i] = fork();
    if (pid[i] < 0) return fail("fork");
    if (!pid[i]) become(i, argv + program);
  }
  close_sockets(-1);
  for (size_t i = 0; i < sizeof caught / sizeof *caught; i++)
    sigaction(caught[i], &(struct sigaction){.sa_handler = on_signal}, NULL);
  wait_for_all();
  return code;
}
