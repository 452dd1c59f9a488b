#include "test.h"

#include "base/io.h"
#include "base/thread.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TESTS_MAX = 4096, JOBS_MAX = 64, SKIPPED = 77, DEFAULT_LIMIT_S = 300, SLOW_S = 3 };

typedef struct {
  const char *file, *name;
  void (*fn)(void);
} test;
typedef struct {
  const test *test;
  pid_t pid; /* 0 = no test runs here */
  FILE *out;
  double started_s;
} job;
typedef struct {
  int passed, failed, skipped;
} tally;

static test tests[TESTS_MAX];
static int n_tests;
static char base[256], dir[300];

void test_register(const char *file, const char *name, void (*fn)(void)) {
  HP_ASSERT(n_tests < TESTS_MAX);
  const char *slash = strrchr(file, '/');
  tests[n_tests++] = (test){slash ? slash + 1 : file, name, fn};
}

void test_fail(const char *file, int line, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  fprintf(stdout, "%s:%d: ", file, line);
  vfprintf(stdout, fmt, ap);
  fputc('\n', stdout);
  va_end(ap);
  fflush(stdout);
  _exit(1);
}

void test_skip(const char *why) {
  printf("skipped: %s\n", why);
  fflush(stdout);
  _exit(SKIPPED);
}

const char *test_data(const char *relative) {
  static char path[4][1024];
  static int next;
  char *p = path[next++ % 4];
  const char *root = getenv("HYPER_DATA");
  snprintf(p, sizeof path[0], "%s/%s", root && *root ? root : "../shared/data", relative);
  if (access(p, R_OK)) test_skip(p);
  return p;
}

/* A folder in `base`, which the runner removes at its end whatever became of the test. */
const char *test_dir(void) {
  if (!dir[0]) {
    snprintf(dir, sizeof dir, "%s/test-XXXXXX", base);
    if (!mkdtemp(dir)) test_fail(__FILE__, __LINE__, "cannot create %s: %s", dir, strerror(errno));
  }
  return dir;
}

const char *test_shared_dir(void) { return base; }

static void create_base(void) {
  const char *tmp = getenv("TMPDIR");
  snprintf(base, sizeof base, "%s/hyper-test-XXXXXX", tmp ? tmp : "/tmp");
  if (!mkdtemp(base)) {
    fprintf(stderr, "cannot create %s: %s\n", base, strerror(errno));
    exit(2);
  }
}

/* Tests leave the user's cache alone: kernels are kept next to this program, and so are the records
 * of costs and engines. */
static void set_cache(void) {
  char cache[512];
  ssize_t n = readlink("/proc/self/exe", cache, sizeof cache - sizeof "/cache");
  while (n > 0 && cache[n - 1] != '/') n--;
  if (n <= 0) return;
  snprintf(cache + n, sizeof cache - (size_t)n, "cache");
  setenv("HYPER_CACHE", cache, 0);
}

/* Kernels of tests take longer to optimize than to run; $TEST_CC is the compiler of optimized ones.
 */
static void set_compiler(void) {
  const char *cc = getenv("CC");
  char *quick = realpath("tests/cli/quick_cc", NULL);
  setenv("TEST_CC", cc && *cc ? cc : "cc", 0);
  if (quick) setenv("CC", quick, 1);
  free(quick);
}

/* Starts t in a process of its own; what it prints goes to a file, shown when it ends. */
static void start(const test *t, job *j) {
  *j = (job){.test = t, .out = tmpfile(), .started_s = time_now_s()};
  fflush(stdout);
  j->pid = j->out ? fork() : -1;
  if (j->pid < 0) {
    fprintf(stderr, "cannot start a test: %s\n", strerror(errno));
    exit(2);
  }
  if (j->pid > 0) return;
  dup2(fileno(j->out), STDOUT_FILENO);
  dup2(fileno(j->out), STDERR_FILENO);
  setvbuf(stdout, NULL, _IOLBF, 0);
  const char *limit = getenv("TEST_LIMIT_S");
  alarm(limit ? (unsigned)atoi(limit) : DEFAULT_LIMIT_S);
  t->fn();
  fflush(stdout);
  exit(0); /* runs the leak check of sanitizers */
}

static void show(FILE *f) {
  char bytes[4096];
  rewind(f);
  for (size_t n; (n = fread(bytes, 1, sizeof bytes, f));) fwrite(bytes, 1, n, stdout);
}

static double processor_s(const struct rusage *use) {
  return (double)(use->ru_utime.tv_sec + use->ru_stime.tv_sec) +
         1e-6 * (double)(use->ru_utime.tv_usec + use->ru_stime.tv_usec);
}

static void finish(job *j, int status, const struct rusage *use, bool verbose, tally *sum) {
  double s = time_now_s() - j->started_s;
  int code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
  const char *word = "FAIL";
  if (code == 0) sum->passed++, word = "ok  ";
  else if (code == SKIPPED) sum->skipped++, word = "skip";
  else sum->failed++;
  if (code || verbose) show(j->out);
  if (WIFSIGNALED(status))
    printf("killed by signal %d (%s)\n", WTERMSIG(status), strsignal(WTERMSIG(status)));
  if (verbose || code || processor_s(use) > SLOW_S) /* CONTRIBUTING.md */
    printf("%s %s %s (%.2f s, cpu %.2f s)\n", word, j->test->file, j->test->name, s,
           processor_s(use));
  fclose(j->out);
  j->pid = 0;
}

/* Waits for one of the running tests; its job is free then. */
static job *wait_one(job *jobs, bool verbose, tally *sum) {
  for (;;) {
    int status;
    struct rusage use;
    pid_t pid = wait4(-1, &status, 0, &use);
    HP_ASSERT(pid > 0 || errno == EINTR);
    for (int k = 0; pid > 0 && k < JOBS_MAX; k++)
      if (jobs[k].pid == pid) {
        finish(&jobs[k], status, &use, verbose, sum);
        return &jobs[k];
      }
  }
}

/* Those that are named torture_ take long, and run when that is asked for. */
static bool chosen(const test *t, char **filters, int n) {
  bool asked = strncmp(t->name, "torture_", 8) != 0;
  for (int i = 0; i < n; i++) asked |= strstr(filters[i], "torture") != NULL;
  if (!asked) return false;
  for (int i = 0; i < n; i++)
    if (strstr(t->name, filters[i]) || strstr(t->file, filters[i])) return true;
  return n == 0;
}

int main(int argc, char **argv) {
  bool verbose = false;
  int at_once = cpu_count(), n_filters = 0;
  for (int i = 1; i < argc; i++) {
    if (!strcmp(argv[i], "-v")) verbose = true;
    else if (!strcmp(argv[i], "-j") && i + 1 < argc) at_once = atoi(argv[++i]);
    else argv[n_filters++] = argv[i];
  }
  if (at_once < 1) at_once = 1;
  if (at_once > JOBS_MAX) at_once = JOBS_MAX;
  create_base();
  set_cache();
  set_compiler();
  job jobs[JOBS_MAX] = {0};
  tally sum = {0};
  int running = 0;
  for (int i = 0; i < n_tests; i++) {
    if (!chosen(&tests[i], argv, n_filters)) continue;
    if (running == at_once) start(&tests[i], wait_one(jobs, verbose, &sum));
    else start(&tests[i], &jobs[running++]);
  }
  for (; running; running--) wait_one(jobs, verbose, &sum);
  dir_remove(base);
  printf("%d passed, %d failed, %d skipped\n", sum.passed, sum.failed, sum.skipped);
  return sum.failed ? 1 : 0;
}
