#include "test.h"

#include "base/io.h"
#include "base/thread.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TESTS_MAX = 4096, SKIPPED = 77, DEFAULT_LIMIT_S = 300 };

typedef struct {
  const char *file, *name;
  void (*fn)(void);
} test;

static test tests[TESTS_MAX];
static int n_tests;
static char dir[256];

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

const char *test_dir(void) {
  if (!dir[0]) {
    const char *tmp = getenv("TMPDIR");
    snprintf(dir, sizeof dir, "%s/hyper-test-XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(dir)) test_fail(__FILE__, __LINE__, "cannot create %s: %s", dir, strerror(errno));
  }
  return dir;
}

static int run_child(const test *t) {
  fflush(stdout);
  pid_t pid = fork();
  if (pid == 0) {
    const char *limit = getenv("TEST_LIMIT_S");
    alarm(limit ? (unsigned)atoi(limit) : DEFAULT_LIMIT_S);
    t->fn();
    if (dir[0]) dir_remove(dir);
    fflush(stdout);
    exit(0); /* runs the leak check of sanitizers */
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
  if (WIFSIGNALED(status)) {
    printf("killed by signal %d (%s)\n", WTERMSIG(status), strsignal(WTERMSIG(status)));
    return 1;
  }
  return WEXITSTATUS(status);
}

int main(int argc, char **argv) {
  bool verbose = false;
  const char *filter = "";
  for (int i = 1; i < argc; i++) {
    if (!strcmp(argv[i], "-v")) verbose = true;
    else filter = argv[i];
  }
  int passed = 0, failed = 0, skipped = 0;
  for (int i = 0; i < n_tests; i++) {
    const test *t = &tests[i];
    if (!strstr(t->name, filter) && !strstr(t->file, filter)) continue;
    double start = time_now_s();
    int code = run_child(t);
    double s = time_now_s() - start;
    if (code == 0) passed++;
    else if (code == SKIPPED) skipped++;
    else failed++;
    if (verbose || code || s > 5)
      printf("%s %s %s (%.2f s)\n",
             code == 0         ? "ok  "
             : code == SKIPPED ? "skip"
                               : "FAIL",
             t->file, t->name, s);
  }
  printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
  return failed ? 1 : 0;
}
