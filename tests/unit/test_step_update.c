/* Steps that leave their update to the next one: the same bits, and faster where optimizer state is
 * on another tier. */
#include "base/io.h"
#include "base/mem.h"
#include "test.h"
#include "train/step.h"
#include "train/step_choice.h"

#include <stdio.h>
#include <string.h>

enum { ROWS = 2, LONGEST = 32, MOST = 3, VOCAB = 64, STEPS = 5, LAYERS = 3 };

static const char config[] = "{\"model_type\": \"llama\", \"hidden_size\": 32, "
                             "\"intermediate_size\": 48, \"num_attention_heads\": 4, "
                             "\"num_key_value_heads\": 2, \"num_hidden_layers\": %d, "
                             "\"vocab_size\": 64, \"max_position_embeddings\": 64}";

static const step_options adamw = {.optimizer = {OPTIMIZER_ADAMW, .beta1 = 0.9, .beta2 = 0.99,
                                                 .eps = 1e-8, .decay = 0.1},
                                   .clip = 0.05};
static const step_options sgd = {.optimizer = {OPTIMIZER_SGD, .momentum = 0.9}};

typedef struct {
  hp_device *d;
  lm *m;
} model;

static void open_model(const hp_device_options *o, int layers, model *j) {
  char path[512], text[sizeof config];
  int n = snprintf(text, sizeof text, config, layers);
  snprintf(path, sizeof path, "%s/config.json", test_dir());
  CHECK_OK(file_write(path, text, (size_t)n));
  CHECK_OK(hp_device_open(o, &j->d));
  CHECK_OK(lm_create(path, j->d, &(lm_options){.compute = HP_F32, .weights = HP_F32}, &j->m));
}

static void close_model(model *j) {
  lm_free(j->m);
  hp_device_close(j->d);
}

/* Step t of n micro-batches, whose lengths change from step to step. */
static step_result run_step(stepper *s, int n, int64_t t) {
  static int32_t ids[MOST][ROWS * LONGEST], labels[MOST][ROWS * LONGEST];
  step_micro micro[MOST];
  step_result r;
  for (int i = 0; i < n; i++) {
    int64_t T = t % 2 ? LONGEST : LONGEST / 2;
    for (int k = 0; k < ROWS * T; k++) {
      ids[i][k] = (int32_t)((k * 5 + i * 3 + t * 7) % VOCAB);
      labels[i][k] = (int32_t)((ids[i][k] + 5 + t) % VOCAB);
    }
    micro[i] = (step_micro){.B = ROWS, .T = T, .ids = ids[i], .labels = labels[i], .weight = 1e-2};
  }
  CHECK_OK(stepper_run(s, micro, n, &(step_update){.lr = 1e-2 / (double)t, .t = t}, NULL, &r));
  return r;
}

static void add_hash(const hp_device *d, const char *name, hp_shape shape, uint64_t *h) {
  size_t bytes = sizeof(float);
  for (int i = 0; i < shape.rank; i++) bytes *= (size_t)shape.dim[i];
  unsigned char *data = mem_calloc(bytes, 1);
  CHECK_OK(hp_read(d, name, data, bytes));
  for (size_t k = 0; k < bytes; k++) *h = (*h ^ data[k]) * 1099511628211u;
  mem_free(data);
}

static uint64_t hash_params(const lm *m, const hp_device *d) {
  uint64_t h = 14695981039346656037u;
  for (size_t i = 0; i < m->trained; i++)
    add_hash(d, m->params.at[i].name, m->params.at[i].shape, &h);
  return h;
}

static uint64_t hash_states(const lm *m, const hp_device *d, const optimizer_options *o) {
  uint64_t h = 14695981039346656037u;
  for (size_t i = 0; i < m->trained; i++) {
    const model_param *p = &m->params.at[i];
    param_state state[OPTIMIZER_STATES];
    int n = optimizers[o->kind].states(o, p, state);
    for (int k = 0; k < n; k++) {
      char name[STATE_NAME];
      param_state_name(state[k], p->name, name);
      add_hash(d, name, param_state_shape(state[k], p->shape), &h);
    }
  }
  return h;
}

typedef struct {
  step_result step[STEPS];
  uint64_t before, params, states; /* params before and after what is left is applied */
} outcome;

