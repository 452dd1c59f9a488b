/* Dropout through the public API: what the mask is, how it is undone, what it depends on. */
#include "test.h"

#include "train/step.h"

#include <math.h>
#include <stdlib.h>

enum { N = 1 << 16 };

/* y = dropout(x), and the gradient of sum(y * w). */
typedef struct {
  double p;
  int64_t seed, stream;
  hp_dtype dtype;
  int threads;
  bool interpret, remat;
} setting;

static void run(const setting *s, const float *x, const float *w, float *y, float *dx) {
  hp_device_options o = {.threads = s->threads, .interpret = s->interpret};
  hp_compile_options c = {.remat = s->remat};
  hp_shape shape = {2, {N / 64, 64}};
  hp_device *d;
  hp_graph *g;
  hp_program *p;
  CHECK_OK(hp_graph_create(&g));
  hp_tensor in = hp_input(g, "x", HP_F32, shape), factor = hp_input(g, "w", HP_F32, shape);
  hp_tensor seed = hp_input(g, "seed", HP_I64, (hp_shape){0}), grad;
  hp_block(g, 1);
  hp_tensor out = hp_cast(g, in, s->dtype);
  out = hp_cast(g, hp_dropout(g, out, s->p, seed, s->stream), HP_F32);
  hp_output(g, "y", out);
  hp_block(g, 0);
  hp_tensor loss = hp_sum(g, hp_mul(g, out, factor), (int64_t[]){0, 1}, 2, false);
  CHECK_OK(hp_grad(g, loss, &in, 1, &grad));
  hp_output(g, "dx", grad);
  CHECK_OK(hp_device_open(&o, &d));
  CHECK_OK(hp_compile(g, d, &c, &p));
  hp_io io[] = {{"x", (void *)(uintptr_t)x, N * sizeof *x},
                {"w", (void *)(uintptr_t)w, N * sizeof *w},
                {"seed", (void *)(uintptr_t)&s->seed, sizeof s->seed},
                {"y", y, N * sizeof *y},
                {"dx", dx, N * sizeof *dx}};
  CHECK_OK(hp_run(p, io, 5));
  hp_program_free(p);
  hp_device_close(d);
  hp_graph_free(g);
}

static float x[N], w[N], y[N], dx[N], y2[N], dx2[N];

static void fill(void) {
  for (int i = 0; i < N; i++) x[i] = (float)(i % 7) + 1, w[i] = (float)(i % 5) - 2.5f;
}

TEST(dropout_keeps_the_share_it_should_and_its_mean) {
  static const double share[] = {0.1, 0.5, 0.9};
  for (int k = 0; k < 3; k++) {
    double p = share[k], kept = 0;
    fill();
    run(&(setting){.p = p, .seed = 42, .stream = 7, .threads = 2}, x, w, y, dx);
    for (int i = 0; i < N; i++) {
      CHECK(y[i] == 0 || y[i] == x[i] * (float)(1 / (1 - p)));
      CHECK_EQ(dx[i], y[i] == 0 ? 0 : w[i] * (float)(1 / (1 - p)));
      kept += y[i] != 0;
    }
    /* a binomial number: within five standard deviations */
    CHECK(fabs(kept - N * (1 - p)) < 5 * sqrt(N * p * (1 - p)));
  }
}

TEST(dropout_of_other_seeds_and_streams_is_independent) {
  fill();
  setting s = {.p = 0.5, .seed = 1, .stream = 2, .threads = 1};
  run(&s, x, w, y, dx);
  for (int k = 0; k < 2; k++) {
    setting other = s;
    if (k) other.seed++;
    else other.stream++;
    run(&other, x, w, y2, dx2);
    double both = 0;
    for (int i = 0; i < N; i++) both += y[i] != 0 && y2[i] != 0;
    CHECK(fabs(both - N * 0.25) < 5 * sqrt(N * 0.25 * 0.75));
  }
}

TEST(dropout_has_the_same_bits_with_threads_recomputation_and_interpreter) {
  static const setting other[] = {{.threads = 3},
                                  {.threads = 1, .interpret = true},
                                  {.threads = 2, .remat = true}};
  for (int t = 0; t < 2; t++) {
    setting s = {.p = 0.3, .seed = -5, .stream = INT64_MIN, .dtype = t ? HP_BF16 : HP_F32};
    s.threads = 1;
    fill();
    run(&s, x, w, y, dx);
    for (int k = 0; k < 3; k++) {
      setting o = s;
      o.threads = other[k].threads, o.interpret = other[k].interpret, o.remat = other[k].remat;
      run(&o, x, w, y2, dx2);
      CHECK(!memcmp(y, y2, sizeof y) && !memcmp(dx, dx2, sizeof dx));
    }
  }
}

