#include "test.h"

#include "base/hash.h"
#include "base/io.h"
#include "base/str.h"
#include "base/units.h"
#include "base/thread.h"
#include "base/vec.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

static hp_status inner(void) { HP_FAIL(HP_ERR_SHAPE, "a is [%d], b is [%d]", 2, 3); }
static hp_status outer(void) {
  HP_TRY(inner());
  return HP_OK;
}

TEST(a_failure_keeps_its_first_message_and_its_path) {
  CHECK_EQ(outer(), HP_ERR_SHAPE);
  CHECK_STR(err_message(), "a is [2], b is [3]");
  CHECK(strstr(err_trace(), "inner()"));
  (void)err_set(HP_ERR_IO, "x.c", 1, "second");
  CHECK_STR(err_message(), "a is [2], b is [3]");
  CHECK(strstr(err_trace(), "second"));
  err_clear();
  CHECK_STR(err_message(), "");
}

TEST(allocations_fail_on_demand_and_products_are_checked) {
  mem_fail_at(2);
  void *a = mem_calloc(1, 8);
  CHECK(a);
  CHECK(!mem_calloc(1, 8));
  void *b = mem_calloc(1, 8);
  CHECK(b);
  mem_free(a);
  mem_free(b);
  CHECK(!mem_realloc(NULL, SIZE_MAX / 2, 4));
  arena x = {0};
  CHECK(!arena_alloc(&x, SIZE_MAX, 2));
  CHECK(arena_alloc(&x, 100000, 3));
  arena_free(&x);
}

/* The k-th number of statm: 0 pages of the address space that the process has, 2 pages of files
 * in its memory. */
static long count_pages(int k) {
  long pages[3] = {0};
  FILE *f = fopen("/proc/self/statm", "r");
  if (!f) test_skip("no /proc/self/statm");
  CHECK(fscanf(f, "%ld %ld %ld", &pages[0], &pages[1], &pages[2]) == 3);
  fclose(f);
  return pages[k];
}
static long mapped_pages(void) { return count_pages(0); }

TEST(pages_of_a_mapped_file_leave_memory_and_come_back) {
  enum { BYTES = 8 << 20, ODD = 100, PAGES = BYTES / 4096 };
  char *bytes = malloc(BYTES);
  str path = {0};
  CHECK_OK(path_join(&path, test_dir(), "large"));
  memset(bytes, 7, BYTES);
  CHECK_OK(file_write(path.at, bytes, BYTES));
  file_map m;
  CHECK_OK(file_map_open(path.at, &m));
  CHECK(!memcmp(m.at, bytes, BYTES));
  long before = count_pages(2);
  file_map_release(m.at + ODD, 10); /* no page of its own */
  file_map_release(m.at + ODD, BYTES - ODD);
  CHECK(before - count_pages(2) > PAGES / 2);
  CHECK(!memcmp(m.at, bytes, BYTES));
  file_map_close(&m);
  str_free(&path);
  free(bytes);
}

TEST(mapped_memory_goes_back_whole) {
  static const size_t size[] = {0, 1, 8, 4095, 4096, 4097, 65536, (2 << 20) - 1, 2 << 20, 5000001};
  enum { N = sizeof size / sizeof *size };
  long before = mapped_pages();
  for (int k = 0; k < 10 * N; k++) {
    size_t n = size[k % N];
    char *p = mem_map(n);
    CHECK(p && (uintptr_t)p % (2 << 20) == 0);
    if (n) p[n - 1] = 1;
    mem_unmap(p, n);
  }
  CHECK_EQ(mapped_pages(), before);
  CHECK(!mem_map(SIZE_MAX));
  err_clear();
}

TEST(doubles_print_shortest_and_read_back) {
  const struct {
    double x;
    const char *want;
  } row[] = {{0, "0.0"},
             {1, "1.0"},
             {0.1, "0.1"},
             {1e-5, "1e-05"},
             {1e22, "1e+22"},
             {123.456, "123.456"},
             {0.0002, "0.0002"},
             {-2.5e-7, "-2.5e-07"},
             {1e15, "1000000000000000.0"}};
  for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
    str s = {0};
    str_add_double(&s, row[i].x);
    CHECK_STR(s.at, row[i].want);
    str_free(&s);
  }
  unsigned seed = 1;
  for (int i = 0; i < 20000; i++) {
    union {
      uint64_t u;
      double d;
    } v;
    v.u =
        ((uint64_t)rand_r(&seed) << 42) ^ ((uint64_t)rand_r(&seed) << 21) ^ (uint64_t)rand_r(&seed);
    if (v.d != v.d) continue;
    str s = {0};
    str_add_double(&s, v.d);
    CHECK(strtod(s.at, NULL) == v.d);
    str_free(&s);
  }
}

TEST(the_nearest_word_is_found_only_when_near) {
  static const char *const words[] = {"learning_rate", "logging_steps", "save_steps"};
  CHECK_STR(str_nearest("learing_rate", words, 3), "learning_rate");
  CHECK_STR(str_nearest("save_step", words, 3), "save_steps");
  CHECK(!str_nearest("zzz", words, 3));
}

TEST(interned_strings_have_equal_ids_iff_equal) {
  interner t = {0};
  char buf[16];
  uint32_t id[3000];
  for (int i = 0; i < 3000; i++) {
    int n = snprintf(buf, sizeof buf, "k%d", i % 1500);
    id[i] = intern(&t, buf, (size_t)n);
    CHECK(id[i]);
    if (i >= 1500) CHECK_EQ(id[i], id[i - 1500]);
  }
  CHECK_EQ(t.len, 1500);
  CHECK_STR(intern_get(&t, id[7], NULL), "k7");
  intern_free(&t);
}

