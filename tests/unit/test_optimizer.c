/* Updates of optimizers, beside the same in double without a graph, and torch.optim.Muon. */
#include "base/mem.h"
#include "test.h"
#include "train/optimizer.h"
#include "train/optimizer_update.h"

#include <math.h>
#include <string.h>

enum { MOST = 96, STEPS = 3 };

static const double lr = 0.02, factor = 0.7;

/* A param with its state, on a device and in double. */
typedef struct {
  const optimizer_options *o;
  const model_param *param;
  int64_t stack, n, k; /* matrices [n,k]; a vector is [1,k] */
  hp_device *d;
  double p[MOST], grad[MOST], m[MOST], v[MOST], row[MOST], col[MOST];
} job;

static int64_t size_of(const job *j) { return j->stack * j->n * j->k; }

/* --- in double -------------------------------------------------------------------------------- */

static void decay(job *j) {
  for (int64_t i = 0; i < size_of(j); i++) j->p[i] *= 1 - lr * j->o->decay;
}

static void lion(job *j) {
  decay(j);
  for (int64_t i = 0; i < size_of(j); i++) {
    double mixed = j->o->beta1 * j->m[i] + (1 - j->o->beta1) * j->grad[i];
    j->p[i] -= lr * (mixed > 0 ? 1 : mixed < 0 ? -1 : 0);
    j->m[i] = j->o->beta2 * j->m[i] + (1 - j->o->beta2) * j->grad[i];
  }
}

/* The means of squares over the rows and columns of matrix e, as running ones. */
static void update_factors(job *j, int64_t e, double beta2) {
  double *row = j->row + e * j->n, *col = j->col + e * j->k;
  for (int64_t r = 0; r < j->n; r++) row[r] *= beta2;
  for (int64_t c = 0; c < j->k; c++) col[c] *= beta2;
  for (int64_t r = 0; r < j->n; r++)
    for (int64_t c = 0; c < j->k; c++) {
      double g = j->grad[(e * j->n + r) * j->k + c], square = g * g + 1e-30;
      row[r] += (1 - beta2) * square / (double)j->k;
      col[c] += (1 - beta2) * square / (double)j->n;
    }
}

static double second_moment(const job *j, int64_t i) {
  int64_t e = i / (j->n * j->k), r = i / j->k % j->n, c = i % j->k;
  double mean = 0;
  if (!optimizer_is_factored(j->param)) return j->v[i];
  for (int64_t k = 0; k < j->n; k++) mean += j->row[e * j->n + k] / (double)j->n;
  return j->row[e * j->n + r] * j->col[e * j->k + c] / mean;
}

static void adafactor(job *j, int t) {
  double step[MOST], sum = 0, beta2 = 1 - pow(t, -0.8);
  for (int64_t e = 0; e < j->stack; e++) update_factors(j, e, beta2);
  for (int64_t i = 0; i < size_of(j); i++)
    j->v[i] = beta2 * j->v[i] + (1 - beta2) * (j->grad[i] * j->grad[i] + 1e-30);
  for (int64_t i = 0; i < size_of(j); i++) {
    step[i] = j->grad[i] / sqrt(second_moment(j, i));
    sum += step[i] * step[i];
  }
  double rms = sqrt(sum / (double)size_of(j));
  decay(j);
  for (int64_t i = 0; i < size_of(j); i++) j->p[i] -= lr * step[i] / fmax(rms, 1);
}

/* out = a y + (b S + c S S) y, S = y y^T */
static void newton_schulz(double *y, int64_t n, int64_t k) {
  double s[MOST], s2[MOST], next[MOST];
  for (int64_t i = 0; i < n * n; i++) {
    s[i] = 0;
    for (int64_t c = 0; c < k; c++) s[i] += y[i / n * k + c] * y[i % n * k + c];
  }
  for (int64_t i = 0; i < n * n; i++) {
    s2[i] = 0;
    for (int64_t c = 0; c < n; c++) s2[i] += s[i / n * n + c] * s[c * n + i % n];
  }
  for (int64_t i = 0; i < n * k; i++) {
    next[i] = 3.4445 * y[i];
    for (int64_t r = 0; r < n; r++)
      next[i] += (-4.7750 * s[i / k * n + r] + 2.0315 * s2[i / k * n + r]) * y[r * k + i % k];
  }
  memcpy(y, next, (size_t)(n * k) * sizeof *y);
}

