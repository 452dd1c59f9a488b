/* Checkpoints that several processes save together; here threads stand for them. */
#include "base/sealed.h"
#include "base/io.h"
#include "test.h"
#include "ckpt/checkpoint.h"

#include <dirent.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>

enum { PROCESSES = 3 };

typedef struct {
  pthread_barrier_t all;
  hp_status said[PROCESSES];
  int fails, when; /* who fails, when it is asked so many times; -1: nobody */
  const char *dir; /* made before the threads */
} job;

typedef struct {
  job *j;
  int number, asked;
  hp_status result;
  pthread_t thread;
} process;

static hp_status agree(void *context, hp_status mine) {
  process *p = context;
  if (p->number == p->j->fails && p->asked++ == p->j->when)
    mine = err_set(HP_ERR_IO, __FILE__, __LINE__, "a disk is full");
  p->j->said[p->number] = mine;
  pthread_barrier_wait(&p->j->all);
  hp_status first = HP_OK;
  for (int i = 0; i < PROCESSES && !first; i++) first = p->j->said[i];
  pthread_barrier_wait(&p->j->all);
  if (first && !mine) err_set(first, __FILE__, __LINE__, "another process has failed");
  return first;
}

static hp_status write_part(void *context, const char *dir) {
  const process *p = context;
  str path = {0};
  char name[16];
  snprintf(name, sizeof name, "part-%d", p->number);
  hp_status st = path_join(&path, dir, name);
  if (!st) st = file_write(path.at, name, strlen(name));
  str_free(&path);
  return st;
}

static void *save(void *context) {
  process *p = context;
  checkpoint_text text = {"state.json", "{}", 2};
  checkpoint_content c = {.write = write_part,
                          .agree = agree,
                          .ctx = p,
                          .follows = p->number != 1,
                          .text = &text,
                          .n_text = p->number == 1,
                          .step = 4,
                          .state = "{}",
                          .run = 99};
  p->result = checkpoint_save(p->j->dir, &c);
  return NULL;
}

static void save_together(int fails, int when, hp_status want) {
  job j = {.fails = fails, .when = when, .dir = test_dir()};
  process p[PROCESSES];
  pthread_barrier_init(&j.all, NULL, PROCESSES);
  for (int i = 0; i < PROCESSES; i++) {
    p[i] = (process){.j = &j, .number = i};
    CHECK(!pthread_create(&p[i].thread, NULL, save, &p[i]));
  }
  for (int i = 0; i < PROCESSES; i++) {
    pthread_join(p[i].thread, NULL);
    CHECK_EQ(p[i].result, want);
  }
  pthread_barrier_destroy(&j.all);
}

static int files_in(const char *dir) {
  int n = 0;
  DIR *d = opendir(dir);
  CHECK(d != NULL);
  while (readdir(d)) n++;
  closedir(d);
  return n - 2;
}

TEST(a_checkpoint_of_several_processes_has_the_shards_of_all) {
  char dir[512];
  checkpoint c;
  save_together(-1, 0, HP_OK);
  save_together(-1, 0, HP_OK);
  snprintf(dir, sizeof dir, "%s/checkpoint-4", test_dir());
  CHECK_OK(checkpoint_verify(dir, &c));
  CHECK_EQ(tree_get(c.manifest.root, "files")->len, PROCESSES + 1);
  checkpoint_free(&c);
  CHECK_EQ(files_in(test_dir()), 1);
}

TEST(where_one_process_fails_all_do_and_nothing_is_left) {
  for (int fails = 0; fails < PROCESSES; fails++)
    for (int when = 0; when < 2; when++) {
      save_together(fails, when, HP_ERR_IO);
      CHECK_EQ(files_in(test_dir()), 0);
    }
}

/* --- lock ------------------------------------------------------------------------------------- */

static char *in_test(const char *name) {
  static char path[4][512];
  static int k;
  k = (k + 1) % 4;
  snprintf(path[k], sizeof path[k], "%s/%s", test_dir(), name);
  return path[k];
}

/* A process that can open no file any more. */
TEST(a_lock_that_cannot_be_opened_leaves_that_of_another_run) {
  run_lock *held, *other;
  struct rlimit was, none;
  CHECK_OK(run_lock_take(test_dir(), &held));
  CHECK(!getrlimit(RLIMIT_NOFILE, &was));
  none = was;
  none.rlim_cur = 0;
  CHECK(!setrlimit(RLIMIT_NOFILE, &none));
  hp_status st = run_lock_take(test_dir(), &other);
  CHECK(!setrlimit(RLIMIT_NOFILE, &was));
  CHECK_EQ(st, HP_ERR_IO);
  CHECK(strstr(err_message(), "run.lock: cannot create"));
  err_clear();
  CHECK(path_exists(in_test("run.lock")));
  run_lock_free(held);
  CHECK(!path_exists(in_test("run.lock")));
}

/* --- what has the name ------------------------------------------------------------------------ */

static void save_of(const run_line *line) {
  checkpoint_text text = {"state.json", "{}", 2};
  checkpoint_content c = {.text = &text, .n_text = 1, .step = 7, .state = "{}", .line = line};
  CHECK_OK(checkpoint_save(test_dir(), &c));
}

static bool is_of(const char *path, const run_line *line) {
  checkpoint c;
  run_line l;
  CHECK_OK(checkpoint_verify(path, &c));
  CHECK_OK(run_line_parse(c.manifest.root, &l));
  bool is = !strcmp(l.id, line->id);
  checkpoint_free(&c);
  run_line_free(&l);
  return is;
}