/* Text of a program with dropout of share p in two places. */
static char *program_text(double p, bool at_all) {
  hp_graph *g;
  hp_device *d;
  hp_program *program;
  char *text;
  CHECK_OK(hp_graph_create(&g));
  hp_tensor q = hp_input(g, "q", HP_F32, (hp_shape){4, {1, 4, 2, 8}});
  hp_attention_options o = {.causal = true};
  if (at_all) {
    hp_tensor seed = p > 0 ? hp_input(g, "seed", HP_I64, (hp_shape){0}) : HP_NONE;
    o.dropout = p, o.seed = seed, o.stream = 9;
    q = hp_dropout(g, q, p, seed, 8);
  }
  hp_output(g, "o", hp_attention(g, q, q, q, &o));
  CHECK_OK(hp_device_open(&(hp_device_options){.threads = 1, .interpret = true}, &d));
  CHECK_OK(hp_compile(g, d, NULL, &program));
  CHECK_OK(hp_program_print(program, &text));
  hp_program_free(program);
  hp_device_close(d);
  hp_graph_free(g);
  return text;
}

TEST(dropout_of_share_0_leaves_the_program_as_it_is) {
  char *none = program_text(0, false), *zero = program_text(0, true),
       *some = program_text(0.1, true);
  CHECK(!strcmp(none, zero));
  CHECK(strcmp(none, some));
  hp_free(none);
  hp_free(zero);
  hp_free(some);
}

TEST(the_numbers_of_dropout_are_drawn_where_they_are_used) {
  char *text = program_text(0.1, true);
  CHECK(strstr(text, "= uniform 8 ["));
  CHECK(!strstr(text, "= uniform b"));
  hp_free(text);
}

TEST(dropout_that_makes_no_sense_is_refused) {
  static const double share[] = {-0.1, 1, 1.5, NAN, INFINITY};
  for (int k = 0; k < 10; k++) {
    hp_graph *g;
    CHECK_OK(hp_graph_create(&g));
    hp_tensor v = hp_input(g, "x", HP_F32, (hp_shape){4, {1, 4, 2, 8}});
    hp_tensor seed = hp_input(g, "seed", HP_I64, (hp_shape){0});
    hp_attention_options o = {.dropout = share[k / 2], .seed = seed};
    hp_tensor r = k % 2 ? hp_attention(g, v, v, v, &o) : hp_dropout(g, v, share[k / 2], seed, 0);
    CHECK_EQ(r, HP_NONE);
    CHECK_EQ(hp_graph_status(g), HP_ERR_SHAPE);
    CHECK(strstr(hp_last_error(), "expected 0 or more and below 1"));
    hp_graph_free(g);
  }
  for (int k = 0; k < 3; k++) {
    hp_graph *g;
    CHECK_OK(hp_graph_create(&g));
    hp_tensor v = hp_input(g, "x", HP_F32, (hp_shape){4, {1, 4, 2, 8}});
    hp_attention_options o = {.dropout = 0.1, .seed = k == 2 ? HP_NONE : v};
    hp_tensor r = k ? hp_attention(g, v, v, v, &o) : hp_dropout(g, v, 0.1, v, 0);
    CHECK_EQ(r, HP_NONE);
    CHECK(hp_graph_status(g) != HP_OK);
    hp_graph_free(g);
  }
}

/* Loss of micro-batch `micro` of a step, those before it weigh nothing, with a model that asks for
 * dropout; its weights stay as they are. */
static double loss_of(lm *m, uint64_t seed, int64_t update, int64_t micro, bool dropout) {
  enum { T = 16, MICROS = 2 };
  step_options o = {.optimizer = {OPTIMIZER_SGD}, .dropout = dropout, .seed = seed};
  int32_t ids[T], labels[T];
  stepper *s;
  step_result r;
  for (int i = 0; i < T; i++) ids[i] = i * 5 % 64, labels[i] = (i + 1) * 5 % 64;
  CHECK_OK(stepper_create(m, &o, &s));
  step_micro b[MICROS] = {{.B = 1, .T = T, .ids = ids, .labels = labels}};
  b[1] = b[0];
  b[micro].weight = 1.0 / T;
  CHECK_OK(stepper_run(s, b, micro + 1, &(step_update){.t = update}, NULL, &r));
  stepper_free(s);
  return r.loss;
}

TEST(dropout_of_a_step_follows_from_seed_update_and_micro_batch) {
  const char *dir = "tests/golden/cases/gpt2-base-names";
  lm_options o = {.compute = HP_F32, .weights = HP_F32};
  hp_device *d;
  lm *m;
  CHECK_OK(hp_device_open(&(hp_device_options){.threads = 1}, &d));
  CHECK_OK(lm_create(dir, d, &o, &m));
  CHECK_OK(lm_load(m, dir));
  double loss[] = {loss_of(m, 1, 1, 0, true), loss_of(m, 2, 1, 0, true), loss_of(m, 1, 2, 0, true),
                   loss_of(m, 1, 1, 1, true), loss_of(m, 1, 1, 0, false)};
  for (int i = 0; i < 5; i++)
    for (int k = 0; k < i; k++) CHECK(loss[i] != loss[k]);
  CHECK_EQ(loss_of(m, 1, 1, 0, true), loss[0]);
  CHECK_EQ(loss_of(m, 2, 1, 0, false), loss[4]);
  lm_free(m);
  hp_device_close(d);
}
