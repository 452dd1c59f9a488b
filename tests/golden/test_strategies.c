/* Models by strategy: on several devices they give the logits, the loss and the gradients of one,
 * whatever is cut and whether or not it is divided evenly. */
#include "base/hash.h"
#include "base/mem.h"
#include "golden/golden_case.h"
#include "model/placement.h"
#include "test.h"
#include "train/step.h"

#include <math.h>
#include <string.h>

/* Largest relative difference of sums in another order. */
static const double limit = 1e-5;
enum { TOKENS = 12 };

static const char *const strategies[] = {
    "dp=2,zero=3",
    "dp=4,zero=3:2",
    "tp=2",
    "tp=3",
    "tp=3,sp",
    "tp=7,sp",
    "tp_y=2",
    "tp=2,tp_y=2",
    "tp=2,tp_y=3,zero=1",
    "cp=2:ring",
    "cp=3:ring",
    "cp=2:allgather",
    "cp=2:ulysses",
    "cp=4:hybrid",
    "cp=6:hybrid",
    "cp=5",
    "tp=2,sp,cp=2:ring",
    "tp=2,sp,cp=3:allgather,zero=2",
    "dp=2,tp=2,sp,cp=2:ulysses,zero=3",
    "tp=2,tp_y=2,cp=2:ring",
    "tp=2,tp_y=2,cp=2:allgather",
    "tp=2,tp_y=2,cp=4:hybrid",
    NULL,
};
/* Of models with experts. */
static const char *const expert_strategies[] = {
    "ep=2",
    "etp=2",
    "tp=2",
    "dp=2,ep=2,zero=3",
    "tp=2,ep=2,etp=2",
    "tp=2,ep=2,sp",
    "ep=3",
    "ep=4,dp=2,tp=2,sp",
    "tp=2,tp_y=2",
    "tp=2,tp_y=2,ep=2,etp=2",
    "cp=2:ring,tp=2,ep=2,sp",
    "cp=3:allgather,ep=2,zero=1",
    "cp=2:ulysses,tp=2,ep=4",
    "dp=3,tp=2,sp,ep=6",
    NULL,
};

typedef struct {
  float *logits;
  lm_gradients g;
} answers;

typedef struct {
  hp_device *d;
  lm *m;
} model;

static void open_model(const char *path, const char *text, model *x) {
  placement s;
  const char *on;
  str mesh = {0};
  CHECK_OK(placement_parse(text, 0, &s));
  CHECK_OK(placement_mesh(&s, &mesh, &on));
  hp_device_options o = {.threads = 1, .interpret = true, .mesh = on};
  CHECK_OK(hp_device_open(&o, &x->d));
  str_free(&mesh);
  CHECK_OK(lm_create(path, x->d, &(lm_options){.compute = HP_F32, .weights = HP_F32}, &x->m));
  CHECK_OK(placement_apply(&s, x->m, x->d));
  CHECK_OK(lm_load(x->m, path));
}

static void ask(const model *x, const lm_tokens *t, answers *out) {
  out->logits = mem_calloc((size_t)(t->n * x->m->c.vocab), sizeof *out->logits);
  CHECK(out->logits);
  CHECK_OK(lm_logits(x->m, t, out->logits));
  CHECK_OK(lm_grads(x->m, t, &out->g));
}

static double difference(const float *got, const float *want, size_t n) {
  double worst = 0, largest = 1e-30;
  for (size_t i = 0; i < n; i++) {
    worst = fmax(worst, fabs((double)got[i] - (double)want[i]));
    largest = fmax(largest, fabs((double)want[i]));
  }
  return worst / largest;
}

static int judge(const char *path, const char *text, const char *what, double error) {
  if (error <= limit) return 0;
  printf("%s by %s: %s is off by %.3g\n", path, text, what, error);
  return 1;
}

