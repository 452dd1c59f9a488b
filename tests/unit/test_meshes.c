/* Several meshes in one job: each has layouts, tensors and programs of its own, which are compiled,
 * run and saved while other ranks do something else. */
#include "api/api_program.h"
#include "base/thread.h"
#include "rt/device_mesh.h"
#include "rt/mover.h"
#include "test.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { N = 24, RANKS = 4 };

/* Of which a mesh of all devices would be one more. */
static job *open_job(void) {
  job *j;
  CHECK_OK(
      job_open(&(hp_device_options){.threads = RANKS, .interpret = true}, "cpu", RANKS, 1, &j));
  return j;
}

static hp_device *open_mesh(job *j, const char *text) {
  hp_device *d;
  hp_layout_rule rule = {"w", "(x)"};
  CHECK_OK(device_mesh_open_on(j,
                               &(hp_device_options){.mesh = text, .layouts = &rule, .n_layouts = 1},
                               &d));
  return d;
}

/* Adds the sum of x times w to w, `sums` times over: each sum is an all-reduce on a mesh. */
static hp_program *compile_sums(hp_device *d, int sums) {
  hp_graph *g;
  hp_program *p;
  CHECK_OK(hp_graph_create(&g));
  hp_tensor x = hp_input(g, "x", HP_F32, (hp_shape){1, {N}});
  hp_tensor w = hp_param(g, "w", HP_F32, (hp_shape){1, {N}}), sum = HP_NONE, next = w;
  for (int k = 0; k < sums; k++) {
    sum = hp_sum(g, hp_mul(g, x, next), (int64_t[]){0}, 1, false);
    next = hp_add(g, next, hp_scale(g, sum, 0.125));
  }
  hp_assign(g, w, next);
  hp_output(g, "sum", sum);
  CHECK_OK(hp_compile(g, d, NULL, &p));
  hp_graph_free(g);
  return p;
}

/* Small whole numbers, so that every order of a sum has the same bits. */
static void write_w(hp_device *d) {
  float w[N];
  for (int i = 0; i < N; i++) w[i] = (float)(i % 3);
  CHECK_OK(hp_write(d, "w", w, sizeof w));
}

static float run_sums(hp_program *p, int times) {
  float x[N] = {0}, sum = 0;
  x[1] = x[N - 2] = 1;
  for (int k = 0; k < times; k++)
    CHECK_OK(hp_run(p, (hp_io[]){{"x", x, sizeof x}, {"sum", &sum, sizeof sum}}, 2));
  return sum;
}

typedef struct {
  int sums, runs;
  const char *saved;
  hp_device *d;
  hp_program *p; /* NULL: to be compiled */
  float sum, w[N];
} work;

/* Compiles, runs, reads and saves on a mesh, or on a device alone. */
static void *do_work(void *arg) {
  work *k = arg;
  if (!k->p) k->p = compile_sums(k->d, k->sums);
  write_w(k->d);
  k->sum = run_sums(k->p, k->runs);
  CHECK_OK(hp_read(k->d, "w", k->w, sizeof k->w));
  if (k->saved) CHECK_OK(hp_params_save(k->d, k->saved, NULL, 0));
  hp_program_free(k->p);
  return NULL;
}

static void check_same(const work *k) {
  work alone = {.sums = k->sums, .runs = k->runs};
  CHECK_OK(hp_device_open(&(hp_device_options){.threads = 1, .interpret = true}, &alone.d));
  do_work(&alone);
  CHECK(alone.sum == k->sum);
  CHECK(!memcmp(alone.w, k->w, sizeof k->w));
  hp_device_close(alone.d);
}

