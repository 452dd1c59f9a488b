/* Autotuned engines: the decision from planted times, tuning as text, their cache on
 * disk, and their way into programs of one and of several devices. */
#include "test.h"

#include "backend/cpu/engine/tuning_record.h"
#include "backend/cpu/engine/engine_measure.h"
#include "base/io.h"
#include "prog/program.h"
#include "rt/device_mesh.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

/* --- the decision ----------------------------------------------------------------------------- */

enum { PLANTED = 5 };

/* A measurement of ours and two others that has been run, with these seconds. */
static engine_measure measurement_of(double ours[PLANTED], double a[PLANTED], double b[PLANTED]) {
  return (engine_measure){.e = {{.engine = &engine_packed, .seconds = ours},
                                {.engine = &engine_onednn, .seconds = a},
                                {.engine = &engine_openblas, .seconds = b}},
                          .entrants = 3,
                          .rounds = PLANTED,
                          .round = PLANTED};
}

TEST(an_engine_wins_by_a_margin_in_the_median_and_at_best) {
  double ours[] = {10, 11, 10, 12, 10}, slow[] = {20, 21, 22, 20, 19};
  double near[] = {9.8, 10.8, 9.8, 11.8, 9.8}, fast[] = {9, 10, 9, 11, 9};
  double faster[] = {8, 9, 8, 10, 8}, lucky[] = {5, 11, 10.1, 12, 10.1};
  double late[] = {10, 9, 10, 9, 9}; /* ours was at its best as fast */
  const struct {
    double *a, *b;
    const gemm_engine *winner;
  } row[] = {{slow, slow, &engine_packed},     {near, slow, &engine_packed},
             {fast, slow, &engine_onednn},     {slow, fast, &engine_openblas},
             {fast, faster, &engine_openblas}, {lucky, slow, &engine_packed},
             {late, slow, &engine_onednn}};
  for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
    engine_measure r = measurement_of(ours, row[i].a, row[i].b);
    CHECK_STR(engine_measure_winner(&r)->name, row[i].winner->name);
  }
  double held[] = {9.9, 9, 9.9, 9, 9.9}, best[] = {9, 11, 10, 12, 10};
  engine_measure r =
      measurement_of(best, held, slow); /* faster in the median, not in the best turn */
  CHECK_STR(engine_measure_winner(&r)->name, "packed");
}

/* Seconds that engine_measure_drop may free. */
static double *one_turn(double s) {
  double *x = mem_calloc(1, sizeof *x);
  CHECK(x);
  *x = s;
  return x;
}

TEST(hopeless_engines_are_left_out_but_never_ours) {
  engine_measure r = measurement_of(one_turn(30), one_turn(10), one_turn(14));
  r.round = 1;
  engine_measure_drop(&r, 1.3);
  CHECK_EQ(r.entrants, 2);
  CHECK(r.e[0].engine == &engine_packed && r.e[1].engine == &engine_onednn);
  engine_measure_close(&r);
}

TEST(a_measurement_has_operands_of_the_sizes_that_strides_say) {
  gemm_query q = gemm_query_make(5, 7, 3, false, true, HP_F32, HP_F32);
  engine_measure r;
  q.n_batch = 1;
  q.batch[0] = (gemm_batch){4, 100, 0, 35};
  CHECK_OK(engine_measure_open(&q, 1, 3, &r));
  CHECK_EQ(r.need[0], 4 * (300 + 15));
  CHECK_EQ(r.need[1], 4 * 21);
  CHECK_EQ(r.need[2], 4 * (105 + 35));
  measured_operands x = {.cold = true};
  pool *threads;
  CHECK_OK(pool_create(1, false, &threads));
  measured_operands_need(&x, &r);
  CHECK_OK(measured_operands_open(&x, HP_F32));
  for (int i = 0; i < 3; i++) CHECK_OK(engine_measure_round(&r, &x, threads));
  CHECK(x.runs >= 5 * r.entrants && engine_measure_best(&r) > 0);
  measured_operands_close(&x);
  pool_free(threads);
  engine_measure_close(&r);
}

/* --- text ------------------------------------------------------------------------------------- */

