/* Which checkpoints of a folder are kept, resumed and set aside. */
#include "base/io.h"
#include "base/log.h"
#include "ckpt/manifest.h"
#include "test.h"
#include "ckpt/checkpoint.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char *at(const char *name) {
  static char path[4][512];
  static int k;
  k = (k + 1) % 4;
  snprintf(path[k], sizeof path[k], "%s/%s", test_dir(), name);
  return path[k];
}

static char *of_step(int64_t step) {
  char name[64];
  snprintf(name, sizeof name, "checkpoint-%lld", (long long)step);
  return at(name);
}

static bool is_there(int64_t step) { return path_exists(of_step(step)); }

static void save_step(const run_line *line, int64_t step) {
  checkpoint_text text = {"weights", "good weights", 12};
  checkpoint_content c = {.text = &text, .n_text = 1, .step = step, .state = "{}", .line = line};
  CHECK_OK(checkpoint_save(test_dir(), &c));
}

/* One byte of its data is changed. */
static void damage(int64_t step) {
  char path[600];
  snprintf(path, sizeof path, "%s/weights", of_step(step));
  FILE *f = fopen(path, "r+b");
  CHECK(f != NULL);
  CHECK_EQ(fputc('G', f), 'G');
  fclose(f);
}

static void damage_manifest(int64_t step) {
  char path[600];
  snprintf(path, sizeof path, "%s/%s", of_step(step), MANIFEST_NAME);
  CHECK(!truncate(path, 40));
}

static void put(const char *path, const char *bytes, size_t n) {
  FILE *f = fopen(path, "wb");
  CHECK(f && fwrite(bytes, 1, n, f) == n && !fclose(f));
}

static run_line new_line(void) {
  run_line l;
  CHECK_OK(run_line_create(&l));
  return l;
}

static run_line branch_of(const run_line *of, int64_t step) {
  run_line l;
  CHECK_OK(run_line_branch(of, step, of_step(step), true, &l));
  return l;
}

static void prune(const run_line *line, int64_t keep, int64_t saved, int64_t best) {
  checkpoint_memo memo = {0};
  checkpoint_limit limit = {line, keep, saved, best, &memo};
  CHECK_OK(checkpoint_prune(test_dir(), &limit));
  checkpoint_memo_free(&memo);
}

/* The step that a run of the line goes on from, -1: none. */
static int64_t newest(const run_line *line) {
  checkpoint c;
  bool found;
  str skipped = {0};
  CHECK_OK(checkpoint_newest(test_dir(), line, NULL, &c, &found, &skipped));
  int64_t step = found ? c.step : -1;
  if (found) checkpoint_free(&c);
  str_free(&skipped);
  return step;
}

TEST(pruning_keeps_as_many_as_it_is_told_and_never_less_than_two) {
  run_line l = new_line();
  for (int64_t keep = 1; keep <= 4; keep++) {
    for (int64_t s = 1; s <= 6; s++) save_step(&l, s);
    prune(&l, keep, 6, -1);
    int64_t left = keep < 2 ? 2 : keep;
    for (int64_t s = 1; s <= 6; s++) CHECK_EQ(is_there(s), s > 6 - left);
  }
  CHECK_EQ(CHECKPOINTS_LEAST, 2);
  for (int64_t s = 1; s <= 6; s++) save_step(&l, s);
  prune(&l, 0, 6, -1);
  prune(&l, -1, 6, -1);
  for (int64_t s = 1; s <= 6; s++) CHECK(is_there(s));
  run_line_free(&l);
}

TEST(a_damaged_checkpoint_does_not_count_and_stays) {
  run_line l = new_line();
  for (int64_t s = 1; s <= 4; s++) save_step(&l, s);
  save_step(&l, 500);
  damage(500);
  prune(&l, 1, 4, -1);
  CHECK(is_there(500) && is_there(4) && is_there(3) && !is_there(2) && !is_there(1));
  CHECK_EQ(newest(&l), 4);
  damage(4);
  save_step(&l, 5);
  prune(&l, 2, 5, -1);
  CHECK(is_there(500) && is_there(5) && is_there(4) && is_there(3));
  CHECK_EQ(newest(&l), 5);
  damage_manifest(5);
  save_step(&l, 6);
  prune(&l, 2, 6, -1);
  CHECK(is_there(6) && is_there(5) && is_there(4) && is_there(3));
  save_step(&l, 7); /* 4 is older than two that verify, and nobody can know what 5 was */
  prune(&l, 2, 7, -1);
  CHECK(is_there(7) && is_there(6) && is_there(5) && !is_there(4) && !is_there(3));
  run_line_free(&l);
}