TEST(what_is_not_of_the_run_makes_room_for_a_checkpoint_and_stays) {
  run_line a, b;
  CHECK_OK(run_line_create(&a));
  CHECK_OK(run_line_create(&b));
  CHECK_OK(dir_create(in_test("checkpoint-7")));
  CHECK_OK(file_write(in_test("checkpoint-7/pytorch_model.bin"), "weights", 7));
  save_of(&a);
  CHECK(path_exists(in_test("replaced-checkpoint-7/pytorch_model.bin")));
  CHECK(is_of(in_test("checkpoint-7"), &a));
  save_of(&a); /* its own is replaced */
  CHECK(!path_exists(in_test("replaced-checkpoint-7-2")));
  save_of(&b); /* one of another run */
  CHECK(is_of(in_test("checkpoint-7"), &b) && is_of(in_test("replaced-checkpoint-7-2"), &a));
  CHECK_OK(file_write(in_test("checkpoint-7/MANIFEST.json"), "{}", 2));
  save_of(&b); /* one whose run cannot be known */
  CHECK(is_of(in_test("checkpoint-7"), &b));
  CHECK(path_exists(in_test("replaced-checkpoint-7-3/MANIFEST.json")));
  CHECK_EQ(files_in(test_dir()), 4);
  run_line_free(&a);
  run_line_free(&b);
}

/* Lets so many renames be, then refuses. */
static hp_status refuse_after(void *left) {
  if ((*(int *)left)--) return HP_OK;
  HP_FAIL(HP_ERR_INPUT, "the folder is another run's");
}

TEST(a_save_asks_before_each_rename_and_leaves_all_as_it_was_when_refused) {
  checkpoint_text text = {"state.json", "{}", 2};
  int left = 0;
  checkpoint_content c = {.text = &text,
                          .n_text = 1,
                          .step = 7,
                          .state = "{}",
                          .may_commit = refuse_after,
                          .ctx = &left};
  CHECK_FAILS(checkpoint_save(test_dir(), &c), "another run's");
  CHECK_EQ(files_in(test_dir()), 0);
  CHECK_OK(dir_create(in_test("checkpoint-7"))); /* somebody's */
  left = 0;
  CHECK_FAILS(checkpoint_save(test_dir(), &c), "another run's");
  CHECK_EQ(files_in(test_dir()), 1);
  CHECK(path_exists(in_test("checkpoint-7")));
  left = 1;
  CHECK_FAILS(checkpoint_save(test_dir(), &c), "another run's");
  CHECK_EQ(files_in(test_dir()), 1);
  CHECK(path_exists(in_test("replaced-checkpoint-7")));
  left = 1;
  CHECK_OK(checkpoint_save(test_dir(), &c));
  CHECK(path_exists(in_test("checkpoint-7/MANIFEST.json")));
}

/* The manifest with another text in place of one that it has, sealed again. */
static void change_manifest(const char *path, const char *was, const char *becomes) {
  char *text;
  size_t n, body;
  str changed = {0};
  CHECK_OK(file_read(path, 0, &text, &n));
  CHECK_OK(sealed_check(path, text, n, &body));
  const char *at = strstr(text, was);
  CHECK(at);
  str_printf(&changed, "%.*s%s%.*s", (int)(at - text), text, becomes,
             (int)(text + body - at - (ptrdiff_t)strlen(was)), at + strlen(was));
  sealed_close(&changed);
  CHECK_OK(str_status(&changed));
  CHECK_OK(file_write(path, changed.at, changed.len));
  str_free(&changed);
  mem_free(text);
}

TEST(a_checkpoint_of_another_format_is_refused_with_both_numbers) {
  run_line a, line;
  checkpoint c;
  CHECK_OK(run_line_create(&a));
  save_of(&a);
  change_manifest(in_test("checkpoint-7/MANIFEST.json"), "\"format\": 1", "\"format\": 2");
  CHECK_FAILS(checkpoint_open(in_test("checkpoint-7"), &c),
              "format 2; this version reads format 1");
  change_manifest(in_test("checkpoint-7/MANIFEST.json"), "\"format\": 2", "\"format\": 1");
  change_manifest(in_test("checkpoint-7/MANIFEST.json"), "\"line\"", "\"what\"");
  CHECK_OK(checkpoint_verify(in_test("checkpoint-7"), &c)); /* from before there were lines */
  CHECK_OK(run_line_parse(c.manifest.root, &line));
  CHECK_STR(line.id, "00000000000000000000000000000000");
  run_line_free(&line);
  run_line_free(&a);
  checkpoint_free(&c);
}

/* Longer than any buffer for a path that one might think of, and shorter than the system's limit.
 */
TEST(a_checkpoint_of_a_long_path_can_be_opened_again) {
  enum { PARTS = 8, LENGTH = 200 };
  str dir = {0}, path = {0};
  char part[LENGTH + 2] = "/";
  memset(part + 1, 'd', LENGTH);
  str_add(&dir, test_dir());
  for (int i = 0; i < PARTS; i++) str_add(&dir, part);
  CHECK_OK(str_status(&dir));
  CHECK_OK(dir_create(dir.at));
  checkpoint_content c = {.step = 7, .state = "{}"};
  CHECK_OK(checkpoint_save(dir.at, &c));
  CHECK_OK(checkpoint_path(dir.at, 7, &path));
  checkpoint back;
  bool found;
  str skipped = {0};
  CHECK_OK(checkpoint_newest(dir.at, NULL, NULL, &back, &found, &skipped));
  CHECK(found);
  CHECK_STR(back.path, path.at);
  checkpoint_free(&back);
  str_free(&skipped);
  str_free(&path);
  str_free(&dir);
}
