/* Forwards of the next step that run before the update of this one (post-validation of the norm):
 * no bit changes, whatever becomes of the norm, and they are thrown away where they must. */
#include "base/io.h"
#include "base/mem.h"
#include "model/placement.h"
#include "test.h"
#include "train/step.h"

#include <stdio.h>
#include <string.h>

enum { ROWS = 2, LENGTH = 32, MICROS = 6, VOCAB = 32, STEPS = 6 };

/* Without a tied embedding, whose gradient comes from the last stage. */
static const char config[] =
    "{\"model_type\": \"llama\", \"hidden_size\": 48, \"intermediate_size\": 144, "
    "\"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"num_hidden_layers\": 3, "
    "\"vocab_size\": 32, \"max_position_embeddings\": 64, \"tie_word_embeddings\": false}";

/* Computation alone takes time, so that stages are even. */
static const char even[] = "name: even\ndevice: {flops: 1e9, bandwidth_gb_s: 1000}\n"
                           "links: [{name: net, bandwidth_gb_s: 100, latency_us: 0.1}]\n";

static const step_options adamw = {.optimizer = {OPTIMIZER_ADAMW, .beta1 = 0.9, .beta2 = 0.99,
                                                 .eps = 1e-8, .decay = 0.1},
                                   .clip = 100,
                                   .ahead = true};

typedef struct {
  hp_device *d;
  lm *m;
  stepper *s;
} job;

/* by NULL: one device. */
static void open_model(const char *model, const step_options *o, const char *by,
                       const char *schedule, job *j) {
  char path[512], cluster[512];
  str mesh = {0};
  placement on;
  snprintf(path, sizeof path, "%s/config.json", test_dir());
  snprintf(cluster, sizeof cluster, "%s/even.yaml", test_dir());
  CHECK_OK(file_write(path, model, strlen(model)));
  CHECK_OK(file_write(cluster, even, sizeof even - 1));
  hp_device_options d = {.threads = 1,
                         .interpret = true,
                         .cluster = cluster,
                         .pipeline = schedule,
                         .no_partial_sums = true,
                         .may_miss = true};
  if (by) CHECK_OK(placement_parse(by, 0, &on));
  if (by) CHECK_OK(placement_mesh(&on, &mesh, &d.mesh));
  CHECK_OK(hp_device_open(&d, &j->d));
  str_free(&mesh);
  lm_options l = {.compute = HP_F32, .weights = HP_F32};
  CHECK_OK(lm_create(path, j->d, &l, &j->m));
  if (by) CHECK_OK(placement_apply(&on, j->m, j->d));
  CHECK_OK(lm_init(j->m, 5));
  lm_share_rope(j->m, LENGTH);
  CHECK_OK(stepper_create(j->m, o, &j->s));
}

static void open_job(const step_options *o, const char *by, const char *schedule, job *j) {
  open_model(config, o, by, schedule, j);
}

static void close_job(job *j) {
  stepper_free(j->s);
  lm_free(j->m);
  hp_device_close(j->d);
}

typedef struct {
  int32_t ids[MICROS][ROWS * LENGTH], labels[MICROS][ROWS * LENGTH];
  step_micro micro[MICROS];
  int n;
} batch;

static void draw(int64_t t, int n, int64_t length, batch *b) {
  b->n = n;
  for (int i = 0; i < n; i++) {
    for (int k = 0; k < ROWS * length; k++) {
      b->ids[i][k] = (int32_t)((k * 5 + i * 3 + t * 7) % VOCAB);
      b->labels[i][k] = (int32_t)((b->ids[i][k] + 5 + t) % VOCAB);
    }
    b->micro[i] = (step_micro){.B = ROWS,
                               .T = length,
                               .ids = b->ids[i],
                               .labels = b->labels[i],
                               .weight = 1e-2};
  }
}

static step_update update_of(int64_t t) { return (step_update){.lr = 1e-2 / (double)t, .t = t}; }

/* Step t, which is told that `next` follows; NULL: nothing. */
static step_result run_step(job *j, const batch *b, int64_t t, const batch *next) {
  step_result r;
  step_update u = update_of(t);
  step_following f = {next ? next->micro : NULL, next ? next->n : 0, update_of(t + 1)};
  CHECK_OK(stepper_run(j->s, b->micro, b->n, &u, next ? &f : NULL, &r));
  return r;
}

static uint64_t hash_params(const job *j) {
  uint64_t h = 14695981039346656037u;
  for (size_t i = 0; i < j->m->trained; i++) {
    const model_param *p = &j->m->params.at[i];
    size_t bytes = sizeof(float);
    for (int d = 0; d < p->shape.rank; d++) bytes *= (size_t)p->shape.dim[d];
    unsigned char *data = mem_calloc(bytes, 1);
    CHECK_OK(hp_read(j->d, p->name, data, bytes));
    for (size_t k = 0; k < bytes; k++) h = (h ^ data[k]) * 1099511628211u;
    mem_free(data);
  }
  return h;
}

