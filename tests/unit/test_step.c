/* Steps of micro-batches of unlike shapes, and what is kept of them. */
#include "base/io.h"
#include "model/lm_eval.h"
#include "test.h"
#include "train/step.h"
#include "train/step_pieces.h"

enum { ROWS = 2, LONGEST = 48, MICROS = 3, VOCAB = 64, IGNORE = -100, STEPS = 12 };

static const char config[] = "{\"model_type\": \"llama\", \"hidden_size\": 32, "
                             "\"intermediate_size\": 48, \"num_attention_heads\": 4, "
                             "\"num_key_value_heads\": 2, \"num_hidden_layers\": 2, "
                             "\"vocab_size\": 64, \"max_position_embeddings\": 64}";

static const step_options adamw = {.optimizer = {OPTIMIZER_ADAMW, .beta1 = 0.9, .beta2 = 0.99,
                                                 .eps = 1e-8},
                                   .clip = 1};

typedef struct {
  hp_device *d;
  lm *m;
  stepper *s;
  int32_t ids[MICROS][ROWS * LONGEST], labels[MICROS][ROWS * LONGEST];
  step_micro micro[MICROS];
} job;

static void open_job(job *j) {
  char path[512];
  snprintf(path, sizeof path, "%s/config.json", test_dir());
  CHECK_OK(file_write(path, config, sizeof config - 1));
  CHECK_OK(hp_device_open(&(hp_device_options){.threads = 1, .interpret = true}, &j->d));
  lm_options o = {.compute = HP_F32, .weights = HP_F32};
  CHECK_OK(lm_create(path, j->d, &o, &j->m));
  CHECK_OK(lm_init(j->m, 5));
  lm_share_rope(j->m, LONGEST);
  CHECK_OK(stepper_create(j->m, &adamw, &j->s));
}

static void close_job(job *j) {
  stepper_free(j->s);
  lm_free(j->m);
  hp_device_close(j->d);
}

/* Micro-batch i has rows of T[i] tokens, in memory of `width` each; what is behind them is padding.
 */
static double run_step(job *j, const int *T, int width, int64_t t) {
  step_result r;
  for (int i = 0; i < MICROS; i++) {
    int W = width ? width : T[i];
    for (int k = 0; k < ROWS * W; k++) {
      int row = k / W, at = k % W;
      j->ids[i][k] = at < T[i] ? (row * 7 + at * 5 + i * 3) % VOCAB : 0;
      j->labels[i][k] = at < T[i] ? (j->ids[i][k] + 5) % VOCAB : IGNORE;
    }
    j->micro[i] =
        (step_micro){.B = ROWS, .T = W, .ids = j->ids[i], .labels = j->labels[i], .weight = 1e-2};
  }
  CHECK_OK(stepper_run(j->s, j->micro, MICROS, &(step_update){.lr = 1e-2, .t = t}, NULL, &r));
  return r.loss;
}

TEST(micro_batches_of_unlike_shapes_give_the_losses_of_padded_ones) {
  static const int T[][MICROS] = {{48, 16, 24}, {16, 48, 48}, {8, 24, 40}};
  job apart = {.d = NULL}, padded = {.d = NULL};
  open_job(&apart);
  open_job(&padded);
  for (int i = 0; i < 3; i++) {
    double own = run_step(&apart, T[i], 0, i + 1), all = run_step(&padded, T[i], LONGEST, i + 1);
    CHECK(own > 0.1);
    CHECK_NEAR(own, all, 1e-5 * all);
  }
  close_job(&apart);
  close_job(&padded);
}

/* More steps of other shapes than programs are kept: a shape that was there before is linked, not
 * compiled, and one that is still there is neither. */
TEST(a_shape_that_comes_again_compiles_nothing) {
  job j = {.d = NULL};
  open_job(&j);
  for (int i = 0; i < STEPS; i++) run_step(&j, (int[]){8, 8 + i, 8 + i}, 0, i + 1);
  double before = stepper_compile_seconds(j.s);
  run_step(&j, (int[]){8, 8 + STEPS - 1, 8 + STEPS - 1}, 0, STEPS + 1);
  CHECK(stepper_compile_seconds(j.s) == before);
  const hp_program *ran = stepper_program(j.s);
  run_step(&j, (int[]){8, 8, 8}, 0, STEPS + 2);
  CHECK(stepper_program(j.s) != ran);
  CHECK(stepper_compile_seconds(j.s) > before);
  close_job(&j);
}

static hp_tensor twice(model_build *b, hp_tensor hidden, hp_tensor labels) {
  return hp_scale(b->g, lm_token_losses(b, hidden, labels), 2);
}

