/* Files and folders that are removed and written beside what somebody has planted. */
#include "base/io.h"
#include "test.h"
#include "train/checkpoint.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* A path in the test's folder; the last few stay valid. */
static const char *at(const char *name) {
  static str text[8];
  static int next;
  str *t = &text[next++ % 8];
  CHECK_OK(path_join(t, test_dir(), name));
  return t->at;
}

/* A name with the number of a process in it. */
static const char *named(const char *before, pid_t pid, const char *after) {
  static str text;
  str_clear(&text);
  str_printf(&text, "%s%ld%s", before, (long)pid, after);
  CHECK_OK(str_status(&text));
  return text.at;
}

static void put(const char *name) { CHECK_OK(file_write(at(name), "precious", 8)); }
static void make_link(const char *to, const char *name) { CHECK(!symlink(to, at(name))); }

TEST(removing_a_folder_follows_no_link) {
  CHECK_OK(dir_create(at("precious/deep")));
  put("precious/a");
  put("precious/deep/b");
  make_link(at("precious"), "top");
  CHECK_OK(dir_remove(at("top")));
  CHECK(!path_exists(at("top")));
  make_link(at("precious"), "top");
  CHECK_OK(dir_remove(at("top/")));
  CHECK(!path_exists(at("top")));
  CHECK_OK(dir_create(at("mine/sub/sub")));
  put("mine/sub/sub/c");
  make_link(at("precious"), "mine/folder");
  make_link(at("precious/a"), "mine/sub/file");
  make_link("nowhere", "mine/sub/sub/nothing");
  CHECK_OK(dir_remove(at("mine")));
  CHECK(!path_exists(at("mine")));
  CHECK(file_exists(at("precious/a")) && file_exists(at("precious/deep/b")));
}

TEST(removing_takes_whatever_has_the_name) {
  put("file");
  CHECK_OK(dir_remove(at("file")));
  CHECK(!path_exists(at("file")));
  CHECK(!mkfifo(at("pipe"), 0600));
  CHECK_OK(dir_remove(at("pipe"))); /* and waits for no writer */
  CHECK(!path_exists(at("pipe")));
  CHECK_OK(dir_remove(at("not-there")));
  CHECK_OK(dir_remove(at("not-there/nor-this")));
  CHECK_FAILS(dir_remove(at(".")), "expected the name of a folder");
  CHECK_FAILS(dir_remove(at("..")), "expected the name of a folder");
  CHECK_FAILS(dir_remove("/"), "expected the name of a folder");
  CHECK_FAILS(dir_create_new(test_dir()), "File exists");
}

TEST(parents_of_paths) {
  static const char *const cases[][2] = {{"a", "."},       {"a/b", "a"},   {"/a", "/"},
                                         {"a/b/c", "a/b"}, {"a/b/", "a"},  {"a//b", "a"},
                                         {"/", "/"},       {"/a/b", "/a"}, {"a/", "."}};
  str out = {0};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    CHECK_OK(path_parent(cases[i][0], &out));
    CHECK_STR(out.at, cases[i][1]);
  }
  str_free(&out);
}

TEST(temporary_files_are_new_ones) {
  file_writer a, b;
  CHECK_OK(file_write(at("target"), "old", 3));
  /* the name that earlier versions used, which anybody could guess */
  make_link(at("target"), named("f.tmp.", getpid(), ""));
  CHECK_OK(file_writer_open(at("f"), &a));
  CHECK_OK(file_writer_open(at("f"), &b));
  CHECK(strcmp(a.temp, b.temp) != 0);
  CHECK_OK(file_writer_write(&a, "a", 1));
  CHECK_OK(file_writer_write(&b, "b", 1));
  CHECK_OK(file_writer_commit(&a));
  CHECK_OK(file_writer_commit(&b));
  char *text;
  size_t n;
  CHECK_OK(file_read(at("f"), 0, &text, &n));
  CHECK_STR(text, "b");
  mem_free(text);
  CHECK_OK(file_read(at("target"), 0, &text, &n));
  CHECK_STR(text, "old");
  mem_free(text);
}