static int ahead_of(const job *j) {
  hp_program_stats s;
  CHECK_OK(hp_program_stats_get(stepper_program(j->s), &s));
  return s.ahead;
}

typedef struct {
  step_result step[STEPS];
  uint64_t middle,
      params; /* hashes: before step 5, where they end what was done ahead; at the end */
  int ahead, clipped;
} outcome;

static int micros_at(int64_t t, bool varies) { return varies && t == 4 ? MICROS - 2 : MICROS; }

/* varies: step 4 has fewer micro-batches, and so another program. */
static void train(const step_options *o, const char *by, const char *schedule, bool varies,
                  outcome *out) {
  static batch b[STEPS + 2];
  job j;
  *out = (outcome){.ahead = 0};
  open_job(o, by, schedule, &j);
  for (int t = 1; t <= STEPS; t++) draw(t, micros_at(t, varies), LENGTH, &b[t]);
  for (int t = 1; t <= STEPS; t++) {
    if (t == 5) out->middle = hash_params(&j);
    out->step[t - 1] = run_step(&j, &b[t], t, t < STEPS ? &b[t + 1] : NULL);
    out->clipped += out->step[t - 1].grad_norm > o->clip;
  }
  out->ahead = ahead_of(&j);
  out->params = hash_params(&j);
  close_job(&j);
}

static void check_same(const step_options *o, const char *by, const char *schedule, bool varies) {
  outcome one, many;
  train(o, NULL, NULL, varies, &one);
  train(o, by, schedule, varies, &many);
  CHECK_EQ(one.ahead, 0);
  CHECK((many.ahead > 0) == (o->optimizer.kind != OPTIMIZER_MUON)); /* takes too long */
  CHECK_EQ(one.middle, many.middle);
  CHECK_EQ(one.params, many.params);
  for (int t = 0; t < STEPS; t++) {
    CHECK(one.step[t].loss == many.step[t].loss);
    CHECK(one.step[t].grad_norm == many.step[t].grad_norm);
  }
}

TEST(forwards_before_the_update_change_no_bit) {
  check_same(&adamw, "pp=3", "zb-2p", true);
  check_same(&adamw, "pp=3,dp=2", "zb-2p", false);
}

/* Of some steps they are in vain, for their gradients are clipped after all. */
TEST(a_clipped_step_throws_away_what_ran_before_its_update) {
  outcome o;
  step_options own = adamw;
  train(&own, "pp=3", "zb-2p", false, &o);
  double low = o.step[0].grad_norm, high = low;
  for (int t = 1; t < STEPS; t++) {
    if (o.step[t].grad_norm < low) low = o.step[t].grad_norm;
    if (o.step[t].grad_norm > high) high = o.step[t].grad_norm;
  }
  own.clip = low + (high - low) * 0.6;
  train(&own, "pp=3", "zb-2p", false, &o);
  CHECK(o.clipped > 0 && o.clipped < STEPS);
  check_same(&own, "pp=3", "zb-2p", false);
}

TEST(all_steps_or_none_may_be_clipped) {
  step_options own = adamw;
  own.clip = 1e-3;
  check_same(&own, "pp=3", "zb-2p", false);
  own.clip = 0;
  check_same(&own, "pp=3", "zb-2p", false);
}

static void check_optimizer(optimizer_kind k) {
  step_options own = adamw;
  own.optimizer.kind = k;
  own.optimizer.momentum = k == OPTIMIZER_SGD ? 0.9 : 0;
  check_same(&own, "pp=3", "zb-2p", false);
}

TEST(forwards_before_the_update_change_no_bit_of_sgd_and_adafactor) {
  check_optimizer(OPTIMIZER_SGD);
  check_optimizer(OPTIMIZER_ADAFACTOR);
}

TEST(forwards_before_the_update_change_no_bit_of_lion_and_muon) {
  check_optimizer(OPTIMIZER_LION);
  check_optimizer(OPTIMIZER_MUON);
}

/* The masks of the next step are those of its own number. */
TEST(noise_of_a_forward_before_the_update_is_that_of_its_step) {
  step_options own = adamw;
  own.noise = 5;
  own.seed = 9;
  check_same(&own, "pp=3", "zb-2p", false);
}

