/* The cache of compiled kernels and the search for a compiler: damage, races, refusals. */
#include "loop_case.h"

#include "codegen/jit_cache.h"
#include "base/io.h"
#include "base/log.h"
#include "base/mem.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { KERNELS = 3, NOBODY = 65534 };
static const char *const texts[KERNELS] =
    {"map [100]; %0 = in 0 f32 [1]; %1 = square %0; out 0 f32 [1] %1",
     "map [100]; %0 = in 0 f32 [1]; %1 = neg %0; out 0 f32 [1] %1",
     "map [100]; %0 = in 0 f32 [1]; %1 = abs %0; out 0 f32 [1] %1"};

/* Path of a name in the test's folder; valid until the next two calls. */
static const char *in_dir(const char *name) {
  static char path[3][512];
  static int next;
  char *p = path[next++ % 3];
  snprintf(p, sizeof path[0], "%s/%s", test_dir(), name);
  return p;
}

static int lock_ms = 60000;

/* Builds the kernels with a cache folder and checks what they compute. */
static loop_module_stats build(const char *cache, const char *cc) {
  loop_module *m, *plain = loop_case_module(LOOP_ISA_BEST, true);
  loop_kernel *k[KERNELS], *p[KERNELS];
  loop l[KERNELS];
  CHECK_OK(loop_module_create(&(loop_options){.cache_dir = cache,
                                              .cc = cc,
                                              .jobs = 2,
                                              .lock_ms = lock_ms},
                              &m));
  for (int i = 0; i < KERNELS; i++) {
    loop_case_parse(texts[i], &l[i]);
    CHECK_OK(loop_module_add(m, &l[i], &k[i]));
    CHECK_OK(loop_module_add(plain, &l[i], &p[i]));
  }
  CHECK_OK(loop_module_build(m));
  CHECK_OK(loop_module_build(plain));
  for (int i = 0; i < KERNELS; i++) {
    loop_case a, b;
    loop_case_make(&l[i], 9, false, &a);
    loop_case_make(&l[i], 9, false, &b);
    loop_case_run(k[i], &a, NULL);
    loop_case_run(p[i], &b, NULL);
    loop_case_same(texts[i], &a, &b);
    loop_case_free(&a);
    loop_case_free(&b);
    loop_free(&l[i]);
  }
  loop_module_stats s = loop_module_report(m);
  CHECK_EQ(s.compiled + s.cached + s.interpreted, KERNELS);
  loop_module_free(m);
  loop_module_free(plain);
  return s;
}

/* The same in a process of its own, so that nothing is loaded in this one; compiled, cached and
 * interpreted kernels as digits. */
static int build_apart(const char *cache, const char *cc) {
  fflush(stdout);
  pid_t pid = fork();
  if (pid == 0) {
    loop_module_stats s = build(cache, cc);
    _exit(s.compiled * 16 + s.cached * 4 + s.interpreted);
  }
  int status;
  CHECK_EQ(waitpid(pid, &status, 0), pid);
  CHECK(WIFEXITED(status));
  return WEXITSTATUS(status);
}
enum { ALL_COMPILED = KERNELS * 16, ALL_CACHED = KERNELS * 4, ALL_INTERPRETED = KERNELS };

static void need_compiler(void) {
  char shared[512];
  snprintf(shared, sizeof shared, "%s/probe", test_shared_dir());
  if (build_apart(shared, NULL) % 4) test_skip("no C compiler"); /* some are interpreted */
}