/* The Newton-Schulz steps without the transpose for tall matrices: S y = y (y^T y). */
static void muon(job *j) {
  double y[MOST], sum = 0;
  decay(j);
  for (int64_t i = 0; i < size_of(j); i++) {
    j->m[i] = 0.95 * j->m[i] + j->grad[i];
    y[i] = j->grad[i] + 0.95 * j->m[i];
    sum += y[i] * y[i];
  }
  for (int64_t i = 0; i < size_of(j); i++) y[i] /= sqrt(sum) + 1e-7;
  for (int i = 0; i < 5; i++) newton_schulz(y, j->n, j->k);
  for (int64_t i = 0; i < size_of(j); i++)
    j->p[i] -= lr * 0.2 * sqrt((double)(j->n > j->k ? j->n : j->k)) * y[i];
}

/* The AdamW of LlamaFactory's Muon: eps is not scaled with the root of the bias correction. */
static void adamw(job *j, int t) {
  const optimizer_options *o = j->o;
  double scale = sqrt(1 - pow(o->beta2, t)) / (1 - pow(o->beta1, t));
  decay(j);
  for (int64_t i = 0; i < size_of(j); i++) {
    j->m[i] = o->beta1 * j->m[i] + (1 - o->beta1) * j->grad[i];
    j->v[i] = o->beta2 * j->v[i] + (1 - o->beta2) * j->grad[i] * j->grad[i];
    j->p[i] -= lr * scale * j->m[i] / (sqrt(j->v[i]) + o->eps);
  }
}

static void update_in_double(job *j, int t) {
  switch (j->o->kind) {
  case OPTIMIZER_LION: lion(j); break;
  case OPTIMIZER_ADAFACTOR: adafactor(j, t); break;
  default: optimizer_is_of_muon(j->param) ? muon(j) : adamw(j, t);
  }
}

/* --- as a graph ------------------------------------------------------------------------------- */

static hp_tensor scalar(hp_graph *g, const char *name) {
  return hp_input(g, name, HP_F32, (hp_shape){0});
}

static hp_program *compile(const job *j) {
  hp_graph *g;
  hp_program *p;
  const optimizer *by = &optimizers[j->o->kind];
  CHECK_OK(hp_graph_create(&g));
  optimizer_param x = {.g = g,
                       .o = j->o,
                       .param = j->param,
                       .decay = j->o->decay,
                       .compute = HP_F32,
                       .p = hp_param(g, j->param->name, HP_F32, j->param->shape),
                       .grad = hp_input(g, "grad", HP_F32, j->param->shape),
                       .factor = scalar(g, "factor")};
  for (int i = 0; i < OPTIMIZER_NUMBERS && by->number[i]; i++)
    x.number[i] = scalar(g, by->number[i]);
  by->update(&x);
  CHECK_OK(hp_compile(g, j->d, NULL, &p));
  hp_graph_free(g);
  return p;
}

static void run(const job *j, hp_program *p, int t) {
  const optimizer *by = &optimizers[j->o->kind];
  float grad[MOST], by_factor = (float)factor, number[OPTIMIZER_NUMBERS];
  hp_io io[2 + OPTIMIZER_NUMBERS] = {{"grad", grad, (size_t)size_of(j) * sizeof *grad},
                                     {"factor", &by_factor, sizeof by_factor}};
  int n = 2;
  for (int64_t i = 0; i < size_of(j); i++) grad[i] = (float)(j->grad[i] / factor);
  by->set(j->o, lr, t, number);
  for (int i = 0; i < OPTIMIZER_NUMBERS && by->number[i]; i++)
    io[n++] = (hp_io){by->number[i], &number[i], sizeof number[i]};
  CHECK_OK(hp_run(p, io, n));
}

static void check_tensor(const job *j, const char *name, hp_shape shape, const double *expected) {
  float have[MOST];
  size_t n = 1;
  for (int d = 0; d < shape.rank; d++) n *= (size_t)shape.dim[d];
  CHECK_OK(hp_read(j->d, name, have, n * sizeof *have));
  for (size_t i = 0; i < n; i++) CHECK_NEAR((double)have[i], expected[i], 2e-5);
}

static void check_states(const job *j) {
  const double *of[PARAM_STATES] =
      {[STATE_M] = j->m, [STATE_V] = j->v, [STATE_ROW] = j->row, [STATE_COL] = j->col};
  param_state state[OPTIMIZER_STATES];
  int n = optimizers[j->o->kind].states(j->o, j->param, state);
  for (int i = 0; i < n; i++) {
    char name[STATE_NAME];
    param_state_name(state[i], j->param->name, name);
    check_tensor(j, name, param_state_shape(state[i], j->param->shape), of[state[i]]);
  }
}

static void open_job(const optimizer_options *o, const model_param *p, job *j) {
  float first[MOST];
  int rank = p->shape.rank;
  *j = (job){.o = o,
             .param = p,
             .stack = rank > 2 ? p->shape.dim[0] : 1,
             .n = rank > 1 ? p->shape.dim[rank - 2] : 1,
             .k = p->shape.dim[rank - 1]};
  for (int64_t i = 0; i < size_of(j); i++) first[i] = (float)(j->p[i] = cos(0.3 * (double)i));
  CHECK_OK(hp_device_open(&(hp_device_options){.threads = 1, .interpret = true}, &j->d));
  CHECK_OK(hp_param_create(j->d, p->name, HP_F32, p->shape));
  CHECK_OK(hp_write(j->d, p->name, first, (size_t)size_of(j) * sizeof *first));
}