TEST(what_dead_writers_left_is_removed_and_nothing_else) {
  static const char model[] = "model.safetensors.new.tmp.";
  pid_t dead = fork();
  if (!dead) _exit(0);
  CHECK(waitpid(dead, NULL, 0) == dead);
  pid_t pid[] = {dead, getpid(), getppid()}; /* the last one lives */
  for (int i = 0; i < 3; i++) {
    put(named(model, pid[i], ""));
    put(named(model, pid[i], "-0123abcd"));
  }
  static const char *const stays[][2] = {{"", ""},           {"x.tmp.", "-0123abc"},
                                         {"x.tmp.", ".bak"}, {"x.tmp.", "-0123abcde"},
                                         {"x.tmp.-", ""},    {".tmp.", ""},
                                         {"x.tmp", ""},      {"x.tmp.", "-0123abcz"}};
  enum { STAYS = sizeof stays / sizeof *stays };
  for (int i = 0; i < STAYS; i++) put(named(stays[i][0], dead, stays[i][1]));
  make_link(at("pre"), named("link.tmp.", dead, ""));
  CHECK_OK(dir_create(at(named("folder.tmp.", dead, ""))));
  CHECK_OK(checkpoint_clean(test_dir()));
  for (int i = 0; i < 3; i++) {
    CHECK_EQ(path_exists(at(named(model, pid[i], ""))), i == 2);
    CHECK_EQ(path_exists(at(named(model, pid[i], "-0123abcd"))), i == 2);
  }
  for (int i = 0; i < STAYS; i++) CHECK(path_exists(at(named(stays[i][0], dead, stays[i][1]))));
  CHECK(path_exists(at(named("link.tmp.", dead, ""))));
  CHECK(path_exists(at(named("folder.tmp.", dead, ""))));
}

static hp_status write_nothing(void *context, const char *dir) {
  (void)context, (void)dir;
  return HP_OK;
}

static void save_step(int64_t step) {
  checkpoint_text text = {"state.json", "{}", 2};
  checkpoint_content c =
      {.write = write_nothing, .text = &text, .n_text = 1, .step = step, .state = "{}", .run = 1};
  CHECK_OK(checkpoint_save(test_dir(), &c));
}

TEST(links_that_look_like_checkpoints_lead_to_what_stays) {
  CHECK_OK(dir_create(at("precious")));
  put("precious/a");
  make_link(at("precious"), ".tmp-checkpoint-7-1");
  make_link(at("precious"), ".old-checkpoint-8");
  CHECK_OK(checkpoint_clean(test_dir()));
  CHECK(!path_exists(at(".tmp-checkpoint-7-1")) && !path_exists(at(".old-checkpoint-8")));
  make_link(at("precious"), ".tmp-checkpoint-1-1"); /* where the next save writes */
  save_step(1);
  CHECK(file_exists(at("precious/a")) && !file_exists(at("precious/state.json")));
  /* moved to another disk, and linked */
  CHECK(!rename(at("checkpoint-1"), at("elsewhere")));
  make_link(at("elsewhere"), "checkpoint-1");
  save_step(2);
  save_step(3);
  CHECK_OK(checkpoint_prune(test_dir(), 2, -1));
  CHECK(!path_exists(at("checkpoint-1")));
  CHECK(file_exists(at("elsewhere/state.json")) && file_exists(at("elsewhere/MANIFEST.json")));
  make_link(at("target"), "run.lock");
  CHECK_OK(file_write(at("target"), "precious", 8));
  run_lock *l;
  CHECK_FAILS(run_lock_take(test_dir(), &l), "symbolic link");
  struct stat s;
  CHECK(!stat(at("target"), &s) && s.st_size == 8);
}