TEST(a_checkpoint_with_the_name_of_another_step_does_not_count) {
  run_line l = new_line();
  for (int64_t s = 1; s <= 5; s++) save_step(&l, s);
  CHECK(!rename(of_step(5), of_step(500)));
  prune(&l, 1, 4, -1);
  CHECK(is_there(500) && is_there(4) && is_there(3) && !is_there(2));
  CHECK_EQ(newest(&l), 4);
  checkpoint c; /* by its name it can be had */
  CHECK_OK(checkpoint_verify(of_step(500), &c));
  CHECK_EQ(c.step, 5);
  checkpoint_free(&c);
  run_line_free(&l);
}

TEST(the_saved_one_and_the_best_one_are_never_deleted) {
  run_line l = new_line();
  for (int64_t s = 1; s <= 6; s++) save_step(&l, s);
  prune(&l, 2, 6, 2);
  CHECK(!is_there(1) && is_there(2) && !is_there(3) && !is_there(4) && is_there(5) && is_there(6));
  for (int64_t s = 1; s <= 6; s++) save_step(&l, s);
  prune(&l, 2, 3, -1); /* a save next to newer ones, which were unreadable for a while */
  CHECK(is_there(6) && is_there(3));
  CHECK(!is_there(1) && !is_there(2) && !is_there(4) && !is_there(5));
  run_line_free(&l);
}

TEST(other_lines_are_neither_counted_nor_deleted_nor_resumed) {
  run_line a = new_line();
  for (int64_t s = 1; s <= 20; s++) save_step(&a, s);
  run_line b = branch_of(&a, 5);
  CHECK_EQ(newest(&b), 5);
  save_step(&b, 8);
  prune(&b, 1, 8, -1);
  CHECK(is_there(8) && is_there(5) && !is_there(4) && is_there(9) && is_there(20));
  CHECK_EQ(newest(&b), 8);
  CHECK_EQ(newest(&a), 20);
  damage(8);
  CHECK_EQ(newest(&b), 5);
  damage(5);
  CHECK_EQ(newest(&b), -1);
  run_line_free(&a);
  run_line_free(&b);
}

TEST(what_is_known_is_not_read_again_until_a_file_changes) {
  run_line l = new_line();
  checkpoint_memo memo = {0};
  for (int64_t s = 1; s <= 3; s++) save_step(&l, s);
  for (int64_t s = 1; s <= 3; s++) checkpoint_memo_good(&memo, test_dir(), s);
  CHECK_EQ(memo.known.len, 3);
  /* marked bad without a change of the files: it is believed, for nothing is read */
  memo.known.at[1].good = false;
  checkpoint_limit limit = {&l, 2, 3, -1, &memo};
  CHECK_OK(checkpoint_prune(test_dir(), &limit));
  CHECK(is_there(1) && is_there(2) && is_there(3));
  memo.known.at[1].good = true;
  damage(2); /* now one is changed: it is read, and found out */
  CHECK_OK(checkpoint_prune(test_dir(), &limit));
  CHECK(is_there(1) && is_there(2) && is_there(3));
  CHECK(!memo.known.at[1].good);
  checkpoint_memo_free(&memo);
  run_line_free(&l);
}

TEST(a_branch_that_was_given_up_is_set_aside_whole) {
  run_line a = new_line(), same;
  char aside[64];
  for (int64_t s = 5; s <= 20; s += 5) save_step(&a, s);
  damage(15); /* its manifest still says whose it is */
  damage_manifest(20);
  run_line b = branch_of(&a, 5);
  CHECK_OK(checkpoint_set_aside(test_dir(), &b));
  CHECK(is_there(5) && !is_there(10) && !is_there(15) && is_there(20));
  snprintf(aside, sizeof aside, "abandoned-%.12s/checkpoint-10", a.id);
  checkpoint c;
  CHECK_OK(checkpoint_verify(at(aside), &c));
  CHECK_OK(run_line_parse(c.manifest.root, &same));
  CHECK_STR(same.id, a.id);
  checkpoint_free(&c);
  run_line_free(&same);
  save_step(&a, 10); /* once more: nothing there is written over */
  CHECK_OK(checkpoint_set_aside(test_dir(), &b));
  CHECK(dir_exists(at(aside)) && !is_there(10));
  snprintf(aside, sizeof aside, "abandoned-%.12s-2/checkpoint-10", a.id);
  CHECK(dir_exists(at(aside)));
  CHECK_OK(checkpoint_set_aside(test_dir(), &b));
  CHECK(is_there(5));
  run_line_free(&a);
  run_line_free(&b);
}

TEST(a_link_that_is_set_aside_still_leads_to_its_checkpoint) {
  run_line a = new_line(), b = new_line();
  char aside[64];
  save_step(&a, 7);
  CHECK(!rename(of_step(7), at("elsewhere")));
  CHECK(!symlink("elsewhere", of_step(7)));
  CHECK_EQ(newest(&a), 7);
  CHECK_OK(checkpoint_set_aside(test_dir(), &b));
  snprintf(aside, sizeof aside, "abandoned-%.12s/checkpoint-7", a.id);
  checkpoint c;
  CHECK_OK(checkpoint_verify(at(aside), &c));
  checkpoint_free(&c);
  CHECK(!is_there(7) && dir_exists(at("elsewhere")));
  run_line_free(&a);
  run_line_free(&b);
}