TEST(two_meshes_run_unlike_programs_side_by_side) {
  job *j = open_job();
  char low[300], high[300];
  snprintf(low, sizeof low, "%s/low", test_dir());
  snprintf(high, sizeof high, "%s/high", test_dir());
  work a = {.sums = 3, .runs = 9, .saved = low}, b = {.sums = 1, .runs = 2, .saved = high};
  a.d = open_mesh(j, "(2)(x)@0,1");
  b.d = open_mesh(j, "(2)(x)@3,2");
  pthread_t thread;
  CHECK(!pthread_create(&thread, NULL, do_work, &a));
  do_work(&b);
  CHECK(!pthread_join(thread, NULL));
  check_same(&a);
  check_same(&b);
  /* What a mesh has saved, another one loads. */
  float w[N];
  CHECK_OK(hp_params_load(b.d, low, NULL, 0));
  CHECK_OK(hp_read(b.d, "w", w, sizeof w));
  CHECK(!memcmp(w, a.w, sizeof w));
  CHECK_OK(hp_params_load(a.d, high, NULL, 0));
  CHECK_OK(hp_read(a.d, "w", w, sizeof w));
  CHECK(!memcmp(w, b.w, sizeof w));
  hp_device_close(a.d);
  hp_device_close(b.d);
  job_release(j);
}

TEST(meshes_that_share_devices_have_tensors_of_their_own_and_take_turns) {
  job *j = open_job();
  work a = {.sums = 2, .runs = 20}, b = {.sums = 1, .runs = 20};
  a.d = open_mesh(j, "(4)(x)");
  b.d = open_mesh(j, "(2)(x)@2,1");
  CHECK(a.d->member[1]->job == b.d->member[0]->job);
  pthread_t thread;
  a.p = compile_sums(a.d, a.sums);
  b.p = compile_sums(b.d, b.sums);
  CHECK(!pthread_create(&thread, NULL, do_work, &a));
  do_work(&b);
  CHECK(!pthread_join(thread, NULL));
  check_same(&a);
  check_same(&b);
  uint64_t both = b.d->member[0]->job->state_bytes[TIER_DEVICE];
  CHECK_EQ(both,
           a.d->member[1]->state_bytes[TIER_DEVICE] + b.d->member[0]->state_bytes[TIER_DEVICE]);
  hp_device_close(a.d);
  CHECK_EQ(b.d->member[0]->job->state_bytes[TIER_DEVICE], b.d->member[0]->state_bytes[TIER_DEVICE]);
  hp_device_close(b.d);
  job_release(j);
}

TEST(a_mesh_of_one_device_of_a_job_runs) {
  job *j = open_job();
  work a = {.sums = 2, .runs = 3};
  a.d = open_mesh(j, "(1)(x)@3");
  do_work(&a);
  check_same(&a);
  hp_device_close(a.d);
  job_release(j);
}

static void refuse(job *j, const char *text, const char *said) {
  hp_device *d;
  CHECK_EQ(device_mesh_open_on(j, &(hp_device_options){.mesh = text}, &d), HP_ERR_LAYOUT);
  if (!strstr(err_message(), said))
    test_fail(__FILE__, __LINE__, "\"%s\" says \"%s\"", text, err_message());
  err_clear();
}

TEST(a_mesh_beyond_the_job_is_refused) {
  job *j = open_job();
  refuse(j, "(2)(x)@3,4", "the mesh has rank 4, and the job ranks 0 to 3");
  refuse(j, "(2)(x)", "the mesh has 2 devices without ranks, and the job 4");
  refuse(NULL, "(2)(x)@2,3", "a mesh of a process alone has no ranks");
  job_release(j);
}

TEST(a_device_is_opened_in_the_job_of_another_one) {
  hp_device *all, *none;
  work a = {.sums = 3, .runs = 4}, b = {.sums = 1, .runs = 6};
  hp_device_options o = {.mesh = "(4)(dp)", .threads = RANKS, .interpret = true};
  CHECK_OK(hp_device_open(&o, &all));
  hp_layout_rule rule = {"w", "(x)"};
  hp_device_options part = {.job = all, .mesh = "(2)(x)@1,0", .layouts = &rule, .n_layouts = 1};
  CHECK_OK(hp_device_open(&part, &a.d));
  part.mesh = "(2)(x)@2,3";
  CHECK_OK(hp_device_open(&part, &b.d));
  part.threads = 2;
  CHECK_FAILS(hp_device_open(&part, &none), "threads, interpret, engine and memory_limit are");
  part.threads = 0;
  part.mesh = "(2)(x)@2,4";
  CHECK_FAILS(hp_device_open(&part, &none), "the mesh has rank 4");
  hp_device_close(all); /* the job goes on */
  do_work(&a);
  do_work(&b);
  check_same(&a);
  check_same(&b);
  hp_device_close(a.d);
  hp_device_close(b.d);
}