/* A step goes on with what the one before has done: told of other samples, it trains on those. */
TEST(a_step_goes_on_with_what_ran_before_it) {
  static batch b[4], other;
  step_result right[3], wrong[3];
  job j;
  for (int t = 1; t <= 3; t++) draw(t, MICROS, LENGTH, &b[t]);
  draw(77, MICROS, LENGTH, &other);
  for (int k = 0; k < 2; k++) {
    step_result *r = k ? wrong : right;
    open_job(&adamw, "pp=3", "zb-2p", &j);
    r[0] = run_step(&j, &b[1], 1, k ? &other : &b[2]);
    r[1] = run_step(&j, &b[2], 2, NULL);
    r[2] = run_step(&j, &b[3], 3, NULL); /* nothing ran before this one */
    close_job(&j);
  }
  CHECK(right[0].loss == wrong[0].loss);
  CHECK(right[1].loss != wrong[1].loss);
  /* params that are read, or another program, end it */
  for (int k = 0; k < 2; k++) {
    open_job(&adamw, "pp=3", "zb-2p", &j);
    wrong[0] = run_step(&j, &b[1], 1, &other);
    if (k) {
      draw(3, 2, LENGTH, &b[0]);
      (void)run_step(&j, &b[0], 2, NULL);
      (void)run_step(&j, &b[2], 2, NULL);
    } else {
      (void)hash_params(&j);
      wrong[1] = run_step(&j, &b[2], 2, NULL);
      CHECK(right[1].loss == wrong[1].loss);
    }
    close_job(&j);
  }
}

/* A tied embedding gets a part of its gradient from the last stage, and 1f1b ends on the first. */
TEST(nothing_runs_before_an_update_where_it_would_gain_nothing) {
  outcome o;
  train(&adamw, "pp=3", "1f1b", false, &o);
  CHECK_EQ(o.ahead, 0);
  step_options own = adamw;
  own.ahead = false;
  train(&own, "pp=3", "zb-2p", false, &o);
  CHECK_EQ(o.ahead, 0);
}

/* A model whose loss depends on the lengths of samples, which differ from step to step. */
static uint64_t train_by_length(const char *by) {
  static const char moe[] =
      "{\"model_type\": \"qwen3_moe\", \"hidden_size\": 32, \"intermediate_size\": 64, "
      "\"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"head_dim\": 16, "
      "\"num_hidden_layers\": 2, \"vocab_size\": 32, \"max_position_embeddings\": 64, "
      "\"num_experts\": 4, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 16, "
      "\"output_router_logits\": true, \"router_aux_loss_coef\": 0.5, "
      "\"norm_topk_prob\": true, \"tie_word_embeddings\": false}";
  static batch b[4];
  int32_t lengths[4][MICROS][ROWS];
  job j;
  step_options own = adamw;
  own.ahead = by != NULL;
  open_model(moe, &own, by, by ? "zb-2p" : NULL, &j);
  for (int t = 1; t < 4; t++) {
    draw(t, MICROS, LENGTH, &b[t]);
    for (int i = 0; i < MICROS; i++) {
      for (int r = 0; r < ROWS; r++) lengths[t][i][r] = 5 + 7 * t + i - r;
      b[t].micro[i].lengths = lengths[t][i];
    }
  }
  for (int t = 1; t < 4; t++) (void)run_step(&j, &b[t], t, t < 3 ? &b[t + 1] : NULL);
  const uint64_t h = hash_params(&j);
  close_job(&j);
  return h;
}

TEST(lengths_of_a_forward_before_the_update_are_those_of_its_step) {
  CHECK_EQ(train_by_length(NULL), train_by_length("pp=2"));
}

/* What a run has done for the next one is gone after one that fails, which may have used it up. */
TEST(a_step_that_failed_begins_anew) {
  static batch b[4], bad;
  uint64_t params[2];
  for (int t = 1; t < 4; t++) draw(t, MICROS, LENGTH, &b[t]);
  for (int k = 0; k < 2; k++) {
    job j;
    step_result r;
    const step_update u = update_of(2);
    open_job(&adamw, "pp=3", "zb-2p", &j);
    (void)run_step(&j, &b[1], 1, &b[2]);
    draw(2, MICROS, LENGTH, &bad);
    for (int i = 0; i < ROWS * LENGTH; i++) bad.ids[MICROS - 1][i] = VOCAB + 1;
    if (k) CHECK(stepper_run(j.s, bad.micro, MICROS, &u, NULL, &r));
    err_clear();
    (void)run_step(&j, &b[2], 2, &b[3]);
    (void)run_step(&j, &b[3], 3, NULL);
    params[k] = hash_params(&j);
    close_job(&j);
  }
  CHECK_EQ(params[0], params[1]);
}

/* A step of one micro-batch has nothing to run ahead, and is not taken for one that was clipped. */
TEST(a_step_behind_one_of_another_shape_runs_ahead_again) {
  static batch b[4], other;
  double loss[2];
  for (int t = 1; t < 4; t++) draw(t, t == 1 ? 1 : MICROS, LENGTH, &b[t]);
  draw(77, MICROS, LENGTH, &other);
  for (int k = 0; k < 2; k++) {
    job j;
    open_job(&adamw, "pp=3", "zb-2p", &j);
    (void)run_step(&j, &b[1], 1, &b[2]);
    (void)run_step(&j, &b[2], 2, k ? &other : &b[3]);
    loss[k] = run_step(&j, &b[3], 3, NULL).loss;
    close_job(&j);
  }
  CHECK(loss[0] != loss[1]);
}