static int compare(const model *x, const char *text, const answers *got, const answers *want,
                   int64_t n) {
  const lm *m = x->m;
  int failures = 0;
  failures += judge(m->path, text, "logits",
                    difference(got->logits, want->logits, (size_t)(n * m->c.vocab)));
  failures += judge(m->path, text, "the loss", difference(&got->g.loss, &want->g.loss, 1));
  for (size_t i = 0; i < m->trained; i++) {
    const model_param *p = &m->params.at[i];
    failures += judge(m->path, text, p->name,
                      difference(got->g.grad[i], want->g.grad[i], model_param_elements(p)));
  }
  return failures;
}

static void end(model *x, answers *a) {
  lm_gradients_free(x->m, &a->g);
  mem_free(a->logits);
  lm_free(x->m);
  hp_device_close(x->d);
}

/* By every n-th strategy from `first` on. */
static int try_model(const char *path, const char *const *texts, int first, int n) {
  golden_case c;
  model one, many;
  answers want, got;
  int failures = 0;
  golden_open(path, &c);
  lm_tokens t = {c.sequence[0].ids, c.sequence[0].n < TOKENS ? c.sequence[0].n : TOKENS};
  open_model(path, NULL, &one);
  ask(&one, &t, &want);
  for (int i = 0; texts[i]; i++) {
    if (i % n != first) continue;
    open_model(path, texts[i], &many);
    ask(&many, &t, &got);
    failures += compare(&many, texts[i], &got, &want, t.n);
    end(&many, &got);
  }
  end(&one, &want);
  golden_close(&c);
  return failures;
}

/* Each strategy on one of n models in turn. */
static void try_all(const char *const *names, const char *const *texts, int n) {
  int failures = 0;
  for (int i = 0; names[i]; i++) {
    char path[600];
    snprintf(path, sizeof path, "tests/golden/cases/%s", names[i]);
    failures += try_model(path, texts, i % n, n);
  }
  CHECK_EQ(failures, 0);
}

static const char *const dense[] = {"gpt2-base-names", "llama-odd-heads", "mistral-window",
                                    "qwen3-bias-tied", NULL};
static const char *const experts[] = {"deepseekv3-yarn", "mixtral-pad", "qwen3moe-fused", NULL};

TEST(strategies_give_the_numbers_of_one_device) { try_all(dense, strategies, 4); }
TEST(strategies_of_experts_give_the_numbers_of_one_device) {
  try_all(experts, expert_strategies, 3);
}
TEST(torture_all_strategies_give_the_numbers_of_one_device) {
  try_all(dense, strategies, 1);
  try_all(experts, expert_strategies, 1);
}

/* One token and one expert of it: rows wait for a sum over the middle of the layer, the ids that
 * say whose they are do not. */
TEST(one_expert_of_one_token_is_found_on_many_devices) {
  const char *path = "tests/golden/cases/mixtral-pad";
  float want[64], got[64];
  for (int32_t id = 0; id < 16; id++) {
    model one, many;
    open_model(path, NULL, &one);
    open_model(path, "ep=2,etp=2", &many);
    one.m->c.moe.per_token = many.m->c.moe.per_token = 1;
    CHECK_EQ(one.m->c.vocab, 64);
    CHECK_OK(lm_logits(one.m, &(lm_tokens){&id, 1}, want));
    CHECK_OK(lm_logits(many.m, &(lm_tokens){&id, 1}, got));
    CHECK(difference(got, want, 64) <= limit);
    end(&one, &(answers){0});
    end(&many, &(answers){0});
  }
}

/* --- micro-batches ---------------------------------------------------------------------------- */

/* Bytes that a device receives for each micro-batch but the last. */
static double received_by_one_more(const char *text) {
  enum { B = 4, T = 8, MICROS = 3 };
  int32_t ids[B * T];
  model x;
  stepper *s;
  hp_program_stats stats[2];
  step_result r;
  step_micro b[MICROS];
  for (int i = 0; i < B * T; i++) ids[i] = i % 50;
  for (int i = 0; i < MICROS; i++)
    b[i] = (step_micro){.B = B, .T = T, .ids = ids, .labels = ids, .weight = 0.1};
  open_model("tests/golden/cases/llama-odd-heads", text, &x);
  step_options o = {.optimizer = {.beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8}};
  CHECK_OK(stepper_create(x.m, &o, &s));
  for (int k = 0; k < 2; k++) {
    CHECK_OK(stepper_run(s, b, MICROS - 1 + k, &(step_update){.lr = 0, .t = 1}, NULL, &r));
    CHECK_OK(hp_program_stats_get(stepper_program(s), &stats[k]));
  }
  stepper_free(s);
  lm_free(x.m);
  hp_device_close(x.d);
  return stats[1].received - stats[0].received;
}

