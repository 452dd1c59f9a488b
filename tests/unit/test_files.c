/* Files and folders that are removed and written next to what somebody has planted. */
#include "base/file_record.h"
#include "base/io.h"
#include "test.h"
#include "ckpt/checkpoint.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
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

static void change_byte(const char *path, long offset) {
  unsigned char c;
  FILE *f = fopen(path, "r+b");
  CHECK(f && !fseek(f, offset, SEEK_SET) && fread(&c, 1, 1, f) == 1);
  c ^= 4;
  CHECK(!fseek(f, offset, SEEK_SET) && fwrite(&c, 1, 1, f) == 1 && !fclose(f));
}

/* A name of a temporary file of that process, on this machine or another. */
static const char *temp_of(pid_t pid, bool here) {
  static char name[64];
  snprintf(name, sizeof name, "x.tmp.%ld-%08x-0123abcd", (long)pid, dir_machine() ^ !here);
  return name;
}

TEST(whether_a_writer_lives_is_judged_on_its_own_machine) {
  const struct timespec long_ago[] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
  pid_t dead = fork();
  if (!dead) _exit(0);
  CHECK(waitpid(dead, NULL, 0) == dead);
  for (int i = 0; i < 4; i++) put(temp_of(i & 1 ? dead : getppid(), i & 2));
  /* nobody holds a lock: one of another machine may be written just now, though its number is
   * another process's here */
  CHECK_OK(dir_remove_leftovers(test_dir(), false));
  CHECK(path_exists(at(temp_of(getppid(), true))) && !path_exists(at(temp_of(dead, true))));
  CHECK(path_exists(at(temp_of(getppid(), false))) && path_exists(at(temp_of(dead, false))));
  CHECK(!utimensat(AT_FDCWD, at(temp_of(dead, false)), long_ago, 0));
  CHECK_OK(dir_remove_leftovers(test_dir(), false));
  CHECK(path_exists(at(temp_of(getppid(), false))) && !path_exists(at(temp_of(dead, false))));
  /* who holds the lock of the folder knows that nobody elsewhere writes there */
  CHECK_OK(checkpoint_clean(test_dir()));
  CHECK(path_exists(at(temp_of(getppid(), true))) && !path_exists(at(temp_of(getppid(), false))));
}

TEST(a_writer_whose_end_nobody_has_noticed_is_gone) {
  siginfo_t end;
  pid_t zombie = fork();
  if (!zombie) _exit(0);
  CHECK(!waitid(P_PID, (id_t)zombie, &end, WEXITED | WNOWAIT));
  put(temp_of(zombie, true));
  CHECK(!kill(zombie, 0));
  CHECK_OK(dir_remove_leftovers(test_dir(), false));
  CHECK(!path_exists(at(temp_of(zombie, true))));
  CHECK(waitpid(zombie, NULL, 0) == zombie);
}

TEST(the_lock_of_a_run_names_its_machine) {
  run_lock *l;
  char *text, host[256] = "", mine[300];
  size_t n;
  CHECK(!gethostname(host, sizeof host - 1));
  CHECK_OK(file_write(at("run.lock"), "1 on nowhere\n", 13));
  CHECK_OK(run_lock_take(test_dir(), &l)); /* which tells it */
  snprintf(mine, sizeof mine, "%ld on %s\n", (long)getpid(), host);
  CHECK_OK(file_read(at("run.lock"), 0, &text, &n));
  CHECK_STR(text, mine);
  mem_free(text);
  run_lock_free(l);
}

TEST(a_list_of_files_that_is_damaged_is_refused) {
  file_record *r, *all;
  CHECK_OK(file_record_begin(at("of"), &r));
  CHECK_OK(dir_create(at("of")));
  CHECK_OK(file_write(at("of/a"), "1", 1));
  CHECK_OK(file_record_save(r, at("sums")));
  CHECK_OK(file_record_begin("elsewhere", &all));
  CHECK_OK(file_record_merge(all, at("sums")));
  CHECK(file_record_count(all) == 1 && file_record_find(all, "a")->bytes == 1);
  change_byte(at("sums"), 0);
  CHECK_FAILS(file_record_merge(all, at("sums")), "sums: its hash does not match");
  CHECK(!truncate(at("sums"), 20));
  CHECK_FAILS(file_record_merge(all, at("sums")), "sums: is truncated");
  file_record_end(r);
  file_record_end(all);
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
  CHECK_OK(checkpoint_prune(test_dir(), &(checkpoint_limit){.keep = 2, .saved = 3, .best = -1}));
  CHECK(!path_exists(at("checkpoint-1")));
  CHECK(file_exists(at("elsewhere/state.json")) && file_exists(at("elsewhere/MANIFEST.json")));
  make_link(at("target"), "run.lock");
  CHECK_OK(file_write(at("target"), "precious", 8));
  run_lock *l;
  CHECK_FAILS(run_lock_take(test_dir(), &l), "symbolic link");
  struct stat s;
  CHECK(!stat(at("target"), &s) && s.st_size == 8);
}