TEST(a_mesh_without_partial_sums_is_refused_on_a_job_of_another_engine) {
  hp_device *all, *d;
  hp_device_options o = {.mesh = "(4)(dp)",
                         .threads = RANKS,
                         .interpret = true,
                         .engine = "fastest"};
  CHECK_OK(hp_device_open(&o, &all));
  hp_device_options uncut = {.job = all, .mesh = "(2)(x)@1,2", .no_partial_sums = true};
  CHECK_FAILS(hp_device_open(&uncut, &d), "no_partial_sums: the job computes by engine fastest");
  CHECK_OK(hp_device_set_engine(all, "packed", NULL));
  CHECK_OK(hp_device_open(&uncut, &d));
  hp_device_close(d);
  hp_device_close(all);
}

TEST(the_engine_stays_while_a_mesh_of_the_job_has_no_partial_sums) {
  hp_device *all, *uncut, *others, *overlaps;
  hp_device_options o = {.mesh = "(4)(dp)", .threads = RANKS, .interpret = true};
  CHECK_OK(hp_device_open(&o, &all));
  hp_device_options part = {.job = all, .mesh = "(2)(x)@1,2", .no_partial_sums = true};
  CHECK_OK(hp_device_open(&part, &uncut));
  part.no_partial_sums = false;
  part.mesh = "(2)(x)@3,0";
  CHECK_OK(hp_device_open(&part, &others));
  part.mesh = "(2)(x)@0,2";
  CHECK_OK(hp_device_open(&part, &overlaps));
  CHECK_FAILS(hp_device_set_engine(all, "fastest", NULL),
              "engine fastest: rank 1 of the job is also in a mesh with no_partial_sums");
  CHECK_FAILS(hp_device_set_engine(overlaps, "fastest", NULL), "rank 2 of the job");
  CHECK_STR(hp_device_engine(overlaps), "packed");
  CHECK_OK(hp_device_set_engine(all, "packed", NULL));
  CHECK_OK(hp_device_set_engine(others, "fastest", NULL)); /* shares no device */
  CHECK_STR(hp_device_engine(uncut), "packed");
  hp_device_close(uncut);
  CHECK_OK(hp_device_set_engine(all, "fastest", NULL));
  hp_device_close(others);
  hp_device_close(overlaps);
  hp_device_close(all);
}

TEST(unlike_programs_of_one_mesh_name_both_instructions) {
  job *j = open_job();
  work a = {.sums = 1}, b = {.sums = 3};
  a.d = open_mesh(j, "(2)(x)@1,2");
  b.d = open_mesh(j, "(2)(x)@1,2");
  a.p = compile_sums(a.d, 1);
  b.p = compile_sums(b.d, 3);
  exec *own = a.p->r.e[1];
  a.p->r.e[1] = b.p->r.e[1]; /* rank 2 runs the other program: it comes to a second sum */
  write_w(a.d);
  write_w(b.d);
  float x[N] = {0}, sum;
  double start = time_now_s();
  CHECK_FAILS(hp_run(a.p, (hp_io[]){{"x", x, sizeof x}, {"sum", &sum, sizeof sum}}, 2),
              "do not match: rank 2 is at all_reduce");
  CHECK(strstr(hp_last_error(), "to which rank 1 does not come: its program has ended"));
  CHECK(time_now_s() - start < 30);
  a.p->r.e[1] = own;
  a.runs = b.runs = 1; /* both run again */
  do_work(&a);
  do_work(&b);
  check_same(&a);
  check_same(&b);
  hp_device_close(a.d);
  hp_device_close(b.d);
  job_release(j);
}

