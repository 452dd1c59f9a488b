/* The executor on programs of several streams: values, order, and programs that share a device. */
#include "test.h"

#include "base/units.h"
#include "hazards.h"
#include "ops/random_graph.h"
#include "rt/exec.h"
#include "rt/recent_runs.h"
#include "rt/device_mesh.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

/* --- a backend whose instructions start late -------------------------------------------------- */

static backend_iface late;
static _Atomic uint32_t launches;

/* Waits for up to 0.2 ms before an instruction, so that streams overtake one another. */
static void be_late(void) {
  uint32_t h = atomic_fetch_add(&launches, 1) * 2654435761u;
  nanosleep(&(struct timespec){0, (long)(h >> 14) % 4 ? 0 : (long)(h >> 16) * 3}, NULL);
}

static hp_status launch_late(void *loaded, const program *p, const prog_inst *n,
                             const launch_args *a) {
  be_late();
  return backend_cpu.launch(loaded, p, n, a);
}

/* Copies between tiers are instructions, too; inputs and outputs are on the stream of compute. */
static hp_status copy_late(void *dev, void *to, const void *from, uint64_t bytes, int stream) {
  if (stream != STREAM_COMPUTE) be_late();
  return backend_cpu.copy(dev, to, from, bytes, stream);
}

static _Atomic uint32_t started;
static uint32_t lost; /* the launch that fails; 0 = none */

static hp_status launch_or_lose(void *loaded, const program *p, const prog_inst *n,
                                const launch_args *a) {
  if (atomic_fetch_add(&started, 1) + 1 == lost) HP_FAIL(HP_ERR_DEVICE, "the device is lost");
  return launch_late(loaded, p, n, a);
}

static hp_status copy_or_lose(void *dev, void *to, const void *from, uint64_t bytes, int stream) {
  if (stream != STREAM_COMPUTE && atomic_fetch_add(&started, 1) + 1 == lost)
    HP_FAIL(HP_ERR_DEVICE, "the device is lost");
  return copy_late(dev, to, from, bytes, stream);
}

static hp_device *open_device(bool is_late) {
  hp_device *d;
  CHECK_OK(hp_device_open(&(hp_device_options){.threads = 1, .interpret = true}, &d));
  late = backend_cpu;
  late.launch = launch_late;
  late.copy = copy_late;
  if (is_late) d->member[0]->backend = &late;
  return d;
}

/* --- random graphs with values that go to the host and back ----------------------------------- */

static const random_options streams = {.streams = true};

static void write_params(random_graph *x, hp_device *d) {
  for (int i = 0; i < x->leaves; i++) {
    const random_leaf *l = &x->leaf[i];
    if (l->name[0] != 'p') continue;
    CHECK_OK(hp_param_create(d, l->name, hp_dtype_of(x->g, l->v), hp_shape_of(x->g, l->v)));
    CHECK_OK(hp_write(d, l->name, l->data, l->bytes));
  }
}

/* Runs with the data of the leaves; outputs and params one after the other in `all`. */
static void run(random_graph *x, hp_device *d, hp_program *p, str *all) {
  hp_io io[RANDOM_LEAVES + RANDOM_OUTPUTS];
  int n = 0;
  for (int i = 0; i < x->leaves; i++)
    if (x->leaf[i].name[0] == 'x')
      io[n++] = (hp_io){x->leaf[i].name, x->leaf[i].data, x->leaf[i].bytes};
  int first = n;
  for (int i = 0; i < x->outputs; i++) {
    size_t size = (size_t)value_bytes(graph_value(x->g, x->output[i].v));
    io[n++] = (hp_io){x->output[i].name, malloc(size + 1), size};
  }
  CHECK_OK(hp_run(p, io, n));
  for (int i = first; i < n; i++) {
    str_add_n(all, io[i].data, io[i].bytes);
    free(io[i].data);
  }
  for (int i = 0; i < x->leaves; i++) {
    if (x->leaf[i].name[0] != 'p') continue;
    char *got = malloc(x->leaf[i].bytes + 1);
    CHECK_OK(hp_read(d, x->leaf[i].name, got, x->leaf[i].bytes));
    str_add_n(all, got, x->leaf[i].bytes);
    free(got);
  }
}

