/* What cannot be written: when it is tried again, and what waits meanwhile. */
#include "base/io.h"
#include "base/milestone.h"
#include "base/thread.h"
#include "test.h"
#include "report/append_log.h"
#include "base/retry.h"
#include "report/tensorboard.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static char *at(const char *name) {
  static char path[4][512];
  static int k;
  k = (k + 1) % 4;
  snprintf(path[k], sizeof path[k], "%s/%s", test_dir(), name);
  return path[k];
}

TEST(pauses_grow_threefold_from_a_second_to_ten_minutes) {
  static const double want[] = {1, 3, 9, 27, 81, 243, 600, 600, 600};
  retry r = {0};
  double now = 100;
  for (int i = 0; i < 9; i++) {
    retry_failed(&r, now, 0.1);
    CHECK_EQ(r.failed, i + 1);
    CHECK_NEAR(r.pause_s, want[i], 0);
    CHECK(!retry_is_due(&r, now + want[i] - 0.01) && retry_is_due(&r, now + want[i]));
    now += want[i];
  }
  CHECK_NEAR(RETRY_FIRST_S, 1, 0);
  CHECK_NEAR(RETRY_LONGEST_S, 600, 0);
}

TEST(a_pause_is_as_long_as_the_try_before_it) {
  retry r = {0};
  retry_failed(&r, 0, 20);
  CHECK_NEAR(r.pause_s, 20, 0);
  retry_failed(&r, 0, 0);
  CHECK_NEAR(r.pause_s, 60, 0);
  retry_failed(&r, 0, 9000);
  CHECK_NEAR(r.pause_s, 600, 0);
}

TEST(the_last_try_of_four_keeps_its_failure) {
  retry r = {.failed = RETRY_LAST_TRIES - 1, .pause_s = 1};
  CHECK_EQ(RETRY_LAST_TRIES, 4);
  CHECK(!retry_again(&r, err_set(HP_ERR_IO, __FILE__, __LINE__, "a full disk"), time_now_s()));
  CHECK_STR(err_message(), "a full disk");
  err_clear();
  CHECK(!retry_again(&(retry){0}, HP_OK, time_now_s()));
}

TEST(a_pause_is_no_time_without_progress) {
  retry r = {0};
  uint64_t before = milestone_get_work();
  double began = time_now_s();
  CHECK(retry_again(&r, err_set(HP_ERR_IO, __FILE__, __LINE__, "a full disk"), began));
  CHECK(time_now_s() - began > 0.99);
  CHECK(milestone_get_work() > before);
}

static void *make_folder(void *path) {
  time_sleep_until(time_now_s() + 0.3);
  CHECK_OK(dir_create(path));
  return NULL;
}

TEST(a_file_is_written_when_it_can_be) {
  pthread_t other;
  char *dir = at("later");
  double began = time_now_s();
  CHECK(!pthread_create(&other, NULL, make_folder, dir));
  CHECK_OK(retry_file_write(at("later/file"), "text", 4));
  CHECK(time_now_s() - began > 0.99 && file_exists(at("later/file")));
  pthread_join(other, NULL);
}

/* --- logs ------------------------------------------------------------------------------------- */

static void limit_files(rlim_t bytes) {
  struct rlimit r;
  signal(SIGXFSZ, SIG_IGN);
  CHECK(!getrlimit(RLIMIT_FSIZE, &r));
  r.rlim_cur = bytes;
  CHECK(!setrlimit(RLIMIT_FSIZE, &r));
}

static void holds(const char *path, const char *want) {
  char *text;
  size_t n;
  CHECK_OK(file_read(path, 0, &text, &n));
  CHECK_STR(text, want);
  mem_free(text);
}

TEST(records_wait_whole_and_in_order_while_the_disk_is_full) {
  append_log l;
  CHECK_OK(append_log_open(at("log"), &l));
  append_log_add(&l, "one\n", 4);
  limit_files(6);
  append_log_add(&l, "two\n", 4);
  holds(at("log"), "one\n"); /* no half of a record */
  CHECK(l.failing);
  append_log_add(&l, "three\n", 6);
  CHECK_FAILS(append_log_flush(&l), "log: cannot be written: File too large");
  holds(at("log"), "one\n");
  limit_files(RLIM_INFINITY);
  append_log_add(&l, "four\n", 5);
  holds(at("log"), "one\ntwo\nthree\nfour\n");
  CHECK(!l.failing && !l.waiting.len);
  limit_files(20);
  append_log_add(&l, "five\n", 5);
  limit_files(RLIM_INFINITY);
  append_log_close(&l); /* a last try */
  holds(at("log"), "one\ntwo\nthree\nfour\nfive\n");
  CHECK_OK(append_log_open(at("log"), &l)); /* and again, behind what is there */
  append_log_add(&l, "six\n", 4);
  append_log_close(&l);
  holds(at("log"), "one\ntwo\nthree\nfour\nfive\nsix\n");
  CHECK_FAILS(append_log_open(at("no/log"), &l), "cannot be written");
}

TEST(what_waits_has_a_limit) {
  append_log l;
  size_t n = (size_t)1 << 20;
  char *block = mem_calloc(n, 1);
  CHECK(block != NULL);
  CHECK_OK(append_log_open(at("log"), &l));
  limit_files(1);
  for (int i = 0; i < 20; i++) append_log_add(&l, block, n);
  CHECK(l.losing && l.waiting.len == (size_t)APPEND_LOG_WAITING_MAX);
  limit_files(RLIM_INFINITY);
  append_log_close(&l);
  mem_free(block);
}

TEST(an_event_file_is_whole_after_the_disk_was_full) {
  tensorboard *t;
  char path[512];
  CHECK_OK(tensorboard_create(at("runs"), &t));
  snprintf(path, sizeof path, "%s", t->file.path);
  char *one, *all;
  size_t version, n, len;
  CHECK_OK(file_read(path, 0, &one, &version));
  mem_free(one);
  CHECK_OK(tensorboard_add(t, "loss", 1, 1, 1));
  CHECK_OK(file_read(path, 0, &one, &n));
  size_t record = n - version;
  limit_files(n + 5);
  CHECK_OK(tensorboard_add(t, "loss", 1, 1, 1));
  CHECK_EQ(t->file.waiting.len, record);
  limit_files(RLIM_INFINITY);
  CHECK_OK(tensorboard_add(t, "loss", 1, 1, 1));
  CHECK_OK(file_read(path, 0, &all, &len));
  CHECK_EQ(len, n + 2 * record);
  for (int i = 0; i < 2; i++) CHECK(!memcmp(all + n + (size_t)i * record, one + version, record));
  mem_free(one);
  mem_free(all);
  tensorboard_free(t);
}