static void set_grad(job *j, int t) {
  for (int64_t i = 0; i < size_of(j); i++)
    j->grad[i] = sin(1 + 0.7 * (double)i + t) + 0.5 * cos((double)(i * i) + t);
}

static const model_param params[] = {
    {.name = "wide.weight", .shape = {2, {3, 5}}},
    {.name = "tall.weight", .shape = {2, {5, 3}}},
    {.name = "norm.weight", .shape = {1, {7}}},
    {.name = "embed.weight", .shape = {2, {4, 3}}},
    {.name = "experts.*.weight", .shape = {3, {3, 4, 5}}},
    {.name = "experts.*.bias", .shape = {2, {3, 5}}},
};
enum { PARAMS = sizeof params / sizeof *params };

/* Opens the job and takes STEPS updates, in both ways. */
static void train(const optimizer_options *o, const model_param *param, job *j) {
  open_job(o, param, j);
  hp_program *p = compile(j);
  for (int t = 1; t <= STEPS; t++) {
    set_grad(j, t);
    run(j, p, t);
    update_in_double(j, t);
  }
  hp_program_free(p);
}

TEST(the_state_of_a_param_is_that_of_its_optimizer) {
  const model_param p = {.name = "w", .kind = PARAM_MATRIX, .shape = {2, {6, 4}}};
  static const int64_t want[] = {[OPTIMIZER_ADAMW] = 48,
                                 [OPTIMIZER_SGD] = 0,
                                 [OPTIMIZER_ADAFACTOR] = 10,
                                 [OPTIMIZER_LION] = 24,
                                 [OPTIMIZER_MUON] = 24};
  for (int k = 0; k < OPTIMIZERS; k++)
    CHECK_EQ(optimizer_state_size(&(optimizer_options){.kind = (optimizer_kind)k}, &p), want[k]);
}

static void check_kind(optimizer_kind kind) {
  const optimizer_options o = {kind, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-3, .decay = 0.1};
  for (size_t i = 0; i < PARAMS; i++) {
    job j;
    train(&o, &params[i], &j);
    check_tensor(&j, params[i].name, params[i].shape, j.p);
    check_states(&j);
    hp_device_close(j.d);
  }
}

TEST(lion_takes_the_sign_of_its_momentum) { check_kind(OPTIMIZER_LION); }
TEST(adafactor_factors_the_second_moment_of_matrices) { check_kind(OPTIMIZER_ADAFACTOR); }
TEST(muon_orthogonalizes_matrices_and_leaves_the_rest_to_adamw) { check_kind(OPTIMIZER_MUON); }

/* Three steps of torch 2.11 with adjust_lr_fn "match_rms_adamw", which rounds to bf16. */
TEST(muon_is_that_of_torch_but_for_its_rounding) {
  static const double wide[] = {0.986595,  0.949701,  0.814618,  0.635705,  0.360835,
                                0.070533,  -0.229837, -0.520369, -0.730579, -0.903581,
                                -0.979322, -0.966616, -0.890202, -0.723866, -0.483098};
  static const double tall[] = {0.98589,  0.962611,  0.820385,  0.631192,  0.361909,
                                0.073048, -0.233805, -0.518992, -0.73413,  -0.903091,
                                -0.98731, -0.963463, -0.880077, -0.721835, -0.478549};
  const optimizer_options o = {OPTIMIZER_MUON, .decay = 0.1};
  for (int i = 0; i < 2; i++) {
    float have[MOST];
    job j;
    train(&o, &params[i], &j);
    CHECK_OK(hp_read(j.d, params[i].name, have, (size_t)size_of(&j) * sizeof *have));
    for (int64_t k = 0; k < size_of(&j); k++)
      CHECK_NEAR((double)have[k], (i ? tall : wide)[k], 5e-4);
    hp_device_close(j.d);
  }
}

/* An update of 0 leaves the param, but for its decay. */
TEST(updates_by_no_gradient_are_finite) {
  for (optimizer_kind kind = OPTIMIZER_SGD + 1; kind < OPTIMIZERS; kind++) {
    const optimizer_options o = {kind, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8};
    job j;
    open_job(&o, &params[0], &j);
    hp_program *p = compile(&j);
    run(&j, p, 1);
    check_tensor(&j, params[0].name, params[0].shape, j.p);
    hp_program_free(p);
    hp_device_close(j.d);
  }
}