TEST(checkpoints_from_before_there_were_lines_are_one_line) {
  for (int64_t s = 1; s <= 4; s++) save_step(NULL, s);
  checkpoint c;
  run_line old;
  CHECK_OK(checkpoint_verify(of_step(4), &c));
  CHECK_OK(run_line_parse(c.manifest.root, &old));
  checkpoint_free(&c);
  CHECK_EQ(newest(&old), 4);
  prune(&old, 2, 4, -1);
  CHECK(is_there(4) && is_there(3) && !is_there(2));
  run_line b = branch_of(&old, 3);
  CHECK_EQ(newest(&b), 3);
  CHECK_OK(checkpoint_set_aside(test_dir(), &b));
  CHECK(is_there(3) && !is_there(4));
  run_line_free(&old);
  run_line_free(&b);
}

TEST(a_run_that_begins_anew_deletes_all_but_its_own) {
  run_line a = new_line(), b = new_line();
  for (int64_t s = 1; s <= 3; s++) save_step(&a, s);
  damage_manifest(2);
  save_step(&b, 4);
  CHECK_OK(checkpoint_forget(test_dir(), &b));
  CHECK(!is_there(1) && !is_there(2) && !is_there(3) && is_there(4));
  run_line_free(&a);
  run_line_free(&b);
}

/* --- the line itself -------------------------------------------------------------------------- */

TEST(a_line_has_its_own_and_those_that_it_began_from) {
  run_line a = new_line(), other = new_line();
  run_line b = branch_of(&a, 10), c = branch_of(&b, 30), back = branch_of(&a, 4);
  CHECK(strlen(a.id) == 32 && strcmp(a.id, other.id) && strcmp(a.id, b.id));
  CHECK(run_line_has(&c, c.id, 1 << 20) && run_line_has(&c, b.id, 30) &&
        run_line_has(&c, a.id, 10));
  CHECK(!run_line_has(&c, b.id, 31) && !run_line_has(&c, a.id, 11));
  CHECK(!run_line_has(&c, other.id, 0) && !run_line_has(&a, b.id, 0));
  CHECK(run_line_has(&back, a.id, 4) && !run_line_has(&back, a.id, 5));
  CHECK(!run_line_has(&back, b.id, 4));
  CHECK_STR(b.from, "checkpoint-10");
  run_line_free(&a);
  run_line_free(&b);
  run_line_free(&c);
  run_line_free(&back);
  run_line_free(&other);
}

TEST(the_line_of_a_folder_comes_back_from_its_file) {
  run_line a = new_line(), back;
  bool found;
  CHECK_OK(run_line_load(test_dir(), &back, &found));
  CHECK(!found);
  CHECK_OK(dir_create(at("x \"y\"/checkpoint-3")));
  run_line b, c;
  CHECK_OK(run_line_branch(&a, 3, at("x \"y\"/checkpoint-3"), false, &b));
  CHECK(b.from[0] == '/' && strstr(b.from, "x \"y\"/checkpoint-3"));
  CHECK_OK(run_line_branch(&b, 9, "gone", true, &c));
  CHECK_FAILS(run_line_branch(&b, 9, at("gone"), false, &back), "gone");
  strcpy(b.job, "a job");
  CHECK_OK(run_line_save(test_dir(), &b));
  CHECK_OK(run_line_load(test_dir(), &back, &found));
  CHECK(found && back.parents.len == 1 && back.parents.at[0].step == 3);
  CHECK_STR(back.id, b.id);
  CHECK_STR(back.parents.at[0].id, a.id);
  CHECK_STR(back.from, b.from);
  CHECK_STR(back.job, "a job");
  run_line_free(&back);
  CHECK_OK(run_line_save(test_dir(), &c)); /* in place of it */
  CHECK_OK(run_line_load(test_dir(), &back, &found));
  CHECK_EQ(back.parents.len, 2);
  run_line_free(&back);
  run_line_free(&a);
  run_line_free(&b);
  run_line_free(&c);
}

TEST(a_line_whose_file_is_damaged_is_refused_at_every_byte) {
  run_line a = new_line(), b = branch_of(&a, 7), back;
  char *text;
  size_t len;
  bool found;
  CHECK_OK(run_line_save(test_dir(), &b));
  CHECK_OK(file_read(at("run.line"), 0, &text, &len));
  for (size_t i = 0; i < len; i++) {
    text[i] ^= 1;
    put(at("run.line"), text, len);
    CHECK_FAILS(run_line_load(test_dir(), &back, &found), "run.line");
    text[i] ^= 1;
    put(at("run.line"), text, i);
    CHECK_FAILS(run_line_load(test_dir(), &back, &found), "run.line");
  }
  mem_free(text);
  run_line_free(&a);
  run_line_free(&b);
}