TEST(what_the_disk_made_of_a_file_is_compared_with_what_was_meant) {
  enum { MIB = 1 << 20, BYTES = 2 * MIB + 12345 };
  static const struct {
    long flip, cut;
    const char *says;
  } cases[] = {{0, -1, "from byte 0 to 1048575"},
               {MIB - 1, -1, "from byte 0 to 1048575"},
               {MIB, -1, "from byte 1048576 to 2097151"},
               {BYTES - 1, -1, "from byte 2097152 to 2109496"},
               {-1, BYTES - 1, "has 2109496 bytes, 2109497 were written"},
               {-1, MIB, "has 1048576 bytes"},
               {-1, 0, "has 0 bytes"},
               {-1, BYTES + 1, "is longer than the 2109497 bytes"}};
  unsigned char *bytes = mem_calloc(BYTES, 1);
  CHECK(bytes != NULL);
  for (int i = 0; i < BYTES; i++) bytes[i] = (unsigned char)(i * 31 + i / 7);
  CHECK_OK(file_write(at("f"), "old", 3));
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    file_writer w;
    CHECK_OK(file_writer_open(at("f"), &w));
    CHECK_OK(file_writer_write(&w, bytes, 100)); /* as a header comes */
    CHECK_OK(file_writer_write(&w, bytes + 100, BYTES - 100));
    if (cases[i].flip >= 0) change_byte(w.temp, cases[i].flip);
    if (cases[i].cut >= 0) CHECK(!truncate(w.temp, cases[i].cut));
    CHECK_FAILS(file_writer_commit(&w), cases[i].says);
  }
  char *text;
  size_t n;
  CHECK_OK(file_read(at("f"), 0, &text, &n));
  CHECK_STR(text, "old");
  mem_free(text);
  CHECK_OK(file_write(at("f"), bytes, BYTES));
  CHECK_OK(file_read(at("f"), 0, &text, &n));
  CHECK(n == BYTES && !memcmp(text, bytes, n));
  mem_free(text);
  mem_free(bytes);
}

/* Damages a file once all have been written, before the manifest is. */
static hp_status damage_then_agree(void *context, hp_status mine) {
  int *asked = context;
  str path = {0};
  CHECK_OK(path_join(&path, test_dir(), ".tmp-checkpoint-1-1/tensors"));
  if (++*asked == 2) change_byte(path.at, 3);
  str_free(&path);
  return mine;
}

static hp_status write_tensors(void *context, const char *dir) {
  str path = {0};
  (void)context;
  CHECK_OK(path_join(&path, dir, "tensors.new"));
  CHECK_OK(file_write(path.at, "1234567", 7));
  const char *from = path.at;
  str to = {0};
  CHECK_OK(path_join(&to, dir, "tensors"));
  CHECK_OK(file_rename(from, to.at));
  str_free(&path);
  str_free(&to);
  return HP_OK;
}

TEST(a_manifest_holds_what_was_meant_not_what_is_there) {
  int asked = 0;
  checkpoint c;
  checkpoint_content content = {.write = write_tensors,
                                .agree = damage_then_agree,
                                .ctx = &asked,
                                .step = 1,
                                .state = "{}",
                                .run = 1};
  CHECK_OK(checkpoint_save(test_dir(), &content));
  CHECK_FAILS(checkpoint_verify(at("checkpoint-1"), &c), "checkpoint-1/tensors");
}

static hp_status write_behind(void *context, const char *dir) {
  str path = {0};
  (void)context;
  CHECK_OK(path_join(&path, dir, "stranger"));
  FILE *f = fopen(path.at, "w");
  CHECK(f && !fclose(f));
  str_free(&path);
  return HP_OK;
}

static hp_status write_and_lose(void *context, const char *dir) {
  str path = {0};
  HP_TRY(write_tensors(context, dir));
  CHECK_OK(path_join(&path, dir, "tensors"));
  CHECK(!unlink(path.at));
  str_free(&path);
  return HP_OK;
}

TEST(files_that_nobody_wrote_or_that_are_lost_fail_a_save) {
  checkpoint_content c = {.write = write_behind, .step = 1, .state = "{}", .run = 1};
  CHECK_FAILS(checkpoint_save(test_dir(), &c), "stranger: is there, but no process");
  c.write = write_and_lose;
  CHECK_FAILS(checkpoint_save(test_dir(), &c), "holds 0 files, 1 were written");
  CHECK(!path_exists(at("checkpoint-1")) && !path_exists(at(".tmp-checkpoint-1-1")));
}