TEST(a_product_says_all_that_an_engine_sees) {
  gemm_query q = gemm_query_make(5, 32, 3, false, true, HP_BF16, HP_F32);
  str s = {0};
  engine_product_print(&q, &s);
  CHECK_STR(s.at, "bf16->f32 5x32x3 a 3,1 b 1,3 c 32,1");
  q.b_type = HP_F32, q.c_type = HP_BF16, q.n_batch = 1, q.accumulate = q.bias = true;
  q.b_pack = 48, q.alpha = 0.5f, q.batch[0] = (gemm_batch){2, 15, 0, 160};
  str_clear(&s);
  engine_product_print(&q, &s);
  CHECK_STR(s.at,
            "bf16*f32 5x32x3 a 3,1 b 1,3 c 32,1 strips 48 batch 2:15,0,160 add bias alpha 0.5");
  str_free(&s);
}

TEST(tuning_records_read_back_as_they_were_printed) {
  static const char text[] = "one = packed\nf32 2x3x4 a = b = scalar\nlast 1 = packed\n";
  static const char later[] = "one = scalar\nnew = packed";
  tuning_record p = {0};
  str s = {0};
  CHECK(!tuning_record_find(&p, "one"));
  CHECK_OK(tuning_record_parse(&p, text, strlen(text), "t"));
  tuning_record_print(&p, &s);
  CHECK_STR(s.at, text);
  CHECK(tuning_record_find(&p, "f32 2x3x4 a = b") == &engine_scalar);
  CHECK_OK(tuning_record_parse(&p, later, strlen(later), "t"));
  CHECK(tuning_record_find(&p, "one") == &engine_scalar);
  CHECK(tuning_record_find(&p, "new") == &engine_packed);
  CHECK_EQ(p.at.len, 4);
  str_free(&s);
  tuning_record_free(&p);
}

TEST(damaged_tuning_records_are_refused_whole) {
  static const char *const bad[] = {"a = packed\nb packed\n", "a = packed\n = packed\n",
                                    "a = packed\n\n", "a = packed\nb = \n",
                                    "a = packed\nb = packed-and-very-much-longer-than-any-name\n"};
  tuning_record p = {0};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    CHECK_FAILS(tuning_record_parse(&p, bad[i], strlen(bad[i]), "t"),
                "t, line 2: expected a product");
  CHECK_FAILS(tuning_record_parse(&p, "a = packed\nb = mkl\n", 19, "t"), "is named \"mkl\"");
  CHECK_FAILS(tuning_record_parse(&p, "a = pac\0ked", 11, "t"), "t, line 1");
  CHECK_EQ(p.at.len, 0);
  tuning_record_free(&p);
}

/* --- the cache -------------------------------------------------------------------------------- */

/* The one file of tuning in the test's folder. */
static const char *cache_file(void) {
  static char file[512];
  int files = 0;
  DIR *d = opendir(test_dir());
  CHECK(d);
  for (struct dirent *e; (e = readdir(d));) {
    if (!strstr(e->d_name, ".engines")) continue;
    snprintf(file, sizeof file, "%s/%s", test_dir(), e->d_name);
    files++;
  }
  closedir(d);
  CHECK_EQ(files, 1);
  return file;
}

static size_t cached_tuning(int threads) {
  tuning_record p = {0};
  engine_cache_read(&p, threads);
  CHECK_STR(err_message(), ""); /* whatever was wrong is forgotten */
  size_t n = p.at.len;
  tuning_record_free(&p);
  return n;
}

/* As a crash or a disk might: neither atomic nor durable. */
static void overwrite(const char *file, const char *bytes, size_t n) {
  FILE *f = fopen(file, "we");
  CHECK(f && fwrite(bytes, 1, n, f) == n && !fclose(f));
}