typedef struct {
  _Atomic int64_t sum, calls;
} sum_ctx;
static void add_part(void *ctx, int64_t part) {
  sum_ctx *c = ctx;
  atomic_fetch_add(&c->sum, part);
  atomic_fetch_add(&c->calls, 1);
}

TEST(a_pool_runs_every_part_once_on_any_number_of_threads) {
  for (int n = 1; n <= 7; n += 3) {
    pool *p;
    CHECK_OK(pool_create(n, true, &p));
    for (int64_t parts = 0; parts < 50; parts++) {
      sum_ctx c = {0};
      pool_run(p, parts, add_part, &c);
      CHECK_EQ(c.calls, parts);
      CHECK_EQ(c.sum, parts * (parts - 1) / 2);
    }
    pool_free(p);
  }
}

static hp_status fail_odd(void *ctx, int64_t part) {
  add_part(ctx, part);
  if (part % 2) HP_FAIL(HP_ERR_IO, "part %lld is odd", (long long)part);
  return HP_OK;
}

TEST(a_pool_tells_the_failure_of_a_part_and_runs_all) {
  pool *p;
  CHECK_OK(pool_create(3, true, &p));
  for (int64_t parts = 1; parts < 20; parts += 6) {
    sum_ctx c = {0};
    if (parts == 1) CHECK_OK(pool_try(p, parts, fail_odd, &c));
    else CHECK_FAILS(pool_try(p, parts, fail_odd, &c), "is odd");
    CHECK_EQ(c.calls, parts);
  }
  pool_free(p);
}

TEST(files_are_written_whole_and_read_back) {
  str path = {0};
  char *text;
  size_t n;
  CHECK_OK(path_join(&path, test_dir(), "a/b"));
  CHECK_FAILS(file_write(path.at, "x", 1), "a/b");
  CHECK_OK(path_join(&path, test_dir(), "sub/deep"));
  CHECK_OK(dir_create(path.at));
  CHECK_OK(path_join(&path, test_dir(), "sub/deep/f"));
  CHECK_OK(file_write(path.at, "hello", 5));
  CHECK_OK(file_write(path.at, "hello2", 6));
  CHECK_OK(file_read(path.at, 0, &text, &n));
  CHECK_EQ(n, 6);
  CHECK_STR(text, "hello2");
  mem_free(text);
  CHECK_FAILS(file_read(path.at, 3, &text, &n), "larger than");
  file_map m;
  CHECK_OK(file_map_open(path.at, &m));
  CHECK_EQ(m.len, 6);
  file_map_close(&m);
  CHECK_FAILS(file_map_open(test_dir(), &m), "folder");
  CHECK_FAILS(dir_create(path.at), "not a folder");
  str_free(&path);
}

TEST(a_pool_gives_its_caller_all_cores_back) {
  cpu_set_t before, bound, during, after;
  pool *p;
  CHECK(!sched_getaffinity(0, sizeof before, &before));
  if (CPU_COUNT(&before) < 2) test_skip("one core");
  CHECK_OK(pool_create(2, true, &p));
  CHECK(!sched_getaffinity(0, sizeof bound, &bound));
  pool_bind_caller(p, false);
  CHECK(!sched_getaffinity(0, sizeof during, &during));
  pool_bind_caller(p, true);
  pool_free(p);
  CHECK(!sched_getaffinity(0, sizeof after, &after));
  CHECK_EQ(CPU_COUNT(&bound), 1);
  CHECK(CPU_EQUAL(&during, &before));
  CHECK(CPU_EQUAL(&after, &before));
}

TEST(numbers_for_people_have_units) {
  str s = {0};
  units_add_bytes(&s, 0);
  units_add_bytes(&s, 1536);
  units_add_bytes(&s, 80e9);
  CHECK_STR(s.at, "0 B1.50 KiB74.5 GiB");
  str_clear(&s);
  units_add_seconds(&s, 0.00141);
  units_add_seconds(&s, 12.5);
  units_add_seconds(&s, 3e-7);
  units_add_seconds(&s, 0);
  CHECK_STR(s.at, "1.410 ms12.50 s300.0 ns0.0 s");
  str_clear(&s);
  str_add(&s, "a");
  units_put_seconds(&s, 10, 0.00141);
  units_put_bytes(&s, 10, 1536);
  units_put_bytes(&s, 2, 1536);
  CHECK_STR(s.at, "a  1.410 ms  1.50 KiB1.50 KiB");
  str_clear(&s);
  units_add_rate(&s, 96.4e9, "B/s");
  units_add_rate(&s, 12, "FLOP");
  units_add_count(&s, 12345678);
  CHECK_STR(s.at, "96.4 GB/s12.0 FLOP12.3 M");
  str_free(&s);
}

/* Keys that share a row of slots stay to be found when others of it go. */
TEST(a_map_forgets_keys_and_keeps_the_others) {
  map m = {0};
  bool there[500] = {false};
  uint32_t value, n = 0;
  for (uint32_t t = 0; t < 20000; t++) {
    uint32_t key = (uint32_t)rand() % 500;
    if (there[key]) map_remove(&m, &key, sizeof key);
    else CHECK_OK(map_set(&m, &key, sizeof key, key * 3));
    n += there[key] ? -1u : 1u;
    there[key] = !there[key];
    CHECK_EQ(m.len, n);
    if (t % 100) continue;
    for (uint32_t k = 0; k < 500; k++) {
      CHECK_EQ(map_get(&m, &k, sizeof k, &value), there[k]);
      if (there[k]) CHECK_EQ(value, k * 3);
    }
  }
  map_remove(&(map){0}, "none", 4);
  map_free(&m);
}