static void train(const step_options *o, step_update_when update, int micros, const char *mesh,
                  outcome *out) {
  step_options own = *o;
  model j;
  stepper *s;
  own.update = update;
  open_model(&(hp_device_options){.threads = 1, .interpret = true, .mesh = mesh}, LAYERS, &j);
  CHECK_OK(lm_init(j.m, 5));
  lm_share_rope(j.m, LONGEST);
  CHECK_OK(stepper_create(j.m, &own, &s));
  for (int i = 0; i < STEPS; i++) {
    out->step[i] = run_step(s, micros, i + 1);
    if (i == 1) CHECK_OK(stepper_settle(s)); /* as before a checkpoint */
  }
  out->before = hash_params(j.m, j.d);
  CHECK_OK(stepper_settle(s));
  CHECK_OK(stepper_settle(s)); /* nothing is left */
  out->params = hash_params(j.m, j.d);
  out->states = hash_states(j.m, j.d, &o->optimizer);
  stepper_free(s);
  close_model(&j);
}

static void check_same_bits(const step_options *o, int micros, const char *mesh) {
  outcome end, next;
  train(o, UPDATE_AT_END, micros, mesh, &end);
  train(o, UPDATE_NEXT_STEP, micros, mesh, &next);
  for (int i = 0; i < STEPS; i++) {
    CHECK(end.step[i].loss == next.step[i].loss);
    CHECK(end.step[i].grad_norm == next.step[i].grad_norm);
  }
  CHECK_EQ(end.before, end.params);
  CHECK(next.before != next.params);
  CHECK_EQ(next.params, end.params);
  CHECK_EQ(next.states, end.states);
}

TEST(an_update_left_to_the_next_step_changes_no_bit) {
  check_same_bits(&adamw, 1, NULL);
  check_same_bits(&adamw, 3, NULL);
  check_same_bits(&sgd, 2, NULL);
  for (optimizer_kind k = OPTIMIZER_SGD + 1; k < OPTIMIZERS; k++) {
    step_options other = adamw;
    other.optimizer.kind = k;
    check_same_bits(&other, 2, NULL);
  }
}

TEST(an_update_left_to_the_next_step_changes_no_bit_on_a_mesh) {
  check_same_bits(&adamw, 1, "(2)(dp)");
  check_same_bits(&adamw, 2, "(2)(dp)");
  for (optimizer_kind k = OPTIMIZER_SGD + 1; k < OPTIMIZERS; k++) {
    step_options other = adamw;
    other.optimizer.kind = k;
    check_same_bits(&other, 2, "(2)(dp)");
  }
}

static const char slow[] =
    "device: {flops: 1e9, bandwidth_gb_s: 10}\n"
    "links: [{bandwidth_gb_s: 1, latency_us: 0}]\n"
    "tiers: [{name: host, read_gb_s: 0.02, write_gb_s: 0.02, latency_us: 1}]\n";

/* 30 % of the memory, behind a slow link: what is left to the next step is faster, so it is chosen;
 * not where memory is enough, nor where the options decide. */
TEST(the_update_is_left_to_the_next_step_where_that_is_faster) {
  micro_shape shape = {ROWS, LONGEST};
  char path[512];
  model j;
  snprintf(path, sizeof path, "%s/slow.yaml", test_dir());
  CHECK_OK(file_write(path, slow, sizeof slow - 1));
  hp_device_options o = {.threads = 1, .plan_only = true, .cluster = path};
  for (int k = 0; k < HP_MEMORY_CLASSES; k++) o.offload[k] = HP_OFFLOAD_AUTO;
  open_model(&o, LAYERS, &j);
  for (step_update_when update = UPDATE_AUTO; update <= UPDATE_NEXT_STEP; update++) {
    step_ways w;
    step_choice c;
    step_plan free_plan, end, best;
    step_options own = adamw;
    own.update = update;
    step_ways_init(&w, &(step_pieces){.m = j.m, .d = j.d, .o = own, .plan = true});
    hp_device_set_memory_limit(j.d, 0);
    CHECK_OK(step_choose(&w, &shape, 1, &c, &free_plan));
    CHECK_EQ(c.leaves, update == UPDATE_NEXT_STEP);
    hp_device_set_memory_limit(j.d, free_plan.stats.memory.planned_bytes * 30 / 100);
    CHECK_OK(step_choose(&w, &shape, 1, &c, &best));
    CHECK(!best.refused);
    CHECK_EQ(c.leaves, update != UPDATE_AT_END);
    CHECK_OK(step_plan_make(&w, &shape, 1, &(step_choice){.way = c.way}, &end, NULL, NULL));
    CHECK(update != UPDATE_AUTO || best.stats.predicted_s < 0.99 * end.stats.predicted_s);
    step_ways_free(&w);
  }
  close_model(&j);
}