/* --- shards ----------------------------------------------------------------------------------- */

/* [5,3] over (2,2): rows 3 and 2, columns 2 and 1.  What lay there before is not seen as padding.
 */
TEST(shards_of_global_tensors_go_to_devices_with_zeros_as_padding_and_back) {
  hp_device *d;
  hp_device_options o = {.mesh = "(2,2)(x,y)", .threads = 1, .interpret = true};
  hp_layout_rule rule = {"room", "(x,y)"};
  const ir_value type = {.dtype = HP_F32, .rank = 2, .dim = {5, 3}};
  float from[15], to[15] = {0};
  uint32_t index;
  o.layouts = &rule;
  o.n_layouts = 1;
  CHECK_OK(hp_device_open(&o, &d));
  CHECK_OK(hp_param_create(d, "room", HP_F32, (hp_shape){2, {5, 3}}));
  for (int i = 0; i < 15; i++) from[i] = (float)(i + 1);
  for (int i = 0; i < d->own; i++) {
    const device *m = d->member[i];
    CHECK(device_find(m, "room", &index));
    float *at = device_address(m, &m->states.at[index]);
    shard_view v = mover_view(&d->m, m->position, &type, &d->states.at[0].l);
    for (int k = 0; k < 6; k++) at[k] = -1;
    CHECK_OK(mover_zero_padding(m, &v, at));
    CHECK_OK(mover_write_shard(m, &v, at, from));
    for (int k = 0; k < 6; k++) {
      int row = i / 2 * 3 + k / 2, column = i % 2 * 2 + k % 2;
      CHECK(at[k] == (row < 5 && column < 3 ? from[row * 3 + column] : 0));
    }
    CHECK_OK(mover_read_shard(m, &v, at, to));
  }
  CHECK(!memcmp(from, to, sizeof to));
  hp_device_close(d);
}

/* --- from several threads --------------------------------------------------------------------- */

enum { TURNS = 12 };

/* On one mesh: makes, runs and frees programs and params, again and again. */
static void *take_turns(void *arg) {
  work *k = arg;
  float v[N];
  for (int t = 0; t < TURNS; t++) {
    k->p = compile_sums(k->d, k->sums);
    write_w(k->d);
    k->sum = run_sums(k->p, k->runs);
    CHECK_OK(hp_read(k->d, "w", k->w, sizeof k->w));
    CHECK_OK(hp_param_create(k->d, "v", HP_F32, (hp_shape){1, {N}}));
    CHECK_OK(hp_write(k->d, "v", k->w, sizeof k->w));
    hp_program_free(k->p);
    CHECK_OK(hp_read(k->d, "v", v, sizeof v));
    CHECK(!memcmp(v, k->w, sizeof v));
    CHECK_OK(hp_param_free(k->d, "v"));
  }
  return NULL;
}

static void check_turns(const char *first, const char *second) {
  work a = {.sums = 5, .runs = 6}, b = {.sums = 1, .runs = 9};
  pthread_t thread;
  hp_layout_rule rule = {"w", "(x)"};
  hp_device_options o = {.mesh = first, .threads = RANKS, .interpret = true};
  CHECK_OK(hp_device_open(&o, &a.d));
  hp_device_options shared = {.job = a.d, .mesh = second, .layouts = &rule, .n_layouts = 1};
  CHECK_OK(hp_device_open(&shared, &b.d));
  CHECK(!pthread_create(&thread, NULL, take_turns, &a));
  take_turns(&b);
  CHECK(!pthread_join(thread, NULL));
  check_same(&a);
  check_same(&b);
  hp_device_close(b.d);
  hp_device_close(a.d);
}

/* Their work memory is the same, and what is counted of the device is counted by both. */
TEST(meshes_on_one_device_are_used_from_two_threads) {
  check_turns(NULL, "(1)(x)@0");
  check_turns("(4)(dp)", "(2)(x)@2,1");
}