TEST(streams_that_overtake_one_another_give_the_same_bits) {
  for (uint64_t seed = 5000; seed < 5060; seed++) {
    random_graph x;
    str got[2] = {{0}, {0}};
    random_graph_make(seed, &streams, &x);
    for (int k = 0; k < 2; k++) {
      hp_program *p;
      hp_device *d = open_device(k == 1);
      write_params(&x, d);
      CHECK_OK(hp_compile(x.g, d, NULL, &p));
      for (int times = 0; times < 3; times++) run(&x, d, p, &got[k]);
      hp_program_free(p);
      hp_device_close(d);
    }
    CHECK(got[0].len == got[1].len && !memcmp(got[0].at, got[1].at, got[0].len));
    str_free(&got[0]);
    str_free(&got[1]);
    random_graph_free(&x);
  }
}

TEST(a_failed_instruction_ends_the_run_and_the_next_run_is_right) {
  for (uint64_t seed = 5100; seed < 5106; seed++) {
    random_graph x;
    hp_program *p;
    hp_program_stats stats;
    str want = {0};
    random_graph_make(seed, &streams, &x);
    hp_device *d = open_device(true);
    late.launch = launch_or_lose;
    late.copy = copy_or_lose;
    write_params(&x, d);
    CHECK_OK(hp_compile(x.g, d, NULL, &p));
    CHECK_OK(hp_program_stats_get(p, &stats));
    run(&x, d, p, &want);
    for (int n = 1; n <= stats.instructions; n++) {
      str got = {0};
      hp_io io[RANDOM_LEAVES];
      int inputs = 0;
      for (int i = 0; i < x.leaves; i++)
        if (x.leaf[i].name[0] == 'x')
          io[inputs++] = (hp_io){x.leaf[i].name, x.leaf[i].data, x.leaf[i].bytes};
      started = 0;
      lost = (uint32_t)n;
      CHECK_FAILS(hp_run(p, io, inputs), "the device is lost");
      lost = 0;
      write_params(&x, d);
      run(&x, d, p, &got);
      CHECK(got.len == want.len && !memcmp(got.at, want.at, want.len));
      str_free(&got);
    }
    str_free(&want);
    hp_program_free(p);
    hp_device_close(d);
    random_graph_free(&x);
  }
}

/* --- times ------------------------------------------------------------------------------------ */

static long delay_us;

static hp_status launch_delayed(void *loaded, const program *p, const prog_inst *n,
                                const launch_args *a) {
  nanosleep(&(struct timespec){0, delay_us * 1000}, NULL);
  return backend_cpu.launch(loaded, p, n, a);
}

/* Every second run takes far longer, the last among them: a table of that run alone, of the slower
 * half or of all runs would say so. */
TEST(tables_and_pictures_have_the_time_of_a_run_from_one_source) {
  static const float x[4] = {1, 2, 3, 4};
  float y[4];
  hp_graph *g;
  hp_program *p;
  hp_op_time *row;
  int rows;
  double sum = 0;
  char *text;
  str want = {0};
  CHECK_OK(hp_graph_create(&g));
  hp_tensor in = hp_input(g, "x", HP_F32, (hp_shape){1, {4}}), none = {0};
  hp_output(g, "y", hp_map(g, "exp", in, none, none));
  hp_device *d = open_device(true);
  late.launch = launch_delayed;
  CHECK_OK(hp_compile(g, d, NULL, &p));
  for (int i = 0; i < RUNS_KEPT; i++) {
    delay_us = i % 2 ? 60000 : 2000;
    CHECK_OK(hp_run(p, (hp_io[]){{"x", (void *)(uintptr_t)x, sizeof x}, {"y", y, sizeof y}}, 2));
  }
  CHECK_OK(hp_program_times(p, &row, &rows));
  for (int i = 0; i < rows; i++) sum += row[i].overlapped ? 0 : row[i].seconds;
  CHECK(sum >= 2e-3 && sum < 25e-3);
  str_add(&want, ">measured: ");
  units_add_seconds(&want, sum);
  str_add(&want, "<");
  CHECK_OK(hp_explain(p, "timeline.svg", &text));
  if (!strstr(text, want.at)) test_fail(__FILE__, __LINE__, "no \"%s\" in %s", want.at, text);
  hp_free(text);
  hp_free(row);
  str_free(&want);
  hp_program_free(p);
  hp_device_close(d);
  hp_graph_free(g);
}

/* The program of a graph, to look at and to change. */
static program *program_of(const hp_graph *g, uint64_t limit, bool remat) {
  hp_device *d;
  hp_program *h;
  program *p;
  char *text;
  CHECK_OK(
      hp_device_open(&(hp_device_options){.threads = 1, .interpret = true, .memory_limit = limit},
                     &d));
  CHECK_OK(hp_compile(g, d, &(hp_compile_options){.remat = remat}, &h));
  CHECK_OK(hp_program_print(h, &text));
  CHECK_OK(program_parse(text, strlen(text), "program", &p));
  hp_free(text);
  hp_program_free(h);
  hp_device_close(d);
  return p;
}