TEST(tuning_records_are_cached_for_one_machine_and_damage_is_no_failure) {
  tuning_record p = {0};
  char *whole;
  size_t n;
  setenv("HYPER_CACHE", test_dir(), 1);
  CHECK_EQ(cached_tuning(2), 0);
  CHECK_OK(tuning_record_add(&p, "one", &engine_packed));
  CHECK_OK(tuning_record_add(&p, "two", &engine_scalar));
  engine_cache_write(&p, 2);
  tuning_record_free(&p);
  CHECK_EQ(cached_tuning(2), 2);
  CHECK_EQ(cached_tuning(3), 0); /* of another number of threads */
  const char *file = cache_file();
  CHECK_OK(file_read(file, 0, &whole, &n));
  CHECK(strstr(whole, "threads 2\n") && strstr(whole, "isa ") && strstr(whole, "packed "));
  size_t machine = (size_t)(strstr(whole, "\n\n") + 2 - whole);
  for (size_t cut = 0; cut < n; cut++) {
    overwrite(file, whole, cut);
    CHECK(cached_tuning(2) <= 2);
  }
  for (size_t at = 0; at < n; at++) {
    char was = whole[at];
    whole[at] = (char)(was ^ 0x55);
    overwrite(file, whole, n);
    CHECK(cached_tuning(2) <= (at < machine ? 0 : 2));
    whole[at] = was;
  }
  mem_free(whole);
}

/* --- programs --------------------------------------------------------------------------------- */

enum { B = 6, K = 5, N = 7 };

/* y = (x w) w', on a device with that mesh. */
static hp_program *compile(hp_device *d) {
  hp_graph *g;
  hp_program *p;
  CHECK_OK(hp_graph_create(&g));
  hp_tensor x = hp_input(g, "x", HP_F32, (hp_shape){2, {B, K}});
  hp_tensor w = hp_param(g, "w", HP_F32, (hp_shape){2, {K, N}});
  hp_tensor h = hp_einsum(g, "bk,kn->bn", x, w);
  hp_output(g, "y", hp_einsum(g, "bn,kn->bk", h, w));
  CHECK_OK(hp_compile(g, d, NULL, &p));
  hp_graph_free(g);
  return p;
}

static hp_device *open_device(const char *on, const char *engine) {
  hp_device *d;
  static const hp_layout_rule rows = {"x", "(dp,None)"};
  hp_device_options o = {.threads = 2,
                         .interpret = true,
                         .engine = engine,
                         .mesh = on,
                         .layouts = &rows,
                         .n_layouts = on ? 1 : 0};
  setenv("HYPER_CACHE", test_dir(), 1);
  CHECK_OK(hp_device_open(&o, &d));
  return d;
}

/* Every engine of the record made `name`; hp_free. */
static char *all_tuned(const hp_device *d, const char *name) {
  char *tuning;
  str s = {0};
  CHECK_OK(hp_device_tuning(d, &tuning));
  for (char *line = strtok(tuning, "\n"); line; line = strtok(NULL, "\n")) {
    char *end = strstr(line, " = ");
    CHECK(end);
    str_printf(&s, "%.*s = %s\n", (int)(end - line), line, name);
  }
  hp_free(tuning);
  CHECK(s.len);
  return str_take(&s);
}

static int count_in(const char *text, const char *word) {
  int n = 0;
  for (const char *at = text; (at = strstr(at, word)); at += strlen(word)) n++;
  return n;
}

TEST(a_program_has_the_engines_of_its_tuning_record) {
  hp_device *d = open_device(NULL, "fastest"), *again = open_device(NULL, "fastest");
  CHECK_STR(hp_device_engine(d), "fastest");
  hp_program_free(compile(d));
  char *tuning = all_tuned(d, "scalar"), *told, *text;
  CHECK_EQ(count_in(tuning, " = "), 2);
  CHECK_OK(hp_device_set_engine(again, "fastest", tuning)); /* before it has any */
  CHECK_OK(hp_device_set_engine(d, "fastest", tuning));     /* in place of its own */
  for (int i = 0; i < 2; i++) {
    hp_program *p = compile(i ? d : again);
    CHECK_OK(hp_device_tuning(i ? d : again, &told));
    CHECK_STR(told, tuning);
    CHECK_OK(hp_program_print(p, &text));
    CHECK_EQ(count_in(text, " engine=scalar"), 2);
    program *parsed;
    str printed = {0};
    CHECK_OK(program_parse(text, strlen(text), "t", &parsed));
    CHECK_OK(program_print(parsed, &printed));
    CHECK_STR(printed.at, text);
    program_free(parsed);
    str_free(&printed);
    hp_free(text);
    hp_free(told);
    hp_program_free(p);
  }
  CHECK_FAILS(hp_device_set_engine(d, "fastest", "x = mkl\n"), "no gemm engine is named \"mkl\"");
  hp_free(tuning);
  hp_device_close(d);
  hp_device_close(again);
}

