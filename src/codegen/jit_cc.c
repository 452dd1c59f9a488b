#include "codegen/jit_cc.h"

#include "base/io.h"
#include "base/milestone.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { VERSION_MAX = 1 << 16, INTERRUPTIONS = 8 };

void jit_cc_free(jit_cc *cc) {
  for (size_t i = 0; i < cc->word.len; i++) mem_free(cc->word.at[i]);
  vec_free(&cc->word);
  mem_free(cc->version);
  *cc = (jit_cc){0};
}

static bool is_program(const char *path) { return file_exists(path) && !access(path, X_OK); }

/* The path of a program: its name if it has a slash, else the first match on $PATH; empty if
 * there is none. */
static hp_status find_program(const char *program, str *path) {
  str_clear(path);
  str_add(path, program);
  HP_TRY(str_status(path));
  if (strchr(program, '/')) {
    if (!is_program(program)) str_clear(path);
    return HP_OK;
  }
  const char *p = getenv("PATH");
  for (p = p ? p : "/usr/bin:/bin"; *program && *p;) {
    size_t n = strcspn(p, ":");
    str_clear(path);
    str_add_n(path, p, n);
    str_printf(path, "%s%s", n ? "/" : "./", program);
    HP_TRY(str_status(path));
    if (is_program(path->at)) return HP_OK;
    p += n + (p[n] == ':');
  }
  str_clear(path);
  return HP_OK;
}

static hp_status add_word(jit_cc *cc, const char *text, size_t n) {
  str s = {0};
  str_add_n(&s, text, n);
  char *word = str_take(&s);
  HP_TRY_MEM(word);
  if (vec_push(&cc->word, word)) return HP_OK;
  mem_free(word);
  return HP_ERR_OOM;
}

/* Program and arguments of "prog arg arg"; no words if the program does not exist. */
static hp_status split_words(const char *text, jit_cc *cc) {
  str path = {0}, first = {0};
  hp_status st = HP_OK;
  HP_TRY_GOTO(find_program(text, &path), st); /* all of it may be a path with blanks */
  if (path.len) {
    st = add_word(cc, path.at, path.len);
    goto done;
  }
  const char *p = text + strspn(text, " \t");
  size_t n = strcspn(p, " \t");
  str_add_n(&first, p, n);
  HP_TRY_GOTO(str_status(&first), st);
  HP_TRY_GOTO(find_program(first.at, &path), st);
  if (path.len) HP_TRY_GOTO(add_word(cc, path.at, path.len), st);
  for (p += n; path.len && *p; p += n) {
    p += strspn(p, " \t");
    n = strcspn(p, " \t");
    if (n) HP_TRY_GOTO(add_word(cc, p, n), st);
  }
done:
  str_free(&path);
  str_free(&first);
  return st;
}

/* Starts a program with output (both streams) going to a file, or to an fd when that is NULL. */
static hp_status start_program(char *const *argv, const char *output, int fd, pid_t *pid) {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attr;
  sigset_t none;
  sigemptyset(&none);
  if (posix_spawn_file_actions_init(&files)) return HP_ERR_OOM;
  posix_spawnattr_init(&attr);
  /* the compiler must not inherit blocked signals */
  posix_spawnattr_setsigmask(&attr, &none);
  posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK);
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  if (output)
    posix_spawn_file_actions_addopen(&files, 1, output, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  else posix_spawn_file_actions_adddup2(&files, fd, 1);
  posix_spawn_file_actions_adddup2(&files, 1, 2);
  int e = posix_spawn(pid, argv[0], &files, &attr, argv, environ);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attr);
  if (e) HP_FAIL(HP_ERR_IO, "%s: cannot run the C compiler: %s", argv[0], strerror(e));
  return HP_OK;
}

/* True if the program succeeded.  If the host program collects its children itself, the status
 * is unknown: then the result decides, which is checked anyway. */