/* Calls fn on every compiled file of a folder; returns their number. */
static int each_object(const char *dir, void (*fn)(const char *path)) {
  DIR *d = opendir(dir);
  int n = 0;
  CHECK(d);
  for (struct dirent *e; (e = readdir(d));) {
    char path[1024];
    if (!strstr(e->d_name, ".so")) {
      CHECK(!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") || !strcmp(e->d_name, "lock"));
      continue;
    }
    CHECK_EQ(strlen(e->d_name), 35); /* nothing temporary is left */
    snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
    n++;
    if (fn) fn(path);
  }
  closedir(d);
  return n;
}

/* Writes a copy with a change in place of a file: the files of a folder are links to one. */
static void rewrite(const char *path, size_t keep, size_t flip) {
  char *bytes;
  size_t n;
  CHECK_OK(file_read(path, 0, &bytes, &n));
  if (flip < n) bytes[flip] ^= 1;
  CHECK_OK(file_write(path, bytes, keep < n ? keep : n));
  mem_free(bytes);
}
static void cut_half(const char *path) { rewrite(path, 3000, SIZE_MAX); }
static void cut_one(const char *path) {
  struct stat s;
  CHECK(!stat(path, &s));
  rewrite(path, (size_t)s.st_size - 1, SIZE_MAX);
}
static void empty(const char *path) { rewrite(path, 0, SIZE_MAX); }
static void flip_code(const char *path) { rewrite(path, SIZE_MAX, 5000); }
static void flip_seal(const char *path) {
  struct stat s;
  CHECK(!stat(path, &s));
  rewrite(path, SIZE_MAX, (size_t)s.st_size - 1);
}
static void make_folder(const char *path) {
  CHECK(!unlink(path));
  CHECK(!mkdir(path, 0700));
}
static void make_link(const char *path) {
  char away[1100];
  snprintf(away, sizeof away, "%s.elsewhere", path);
  CHECK(!rename(path, away));
  CHECK(!symlink(away, path));
}

TEST(compiled_kernels_are_found_again_by_another_process) {
  need_compiler();
  const char *dir = in_dir("a cache 'of $HOME");
  CHECK_EQ(build_apart(dir, NULL), ALL_COMPILED);
  CHECK_EQ(build_apart(dir, NULL), ALL_CACHED);
  CHECK_EQ(each_object(dir, NULL), KERNELS);
  struct stat s;
  CHECK(!stat(dir, &s));
  CHECK_EQ(s.st_mode & 0777, 0700);
  CHECK_EQ(build(dir, NULL).cached, KERNELS);
  CHECK_EQ(build(dir, NULL).cached, KERNELS); /* twice in one process */
}

/* A different damage for each file of the folder, three at a time. */
static void damage_some(const char *path, int which) {
  static void (*const damage[])(const char *) = {cut_half,  cut_one,   empty,
                                                 flip_code, flip_seal, make_link};
  damage[which % 6](path);
}
static void damage_first(const char *path) {
  static int n;
  damage_some(path, n++);
}
static void damage_rest(const char *path) {
  static int n = 3;
  damage_some(path, n++);
}

TEST(damaged_files_of_the_cache_are_rebuilt) {
  need_compiler();
  const char *dir = in_dir("cache");
  CHECK_EQ(build_apart(dir, NULL), ALL_COMPILED);
  CHECK_EQ(each_object(dir, damage_first), KERNELS);
  CHECK_EQ(build_apart(dir, NULL), ALL_COMPILED);
  CHECK_EQ(build_apart(dir, NULL), ALL_CACHED);
  CHECK_EQ(each_object(dir, damage_rest), KERNELS);
  CHECK_EQ(build_apart(dir, NULL), ALL_COMPILED);
  CHECK_EQ(build_apart(dir, NULL), ALL_CACHED);
}

TEST(what_cannot_be_replaced_in_the_cache_does_no_harm) {
  need_compiler();
  const char *dir = in_dir("cache");
  CHECK_EQ(build_apart(dir, NULL), ALL_COMPILED);
  CHECK_EQ(each_object(dir, make_folder), KERNELS);
  CHECK_EQ(build_apart(dir, NULL), ALL_COMPILED);
}

TEST(processes_that_build_the_same_compile_it_once) {
  enum { PROCESSES = 4 };
  need_compiler();
  const char *dir = in_dir("cache");
  int compiled = 0, cached = 0;
  fflush(stdout);
  for (int i = 0; i < PROCESSES; i++) {
    if (fork()) continue;
    loop_module_stats s = build(dir, NULL);
    _exit(s.compiled * 16 + s.cached * 4 + s.interpreted);
  }
  for (int i = 0, status; i < PROCESSES; i++) {
    CHECK(wait(&status) > 0);
    CHECK(WIFEXITED(status));
    CHECK_EQ(WEXITSTATUS(status) & 3, 0);
    compiled += WEXITSTATUS(status) / 16;
    cached += WEXITSTATUS(status) / 4 & 3;
  }
  CHECK_EQ(compiled, KERNELS);
  CHECK_EQ(cached, (PROCESSES - 1) * KERNELS);
  CHECK_EQ(each_object(dir, NULL), KERNELS);
}

/* Builds in a process of its own, which must say `part`, with so many warnings. */
static void check_said(const char *cache, const char *cc, int want, const char *part, int warns) {
  char words[4096];
  int fd = open(in_dir("stderr.txt"), O_RDWR | O_CREAT | O_TRUNC, 0600), old = dup(2);
  CHECK(fd >= 0 && old >= 0);
  dup2(fd, 2);
  int got = build_apart(cache, cc);
  dup2(old, 2);
  close(old);
  ssize_t n = pread(fd, words, sizeof words - 1, 0);
  close(fd);
  CHECK(n >= 0);
  words[n] = 0;
  if (got != want)
    test_fail(__FILE__, __LINE__, "built %o, want %o; it says\n%s", got, want, words);
  if (!strstr(words, part)) test_fail(__FILE__, __LINE__, "it says\n%s\nwant \"%s\"", words, part);
  int warnings = 0;
  for (const char *p = words; (p = strstr(p, "warning:")); p++) warnings++;
  CHECK_EQ(warnings, warns);
}
static void check_words(const char *cache, const char *cc, int want, const char *part) {
  check_said(cache, cc, want, part, 1);
}

TEST(what_killed_builds_have_left_is_swept_after_an_hour) {
  need_compiler();
  static const char *const name[] = {"unit.1.old.c", "probe.1.old", "0123.so.1.tmp", "unit.1.new.c",
                                     "kept.c"};
  const char *dir = in_dir("cache");
  CHECK(!mkdir(dir, 0700));
  for (int i = 0; i < 5; i++) {
    char path[600];
    snprintf(path, sizeof path, "%s/%s", dir, name[i]);
    CHECK_OK(file_write(path, "x", 1));
    struct timespec old[2] = {{time(NULL) - 4000, 0}, {time(NULL) - 4000, 0}};
    if (i != 3) CHECK(!utimensat(AT_FDCWD, path, old, 0));
  }
  CHECK_EQ(build_apart(dir, NULL), ALL_COMPILED);
  for (int i = 0; i < 5; i++) {
    char path[600];
    snprintf(path, sizeof path, "%s/%s", dir, name[i]);
    CHECK_EQ(file_exists(path), i > 2);
  }
}

TEST(a_process_that_holds_the_lock_for_ever_is_not_waited_for) {
  need_compiler();
  const char *dir = in_dir("cache");
  CHECK(!mkdir(dir, 0700));
  int fd = open(in_dir("cache/lock"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  CHECK(fd >= 0 && !flock(fd, LOCK_EX));
  lock_ms = 30;
  check_said(dir, NULL, ALL_COMPILED, "another process compiles there; not waiting for it", 0);
  CHECK_EQ(each_object(dir, NULL), KERNELS);
  close(fd);
}

TEST(without_a_compiler_kernels_are_interpreted_and_one_line_says_so) {
  const char *dir = in_dir("cache");
  check_words(dir, "/nonexistent", ALL_INTERPRETED,
              "no C compiler \"/nonexistent\" (from the options)");
  setenv("CC", "/nonexistent/cc -O2", 1);
  check_words(dir, NULL, ALL_INTERPRETED, "no C compiler \"/nonexistent/cc -O2\" (from $CC)");
  unsetenv("CC");
  setenv("PATH", "/nonexistent", 1);
  check_words(dir, NULL, ALL_INTERPRETED, "none of cc, gcc and clang is on the PATH");
  check_words(dir, "/bin/false", ALL_INTERPRETED, "/bin/false --version failed");
}

static const char *write_script(const char *name, const char *text) {
  const char *path = in_dir(name);
  CHECK_OK(file_write(path, text, strlen(text)));
  CHECK(!chmod(path, 0700));
  return path;
}

TEST(a_compiler_that_fails_is_told_with_its_own_words) {
  const char *cc =
      write_script("my cc", "#!/bin/sh\n[ \"$1\" = --version ] && echo mine && exit 0\n"
                            "echo 'boom: no space left' >&2; exit 1\n");
  check_words(in_dir("cache"), cc, ALL_INTERPRETED, "boom: no space left");
  /* one that says that all is well and writes nothing, or nonsense */
  cc = write_script("liar", "#!/bin/sh\necho fine\n");
  check_words(in_dir("cache"), cc, ALL_INTERPRETED, "interpreted");
  cc = write_script(
      "liar2",
      "#!/bin/sh\nwhile [ $# -gt 0 ]; do [ \"$1\" = -o ] && echo no > \"$2\"; shift; done\n");
  check_words(in_dir("cache"), cc, ALL_INTERPRETED, "cannot load");
}

TEST(a_compiler_that_ctrl_c_ended_is_started_again) {
  need_compiler();
  char text[1024];
  snprintf(text, sizeof text,
           "#!/bin/sh\n[ \"$1\" = --version ] && echo mine && exit 0\n"
           "mkdir '%s' 2>/dev/null && kill -INT $$\nexec cc \"$@\"\n",
           in_dir("interrupted"));
  const char *cc = write_script("mine", text);
  CHECK_EQ(build_apart(in_dir("cache"), cc), ALL_COMPILED);
  CHECK(dir_exists(in_dir("interrupted")));
  /* one that nothing else ends is given up */
  cc = write_script("never",
                    "#!/bin/sh\n[ \"$1\" = --version ] && echo mine && exit 0\nkill -INT $$\n");
  check_words(in_dir("cache2"), cc, ALL_INTERPRETED, "interpreted");
}

TEST(arguments_in_CC_are_passed_on) {
  need_compiler();
  const char *dir = in_dir("cache");
  setenv("CC", "cc -DSOME_WORD=1", 1);
  CHECK_EQ(build_apart(dir, NULL), ALL_COMPILED);
  unsetenv("CC");
  CHECK_EQ(build_apart(dir, "cc"), ALL_COMPILED); /* another compiler, other keys */
  CHECK_EQ(each_object(dir, NULL), 2 * KERNELS);
}

static int entries(const char *dir) {
  DIR *d = opendir(dir);
  int n = -2;
  CHECK(d);
  while (readdir(d)) n++;
  closedir(d);
  return n;
}

TEST(a_cache_that_cannot_be_used_is_replaced_by_a_private_folder) {
  need_compiler();
  const char *tmp = in_dir("tmp");
  CHECK(!mkdir(tmp, 0700));
  setenv("TMPDIR", tmp, 1);
  check_words("/proc/none/cache", NULL, ALL_COMPILED,
              "/proc/none/cache: compiled kernels are not kept");
  CHECK_EQ(entries(tmp), 0); /* removed again */
  const char *file = in_dir("file");
  CHECK_OK(file_write(file, "x", 1));
  check_words(file, NULL, ALL_COMPILED, "it is not a folder");
  const char *shared = in_dir("shared");
  CHECK(!mkdir(shared, 0700));
  CHECK(!chmod(shared, 0777));
  check_words(shared, NULL, ALL_COMPILED, "others may write to it");
  CHECK_EQ(entries(shared), 0);
  setenv("TMPDIR", "/proc/none", 1);
  unsetenv("HYPER_CACHE");
  unsetenv("XDG_CACHE_HOME");
  unsetenv("HOME");
  check_words(NULL, NULL, ALL_INTERPRETED, "cannot create a folder to compile in");
}

TEST(a_cache_of_another_user_is_not_trusted) {
  if (geteuid()) test_skip("needs root");
  need_compiler();
  const char *dir = in_dir("cache");
  CHECK_EQ(build_apart(dir, NULL), ALL_COMPILED);
  CHECK(!chown(dir, NOBODY, NOBODY));
  check_words(dir, NULL, ALL_COMPILED, "it belongs to another user");
  /* our folder with a file of someone else in it */
  CHECK(!chown(dir, 0, 0));
  DIR *d = opendir(dir);
  for (struct dirent *e; (e = readdir(d));)
    if (strstr(e->d_name, ".so")) CHECK(!fchownat(dirfd(d), e->d_name, NOBODY, NOBODY, 0));
  closedir(d);
  CHECK_EQ(build_apart(dir, NULL), ALL_COMPILED);
}

/* --- a file that is changed between the check and its loading --------------------------------- */

static const char *planted, *planted_in; /* the file, and the folder of the cache; NULL: not now */

static void plant(void) {
  char temp[600], path[1200];
  DIR *d = opendir(planted_in);
  snprintf(temp, sizeof temp, "%s/planted", test_dir());
  for (struct dirent *e; (e = readdir(d));) {
    if (strlen(e->d_name) != 35) continue;
    snprintf(path, sizeof path, "%s/%s", planted_in, e->d_name);
    if (link(planted, temp) || rename(temp, path)) abort();
    unlink(temp); /* still there when both are one file already */
  }
  closedir(d);
}

/* In the place of the C library's, for this program: what another user could do at the worst of
 * times is done before each load from the cache. */
void *dlopen(const char *name, int flags);
void *dlopen(const char *name, int flags) {
  void *(*real)(const char *, int);
  void *found = dlsym(RTLD_NEXT, "dlopen");
  memcpy(&real, &found, sizeof real);
  if (planted) plant();
  return real(name, flags);
}

TEST(what_is_put_in_the_place_of_a_kernel_that_was_checked_is_not_loaded) {
  need_compiler();
  char mark[512], so[512], dir[512], text[1200];
  const char *source = in_dir("planted.c");
  snprintf(dir, sizeof dir, "%s/cache", test_dir());
  snprintf(mark, sizeof mark, "%s/loaded", test_dir());
  snprintf(so, sizeof so, "%s/planted.so", test_dir());
  CHECK_EQ(build_apart(dir, NULL), ALL_COMPILED);
  int n = snprintf(text, sizeof text,
                   "#include <stdio.h>\n__attribute__((constructor)) static void run(void) "
                   "{ fclose(fopen(\"%s\", \"w\")); }\n",
                   mark);
  CHECK_OK(file_write(source, text, (size_t)n));
  snprintf(text, sizeof text, "cc -shared -fPIC -o %s %s", so, source);
  CHECK_EQ(system(text), 0);
  planted = so;
  planted_in = dir;
  /* the first is loaded as it was checked, and computes what it should; the others are made again
   */
  CHECK_EQ(build(dir, NULL).cached, 1);
  planted = NULL;
  CHECK(!file_exists(mark));
  CHECK(dlopen(so, RTLD_NOW)); /* it would have run */
  CHECK(file_exists(mark));
}

TEST(kernels_that_others_may_write_are_rebuilt) {
  need_compiler();
  const char *dir = in_dir("cache");
  umask(0);
  CHECK_EQ(build_apart(dir, NULL), ALL_COMPILED);
  CHECK_EQ(build_apart(dir, NULL), ALL_CACHED); /* whatever the umask was */
  DIR *d = opendir(dir);
  for (struct dirent *e; (e = readdir(d));)
    if (strstr(e->d_name, ".so")) CHECK(!fchmodat(dirfd(d), e->d_name, 0777, 0));
  closedir(d);
  CHECK_EQ(build_apart(dir, NULL), ALL_COMPILED);
}

TEST(a_cache_below_a_folder_that_others_may_rename_is_not_used) {
  need_compiler();
  const char *words = "a folder above it";
  char above[512], link_to[512], below[600];
  snprintf(above, sizeof above, "%s/above", test_dir());
  snprintf(link_to, sizeof link_to, "%s/link", test_dir());
  snprintf(below, sizeof below, "%s/mine", above);
  CHECK(!mkdir(above, 0700));
  CHECK(!symlink(above, link_to));
  CHECK(!chmod(above, 0777));
  check_words(below, NULL, ALL_COMPILED, words);
  snprintf(below, sizeof below, "%s/mine", link_to);
  check_words(below, NULL, ALL_COMPILED, words);
  CHECK(!chmod(above, 01777)); /* as /tmp is */
  CHECK_EQ(build_apart(below, NULL), ALL_COMPILED);
  CHECK_EQ(build_apart(below, NULL), ALL_CACHED);
  CHECK(!chmod(above, 0755));
  CHECK_EQ(build_apart(below, NULL), ALL_CACHED);
  if (geteuid()) return;
  CHECK(!chown(above, NOBODY, NOBODY));
  check_words(below, NULL, ALL_COMPILED, words);
}

/* A link that leads elsewhere as soon as it was resolved. */
static const char *moving_link, *moves_to;
char *realpath(const char *restrict path, char *restrict real) {
  char *(*next)(const char *, char *);
  void *found = dlsym(RTLD_NEXT, "realpath");
  memcpy(&next, &found, sizeof next);
  char *got = next(path, real);
  if (!moving_link) return got;
  CHECK(!unlink(moving_link));
  CHECK(!symlink(moves_to, moving_link));
  moving_link = NULL;
  return got;
}

TEST(the_cache_folder_that_is_used_is_the_one_that_was_checked) {
  char ours[512], theirs[512], way[512];
  jit_cache c;
  snprintf(ours, sizeof ours, "%s/ours", test_dir());
  snprintf(theirs, sizeof theirs, "%s/theirs", test_dir());
  snprintf(way, sizeof way, "%s/way", test_dir());
  CHECK(!mkdir(ours, 0700));
  CHECK(!mkdir(theirs, 0777));
  CHECK(!chmod(theirs, 0777));
  CHECK(!symlink(ours, way));
  moves_to = theirs;
  moving_link = way;
  CHECK_OK(jit_cache_open(way, &c));
  CHECK(!moving_link);
  CHECK_STR(c.dir ? c.dir : "none", ours);
  jit_cache_close(&c);
}

static void give_away(const char *path) { CHECK(!chown(path, NOBODY, NOBODY)); }

TEST(a_read_only_cache_is_read) {
  if (geteuid()) test_skip("needs root");
  need_compiler();
  char base[] = "/tmp/hyper-test-jit-XXXXXX", dir[64], tmp[64]; /* where another user may go */
  CHECK(mkdtemp(base));
  snprintf(dir, sizeof dir, "%s/cache", base);
  snprintf(tmp, sizeof tmp, "%s/tmp", base);
  CHECK_EQ(build_apart(dir, NULL), ALL_COMPILED);
  each_object(dir, give_away);
  give_away(dir);
  CHECK(!chmod(dir, 0500));
  CHECK(!mkdir(tmp, 0777) && !chmod(tmp, 0777) && !chmod(base, 0755));
  fflush(stdout);
  pid_t pid = fork();
  if (pid == 0) {
    setenv("TMPDIR", tmp, 1);
    if (setegid(NOBODY) || seteuid(NOBODY)) _exit(77);
    loop_module_stats read = build(dir, NULL), made = build(dir, "gcc");
    bool apart = made.compiled == KERNELS || made.cached == KERNELS;
    _exit(read.cached == KERNELS && apart ? 0 : 1);
  }
  int status;
  CHECK_EQ(waitpid(pid, &status, 0), pid);
  int kept = each_object(dir, NULL);
  CHECK_OK(dir_remove(base));
  CHECK_EQ(status, 0);
  CHECK_EQ(kept, KERNELS);
}

TEST(a_cache_mounted_noexec_is_loaded_from_memory) {
  need_compiler();
  const char *dir = in_dir("noexec");
  CHECK(!mkdir(dir, 0700));
  if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
      mount("none", dir, "tmpfs", MS_NOEXEC, "mode=0700"))
    test_skip("cannot mount");
  CHECK_EQ(build_apart(dir, NULL), ALL_COMPILED);
  CHECK_EQ(build_apart(dir, NULL), ALL_CACHED);
  umount(dir);
}

TEST(a_host_that_ignores_its_children_can_compile) {
  need_compiler();
  signal(SIGCHLD, SIG_IGN);
  CHECK_EQ(build(in_dir("cache"), NULL).compiled, KERNELS);
}

TEST(running_out_of_memory_while_building_is_a_clean_failure) {
  loop l;
  loop_case_parse(texts[1], &l);
  const char *dir = in_dir("cache");
  log_set_level(LOG_ERROR);
  for (uint64_t n = 1; n < 500; n++) {
    loop_module *m;
    loop_kernel *k;
    mem_fail_at(n);
    hp_status st = loop_module_create(&(loop_options){.cache_dir = dir, .cc = "/nonexistent"}, &m);
    if (!st) {
      st = loop_module_add(m, &l, &k);
      if (!st) st = loop_module_build(m);
      loop_module_free(m);
    }
    mem_fail_at(0);
    if (!st && n > 50) break;
    CHECK(!st || st == HP_ERR_OOM);
    err_clear();
    CHECK(n < 499);
  }
  loop_free(&l);
}