TEST(gradients_are_reduced_once_a_step) {
  CHECK(received_by_one_more("dp=2") <= 8); /* the loss */
  CHECK(received_by_one_more("dp=2,zero=1") <= 8);
  CHECK(received_by_one_more("dp=4,zero=1:2") <= 16);
  CHECK(received_by_one_more("dp=2,zero=2") > 1000);
}

/* --- rows of experts -------------------------------------------------------------------------- */

/* What two steps leave. */
typedef struct {
  double loss[2], norm, received;
  uint64_t params;
} trained;

static uint64_t hash_params(const model *x) {
  uint64_t h = 0;
  for (size_t i = 0; i < x->m->params.len; i++) {
    const model_param *p = &x->m->params.at[i];
    size_t bytes = model_param_elements(p) * sizeof(float);
    float *w = mem_calloc(bytes, 1);
    CHECK(w);
    CHECK_OK(hp_read(x->d, p->name, w, bytes));
    h = h * 31 + hash_bytes(w, bytes);
    mem_free(w);
  }
  return h;
}

static trained train_by(const char *path, const char *text, hp_dispatch how, int interleave) {
  enum { B = 6, T = 8 };
  int32_t ids[B * T];
  model x;
  stepper *s;
  trained out = {0};
  hp_program_stats stats;
  for (int i = 0; i < B * T; i++) ids[i] = (i * i + i / 5) % 50;
  open_model(path, text, &x);
  step_options o = {.optimizer = {.beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8},
                    .compile = {.dispatch = how},
                    .interleave = interleave};
  step_micro b[2];
  for (int i = 0; i < 2; i++)
    b[i] = (step_micro){.B = B, .T = T, .ids = ids, .labels = ids, .weight = 0.01};
  CHECK_OK(stepper_create(x.m, &o, &s));
  for (int k = 0; k < 2; k++) {
    step_result r;
    CHECK_OK(stepper_run(s, b, 2, &(step_update){.lr = 0.01, .t = k + 1}, NULL, &r));
    out.loss[k] = r.loss;
    out.norm = r.grad_norm;
  }
  CHECK_OK(hp_program_stats_get(stepper_program(s), &stats));
  out.received = stats.received;
  out.params = hash_params(&x);
  stepper_free(s);
  lm_free(x.m);
  hp_device_close(x.d);
  return out;
}

/* By every n-th strategy from `first` on: rows give the bits of all rows.  Together fewer bytes
 * move: not where each token has an expert on every device, as with two of three experts on two. */
static int try_rows(const char *name, int first, int n) {
  int failures = 0;
  double all_less = 0;
  char path[600];
  snprintf(path, sizeof path, "tests/golden/cases/%s", name);
  for (int i = 0; expert_strategies[i]; i++) {
    const char *text = expert_strategies[i];
    if (i % n != first || !strstr(text, "ep=")) continue;
    trained all = train_by(path, text, HP_DISPATCH_ALL, 1 + i % 2);
    trained rows = train_by(path, text, HP_DISPATCH_ROWS, 1 + i % 2);
    double less = all.received - rows.received;
    all.received = rows.received = 0;
    all_less += less;
    if (!memcmp(&all, &rows, sizeof all)) continue;
    printf("%s by %s: loss %.9g %.9g norm %.9g, want %.9g %.9g %.9g; %.0f bytes less\n", name, text,
           rows.loss[0], rows.loss[1], rows.norm, all.loss[0], all.loss[1], all.norm, less);
    failures++;
  }
  CHECK(all_less > 0);
  return failures;
}