static bool wait_for(pid_t pid, bool *interrupted) {
  int status;
  pid_t r;
  while ((r = waitpid(pid, &status, 0)) < 0 && errno == EINTR) {}
  *interrupted = r >= 0 && WIFSIGNALED(status) && WTERMSIG(status) == SIGINT;
  return r < 0 || (WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static hp_status read_version(jit_cc *cc) {
  int fd[2];
  bool interrupted;
  pid_t pid;
  size_t n;
  if (pipe2(fd, O_CLOEXEC)) HP_FAIL(HP_ERR_IO, "pipe: %s", strerror(errno));
  VEC(char *) argv = {0};
  hp_status st = HP_OK;
  char flag[] = "--version";
  for (size_t i = 0; i < cc->word.len && !st; i++)
    if (!vec_push(&argv, cc->word.at[i])) st = HP_ERR_OOM;
  if (st || !vec_push(&argv, flag) || !vec_push(&argv, NULL)) st = HP_ERR_OOM;
  else st = start_program(argv.at, NULL, fd[1], &pid);
  close(fd[1]);
  if (!st) {
    st = file_read_fd(fd[0], cc->word.at[0], VERSION_MAX, &cc->version, &n);
    if (!wait_for(pid, &interrupted) && !st)
      st = err_set(HP_ERR_UNSUPPORTED, __FILE__, __LINE__, "%s --version failed", cc->word.at[0]);
  }
  close(fd[0]);
  vec_free(&argv);
  return st;
}

hp_status jit_cc_find(const char *want, jit_cc *out) {
  static const char *const usual[] = {"cc", "gcc", "clang"};
  const char *named = want ? want : getenv("CC");
  jit_cc cc = {0};
  hp_status st = HP_OK;
  if (named && *named) {
    st = split_words(named, &cc);
    if (!st && !cc.word.len)
      st = err_set(HP_ERR_UNSUPPORTED, __FILE__, __LINE__, "no C compiler \"%s\" (from %s)", named,
                   want ? "the options" : "$CC");
  } else {
    for (int i = 0; i < 3 && !st && !cc.word.len; i++) st = split_words(usual[i], &cc);
    if (!st && !cc.word.len)
      st = err_set(HP_ERR_UNSUPPORTED, __FILE__, __LINE__,
                   "no C compiler: none of cc, gcc and "
                   "clang is on the PATH");
  }
  if (!st) st = read_version(&cc);
  if (st) jit_cc_free(&cc);
  else *out = cc;
  return st;
}

/* cc flags... -o object source -lm */
static hp_status start_unit(const jit_cc *cc, const char *const *flags, const jit_unit *u,
                            pid_t *pid) {
  VEC(const char *) argv = {0};
  const char *last[] = {"-o", u->object, u->source, "-lm", NULL};
  hp_status st = HP_OK;
  bool ok = true;
  for (size_t i = 0; i < cc->word.len; i++) ok = ok && vec_push(&argv, cc->word.at[i]);
  for (int i = 0; flags[i]; i++) ok = ok && vec_push(&argv, flags[i]);
  for (int i = 0; i < 5; i++) ok = ok && vec_push(&argv, last[i]);
  /* posix_spawn takes char *const * but does not modify it */
  if (ok) st = start_program((char *const *)(uintptr_t)argv.at, u->words, -1, pid);
  vec_free(&argv);
  return ok ? st : HP_ERR_OOM;
}

/* Ctrl-C reaches every process of the terminal: where it ended the compiler and not this one, which
 * has another use for it, the unit is compiled again. */
static hp_status finish_unit(const jit_cc *cc, const char *const *flags, jit_unit *u, pid_t pid) {
  bool interrupted;
  for (int left = INTERRUPTIONS;; left--) {
    u->done = wait_for(pid, &interrupted);
    if (!interrupted || !left) return HP_OK;
    HP_TRY(start_unit(cc, flags, u, &pid));
  }
}

hp_status jit_cc_compile(const jit_cc *cc, const char *const *flags, jit_unit *unit, int n,
                         int jobs) {
  pid_t *pid = mem_calloc((size_t)n, sizeof *pid);
  HP_TRY_MEM(pid);
  hp_status st = HP_OK;
  int started = 0;
  for (int waited = 0; waited < n; waited++) {
    while (!st && started < n && started < waited + jobs) {
      st = start_unit(cc, flags, &unit[started], &pid[started]);
      if (!st) started++;
    }
    if (waited < started) {
      hp_status ended = finish_unit(cc, flags, &unit[waited], pid[waited]);
      if (!st) st = ended;
    }
    milestone_count_work();
  }
  mem_free(pid);
  return st;
}