TEST(nothing_in_a_program_meets_in_memory_out_of_order) {
  static const random_options kinds[] = {{.streams = true, .dtypes = true}, {.dtypes = true}};
  char why[HAZARD_TEXT];
  for (uint64_t seed = 6000; seed < 6200; seed++) {
    random_graph x;
    random_graph_make(seed, &kinds[seed % 2], &x);
    program *p = program_of(x.g, 0, seed % 3 == 0);
    if (program_hazard(p, why)) test_fail(__FILE__, __LINE__, "seed %d: %s", (int)seed, why);
    program_free(p);
    random_graph_free(&x);
  }
}

static void remove_wait(program *p, uint32_t wait) {
  memmove(&p->waits.at[wait], &p->waits.at[wait + 1],
          (p->waits.len - wait - 1) * sizeof *p->waits.at);
  p->waits.len--;
  for (size_t i = 0; i < p->insts.len; i++) {
    prog_inst *n = &p->insts.at[i];
    if (wait >= n->wait0 && wait < n->wait0 + n->n_wait) n->n_wait--;
    else if (n->wait0 > wait) n->wait0--;
  }
}

TEST(every_wait_is_needed_and_a_program_without_one_is_found_out) {
  char why[HAZARD_TEXT];
  size_t removed = 0;
  for (uint64_t seed = 7000; seed < 7040; seed++) {
    random_graph x;
    random_graph_make(seed, &streams, &x);
    program *p = program_of(x.g, 0, false);
    size_t waits = p->waits.len;
    for (uint32_t w = 0; w < waits; w++, removed++) {
      program_free(p);
      p = program_of(x.g, 0, false);
      remove_wait(p, w);
      if (!program_hazard(p, why))
        test_fail(__FILE__, __LINE__, "seed %d: wait %u may go", (int)seed, w);
    }
    program_free(p);
    random_graph_free(&x);
  }
  CHECK(removed > 100);
}

/* A loss of a param and of random numbers in a block, and its gradient. */
static hp_graph *noisy_graph(void) {
  hp_graph *g;
  hp_tensor dw;
  CHECK_OK(hp_graph_create(&g));
  hp_shape s = {2, {16, 64}};
  hp_tensor seed = hp_input(g, "seed", HP_I64, (hp_shape){0}), w = hp_param(g, "w", HP_F32, s);
  hp_tensor x = hp_map(g, "sin", hp_add(g, w, hp_normal(g, seed, 1, HP_F32, s)), 0, 0);
  hp_block(g, 1);
  hp_tensor kept = hp_map(g, "lt", hp_uniform(g, seed, 2, HP_F32, s), hp_const(g, HP_F32, 0.5), 0);
  hp_tensor y = hp_map(g, "tanh", hp_mul(g, x, hp_normal(g, seed, 3, HP_F32, s)), 0, 0);
  y = hp_map(g, "select", kept, hp_mul(g, y, x), y);
  hp_block(g, 0);
  hp_tensor loss = hp_sum(g, hp_mul(g, y, y), (int64_t[]){0, 1}, 2, false);
  CHECK_OK(hp_grad(g, loss, &w, 1, &dw));
  hp_output(g, "dw", dw);
  return g;
}

TEST(random_numbers_that_are_drawn_again_in_the_backward_are_the_same) {
  static float w[1024], dw[2][1024];
  int instructions[2];
  int64_t seed = 42;
  hp_graph *g = noisy_graph();
  for (int i = 0; i < 1024; i++) w[i] = (float)(i % 17) / 16;
  for (int remat = 0; remat < 2; remat++) {
    hp_program *p;
    hp_program_stats stats;
    hp_device *d = open_device(false);
    CHECK_OK(hp_compile(g, d, &(hp_compile_options){.remat = remat}, &p));
    CHECK_OK(hp_write(d, "w", w, sizeof w));
    hp_io io[] = {{"seed", &seed, sizeof seed}, {"dw", dw[remat], sizeof dw[remat]}};
    CHECK_OK(hp_run(p, io, 2));
    CHECK_OK(hp_program_stats_get(p, &stats));
    instructions[remat] = stats.instructions;
    hp_program_free(p);
    hp_device_close(d);
  }
  CHECK(instructions[1] > instructions[0]); /* they are drawn again */
  CHECK(dw[0][5] != 0 && !memcmp(dw[0], dw[1], sizeof dw[0]));
  hp_graph_free(g);
}