TEST(an_evaluation_adds_up_the_losses_that_it_is_given) {
  enum { T = 8 };
  static lm_losses *const of[] = {lm_token_losses, twice};
  job j = {.d = NULL};
  float loss[2][ROWS * T];
  int32_t ids[ROWS * T], labels[ROWS * T];
  open_job(&j);
  for (int i = 0; i < ROWS * T; i++) {
    ids[i] = i * 5 % VOCAB;
    labels[i] = i % T == T - 1 ? IGNORE : (i + 1) * 5 % VOCAB;
  }
  for (int k = 0; k < 2; k++) {
    lm_scorer *s;
    CHECK_OK(lm_scorer_create(j.m, ROWS, T, of[k], ROWS * T, 0, &s));
    CHECK_OK(lm_scorer_run(s, &(lm_batch){.ids = ids, .labels = labels}, loss[k]));
    lm_scorer_free(s);
  }
  for (int i = 0; i < ROWS * T; i++) {
    CHECK((loss[0][i] > 0) == (labels[i] != IGNORE));
    CHECK(loss[1][i] == 2 * loss[0][i]);
  }
  close_job(&j);
}

/* A step of n micro-batches of 8 tokens a row is planned, and so linked where it is not kept. */
static bool is_linked_anew(job *j, step_micro *b, int n) {
  double before = stepper_compile_seconds(j->s);
  for (int i = 0; i < n; i++) b[i] = (step_micro){.B = 1, .T = 8};
  CHECK_OK(stepper_prepare(j->s, b, n));
  return stepper_compile_seconds(j->s) > before;
}

/* Their instructions are bounded: three steps of so many micro-batches have more than are kept. */
TEST(long_programs_that_are_kept_make_room_for_new_ones) {
  enum { LONG = 1200, STEPS_LONG = 3 };
  static step_micro b[LONG + STEPS_LONG];
  job j = {.d = NULL};
  open_job(&j);
  for (int i = 0; i < STEPS_LONG; i++) CHECK(is_linked_anew(&j, b, LONG + i));
  CHECK(!is_linked_anew(&j, b, LONG + STEPS_LONG - 1));
  CHECK(is_linked_anew(&j, b, LONG));
  close_job(&j);
}

TEST(the_last_8_programs_are_kept) {
  enum { KEPT = 8 };
  static step_micro b[KEPT + 1];
  job j = {.d = NULL};
  open_job(&j);
  for (int n = 1; n <= KEPT; n++) CHECK(is_linked_anew(&j, b, n));
  for (int n = 1; n <= KEPT; n++) CHECK(!is_linked_anew(&j, b, n));
  CHECK(is_linked_anew(&j, b, KEPT + 1));
  CHECK(!is_linked_anew(&j, b, 2));
  CHECK(is_linked_anew(&j, b, 1));
  close_job(&j);
}

/* Links a step of one micro-batch; was its piece compiled? */
static bool is_compiled(step_pieces *s, int64_t T) {
  double before = s->compile_s;
  step_link l;
  CHECK_OK(step_pieces_link(s, &(step_spec){.shape = &(micro_shape){1, T}, .n = 1}, &l));
  step_link_free(&l);
  return s->compile_s > before;
}

/* By the instructions of all: of a small model, as many as a run has shapes. */
TEST(small_pieces_are_all_kept) {
  enum { SHAPES = 150 };
  job j;
  open_job(&j);
  step_pieces s = {.m = j.m, .d = j.d, .o = adamw, .plan = true, .insts = 1 << 10};
  for (int T = 1; T <= SHAPES; T++) CHECK(is_compiled(&s, T));
  CHECK_EQ(s.kept.len, SHAPES);
  CHECK(!is_compiled(&s, 1));
  step_pieces_linked(&s, 2, &(hp_program_stats){.instructions = 1 << 15});
  CHECK(is_compiled(&s, SHAPES + 1));
  CHECK_EQ(s.kept.len, 16); /* of 16,384 instructions each */
  step_pieces_free(&s);
  close_job(&j);
}

TEST(the_pieces_that_were_used_last_are_kept) {
  enum { KEPT = 64, MORE = 2 };
  job j;
  open_job(&j);
  step_pieces s = {.m = j.m, .d = j.d, .o = adamw, .plan = true, .insts = 1 << 12};
  for (int T = 1; T <= KEPT; T++) CHECK(is_compiled(&s, T));
  CHECK(!is_compiled(&s, 1));
  for (int T = 1; T <= MORE; T++) CHECK(is_compiled(&s, KEPT + T));
  CHECK_EQ(s.kept.len, KEPT);
  CHECK(!is_compiled(&s, 1)); /* used later than the two that went */
  CHECK(!is_compiled(&s, MORE + 2));
  CHECK(is_compiled(&s, MORE));
  step_pieces_free(&s);
  close_job(&j);
}