TEST(a_cached_engine_is_not_measured_again) {
  hp_device *d = open_device(NULL, "fastest");
  hp_program_free(compile(d));
  char *tuning, *text;
  size_t n;
  CHECK_OK(hp_device_tuning(d, &tuning));
  hp_device_close(d);
  int rows, there = 0;
  const gemm_engine *const *row = engine_rows(&rows);
  for (int i = 0; i < rows; i++) there += row[i]->available();
  if (there > 2) { /* besides ours and the scalar loop: only then is anything measured */
    CHECK_OK(file_read(cache_file(), 0, &text, &n));
    char *at = strstr(text, "\n\n");
    CHECK(at && !strcmp(at + 2, tuning));
    str planted = {0};
    str_add_n(&planted, text, (size_t)(at + 2 - text));
    mem_free(text);
    for (char *line = strtok(tuning, "\n"); line; line = strtok(NULL, "\n"))
      str_printf(&planted, "%.*s = scalar\n", (int)(strstr(line, " = ") - line), line);
    CHECK_OK(file_write(cache_file(), planted.at, planted.len));
    d = open_device(NULL, "fastest");
    hp_program *p = compile(d);
    CHECK_OK(hp_program_print(p, &text));
    CHECK_EQ(count_in(text, " engine=scalar"), 2);
    hp_free(text);
    str_free(&planted);
    hp_program_free(p);
    hp_device_close(d);
  }
  hp_free(tuning);
}

TEST(few_rows_stay_ours_whatever_engine_is_named) {
  hp_device *d = open_device(NULL, "scalar");
  char *text;
  gemm_query few = gemm_query_make(B, N, K, false, false, HP_F32, HP_F32);
  CHECK(gemm_reads_once(&few));
  hp_program *p = compile(d);
  CHECK_OK(hp_program_print(p, &text));
  CHECK_EQ(count_in(text, "engine="), 0);
  hp_free(text);
  hp_program_free(p);
  hp_device_close(d);
}

/* The first device of a mesh is that of its first position, which need not have the lowest rank. */
TEST(devices_have_the_tuning_of_the_first_position_whatever_its_rank) {
  hp_device *all = open_device("(2)(dp)", "fastest"), *d;
  hp_layout_rule rows = {"x", "(dp,None)"};
  hp_device_options turned = {.job = all, .mesh = "(2)(dp)@1,0", .layouts = &rows, .n_layouts = 1};
  CHECK_OK(hp_device_open(&turned, &d));
  hp_program_free(compile(d));
  char *tuning = all_tuned(d, "scalar");
  const device *first = d->member[1], *second = d->member[0];
  CHECK(first->position == 0 && second->position == 1);
  CHECK_OK(first->backend->set_tuning(first->dev, tuning)); /* of the first alone */
  hp_program_free(compile(d));
  str got = {0};
  second->backend->tuning(second->dev, &got);
  CHECK_STR(got.at, tuning);
  str_clear(&got);
  first->backend->tuning(first->dev, &got);
  CHECK_STR(got.at, tuning);
  str_free(&got);
  hp_free(tuning);
  hp_device_close(d);
  hp_device_close(all);
}

TEST(devices_of_a_group_have_the_tuning_of_the_first) {
  hp_device *d = open_device("(2)(dp)", "fastest");
  hp_program_free(compile(d));
  char *tuning = all_tuned(d, "scalar");
  const device *first = d->member[0], *second = d->member[1];
  CHECK_OK(first->backend->set_tuning(first->dev, tuning)); /* of the first alone */
  hp_program_free(compile(d));
  str got = {0};
  second->backend->tuning(second->dev, &got);
  CHECK_STR(got.at, tuning);
  str_free(&got);
  hp_free(tuning);
  hp_device_close(d);
}