/* The best of all four ways, but for a per cent that is not worth a change, whatever the limit.  Of
 * a small problem, since each way is planned: at 85 % nothing is recomputed, at 40 % one of two
 * layers. */
TEST(no_way_of_a_step_is_faster_than_the_one_chosen) {
  micro_shape shape = {ROWS, LONGEST};
  char path[512];
  model j;
  snprintf(path, sizeof path, "%s/slow.yaml", test_dir());
  CHECK_OK(file_write(path, slow, sizeof slow - 1));
  hp_device_options o = {.threads = 1, .plan_only = true, .cluster = path};
  for (int k = 0; k < HP_MEMORY_CLASSES; k++) o.offload[k] = HP_OFFLOAD_AUTO;
  open_model(&o, 2, &j);
  step_ways w;
  step_choice c;
  step_plan all, best, other;
  step_options own = sgd;
  own.update = UPDATE_AUTO;
  own.remat_auto = true;
  step_ways_init(&w, &(step_pieces){.m = j.m, .d = j.d, .o = own, .plan = true});
  hp_device_set_memory_limit(j.d, 0);
  CHECK_OK(step_choose(&w, &shape, 1, &c, &all));
  for (int share = 85; share >= 40; share -= 45) {
    hp_device_set_memory_limit(j.d, all.stats.memory.planned_bytes * (uint64_t)share / 100);
    CHECK_OK(step_choose(&w, &shape, 1, &c, &best));
    CHECK_EQ(c.way, share == 85 ? STEP_AS_ASKED : STEP_WITH_SOME);
    for (int k = 0; k < 4; k++) {
      step_choice way = {.way = k / 2 ? STEP_WITH_REMAT : STEP_AS_ASKED, .leaves = k % 2};
      CHECK_OK(step_plan_make(&w, &shape, 1, &way, &other, NULL, NULL));
      if (!other.refused) CHECK(best.stats.predicted_s < 1.011 * other.stats.predicted_s);
    }
  }
  step_ways_free(&w);
  close_model(&j);
}

/* Steps of one number of micro-batches but other lengths: what the short one keeps, the long one
 * has no room for. */
TEST(steps_of_other_lengths_have_choices_of_their_own) {
  micro_shape shape = {ROWS, LONGEST};
  step_options own = adamw;
  step_ways w;
  step_plan kept, again;
  stepper *s;
  model j;
  own.remat_auto = own.limited = true;
  open_model(&(hp_device_options){.threads = 1, .plan_only = true}, 2, &j);
  step_ways_init(&w, &(step_pieces){.m = j.m, .d = j.d, .o = own, .plan = true});
  CHECK_OK(step_plan_make(&w, &shape, 1, &(step_choice){.way = STEP_AS_ASKED}, &kept, NULL, NULL));
  CHECK_OK(
      step_plan_make(&w, &shape, 1, &(step_choice){.way = STEP_WITH_REMAT}, &again, NULL, NULL));
  step_ways_free(&w);
  close_model(&j);
  uint64_t limit = again.stats.memory.planned_bytes;
  CHECK(limit < kept.stats.memory.planned_bytes);
  open_model(&(hp_device_options){.threads = 1, .interpret = true, .memory_limit = limit}, 2, &j);
  CHECK_OK(lm_init(j.m, 5));
  lm_share_rope(j.m, LONGEST);
  CHECK_OK(stepper_create(j.m, &own, &s));
  for (int64_t t = 2; t < 6; t++) run_step(s, 1, t); /* the short one first */
  stepper_free(s);
  close_model(&j);
}