TEST(rows_of_experts_train_as_all_rows_do) {
  static const int first[] = {0, 4, 5}; /* of every sixth: ep by itself, with tp and etp, with cp */
  int failures = 0;
  for (int i = 0; experts[i]; i++) failures += try_rows(experts[i], first[i], 6);
  CHECK_EQ(failures, 0);
}
TEST(torture_rows_of_experts_train_as_all_rows_do_by_all_strategies) {
  int failures = 0;
  for (int i = 0; experts[i]; i++) failures += try_rows(experts[i], 0, 1);
  CHECK_EQ(failures, 0);
}

/* --- the words and what they mean ------------------------------------------------------------- */

static void mesh_is(const char *text, const char *want) {
  placement s;
  const char *on;
  str mesh = {0};
  CHECK_OK(placement_parse(text, 0, &s));
  CHECK_OK(placement_mesh(&s, &mesh, &on));
  if (!want) CHECK(!on);
  else CHECK_STR(on, want);
  str_free(&mesh);
}

TEST(a_strategy_names_the_axes_of_its_mesh) {
  mesh_is("", NULL);
  mesh_is("sp,zero=3,dp=1", NULL);
  mesh_is("tp=2,dp=3", "(3,2)(dp,tp)");
  mesh_is("dp=8,zero=3:4,tp=2", "(2,4,2)(replicas,dp,tp)");
  mesh_is("dp=4,zero=1:4", "(4)(dp)");
  mesh_is("dp=4,zero=3:2,ep=2", "(2,2)(replicas,dp)");
  mesh_is("tp=2,tp_y=4,cp=3,dp=5", "(5,3,4,2)(dp,cp,tp_y,tp)");
  mesh_is("cp=4:ulysses", "(4)(cp)");
  mesh_is("cp=8:hybrid", "(4,2)(cp,cp_heads)");
  mesh_is("cp=7:hybrid", "(7)(cp)");
  mesh_is("ep=2", "(2)(dp)");
  mesh_is("ep=2,dp=4", "(2,2)(dp,dp_ep)");
  mesh_is("ep=4,dp=2,tp=2", "(2,2)(dp,tp)");
  mesh_is("ep=2,etp=2,tp=4", "(2,2)(tp,tp_etp)");
  mesh_is("ep=3,tp=2", "(3,2)(dp,tp)");
  mesh_is("ep=6,dp=4", "(2,6)(dp,dp_ep)");
  mesh_is("etp=2,tp=4,ep=2,dp=2", "(2,2,2)(dp,tp,tp_etp)");
}

TEST(a_strategy_that_cannot_be_is_refused) {
  static const struct {
    const char *text;
    int64_t devices;
    const char *why;
  } bad[] = {
      {"dp=0", 0, "\"dp=0\" is no degree"},
      {"dp=-2", 0, "is no degree"},
      {"dp", 0, "is no degree"},
      {"dp=2x", 0, "is no degree"},
      {"zero=4", 0, "0 to 3"},
      {"dp=4,zero=3:3", 0, "dp=4 is not divided by zero's 3"},
      {"dp=4,zero=3:0", 0, "is no degree"},
      {"sp=2", 0, "0 to 1"},
      {"dp=2,tp=2,dp=4", 0, "\"dp\" occurs twice"},
      {"pd=2", 0, "did you mean \"dp\""},
      {"pp=0", 0, "is no degree"},
      {"pp=65", 0, "at most 64 are possible"},
      {"cp=2:rign", 0, "did you mean \"ring\""},
      {"tp=2:ring", 0, "is no degree"},
      {"dp=2,tp=2", 8, "is 4 devices, of 8"},
      {"ep=3,dp=2", 2, "is 6 devices, of 2"},
      {"tp=65536,dp=65536", 0, "more than"},
      {"ep=1048576,etp=1048576", 0, "more than"},
      {NULL, -1, "-1 devices"},
  };
  placement s;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    CHECK_FAILS(placement_parse(bad[i].text, bad[i].devices, &s), bad[i].why);
}
