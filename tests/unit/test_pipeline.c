/* Devices that are pipelines: one graph on several meshes has the bits of one device. */
#include "base/str.h"
#include "hyperparallel.h"
#include "test.h"

#include <string.h>

enum { ROWS = 6, DIM = 10, STAGES = 4 };

/* A chain of products, a stage each, that is trained: x w0 w1 w2 w3, and the first weight once more
 * at its end, as a tied embedding is. */
static hp_graph *build(bool adds) {
  hp_graph *g;
  hp_tensor w[STAGES], grad[STAGES], x, loss;
  CHECK_OK(hp_graph_create(&g));
  x = hp_input(g, "x", HP_F32, (hp_shape){2, {ROWS, DIM}});
  for (int s = 0; s < STAGES; s++) {
    char name[16];
    snprintf(name, sizeof name, "w%d", s);
    hp_stage(g, s);
    w[s] = hp_param(g, name, HP_F32, (hp_shape){2, {DIM, DIM}});
    x = hp_map(g, "tanh", hp_einsum(g, "ab,bc->ac", x, w[s]), HP_NONE, HP_NONE);
  }
  x = hp_einsum(g, "ab,cb->ac", x, w[0]);
  loss = hp_sum(g, hp_mul(g, x, x), (int64_t[]){0, 1}, 2, false);
  hp_output(g, "loss", loss);
  CHECK_OK(hp_grad(g, loss, w, STAGES, grad));
  for (int s = 0; s < STAGES; s++) {
    char name[16];
    snprintf(name, sizeof name, "g%d", s);
    hp_stage(g, s);
    hp_tensor held = hp_param(g, name, HP_F32, (hp_shape){2, {DIM, DIM}});
    hp_assign(g, held, adds ? hp_add(g, held, grad[s]) : grad[s]);
  }
  CHECK_OK(hp_graph_status(g));
  return g;
}

/* The norm of all gradients on stage 0, and a step against them. */
static hp_graph *build_update(void) {
  hp_graph *g;
  hp_tensor held[STAGES], w[STAGES], all = HP_NONE;
  CHECK_OK(hp_graph_create(&g));
  hp_update_phase(g);
  for (int s = 0; s < STAGES; s++) {
    char name[16];
    snprintf(name, sizeof name, "w%d", s);
    hp_stage(g, s);
    w[s] = hp_param(g, name, HP_F32, (hp_shape){2, {DIM, DIM}});
    name[0] = 'g';
    held[s] = hp_param(g, name, HP_F32, (hp_shape){2, {DIM, DIM}});
    hp_tensor sq = hp_sum_sq(g, held[s]);
    hp_stage(g, 0);
    all = all ? hp_add(g, all, sq) : sq;
  }
  hp_output(g, "norm", all);
  hp_tensor factor = hp_div(g, hp_const(g, HP_F32, 0.01), all);
  for (int s = 0; s < STAGES; s++) {
    hp_stage(g, s);
    hp_assign(g, w[s], hp_sub(g, w[s], hp_mul(g, factor, held[s])));
  }
  CHECK_OK(hp_graph_status(g));
  return g;
}

static float number(int i, int k) { return (float)((i * 37 + k * 11) % 23 - 11) / 16; }

static void write_weights(hp_device *d) {
  for (int s = 0; s < STAGES; s++) {
    char name[16];
    float w[DIM * DIM];
    snprintf(name, sizeof name, "w%d", s);
    for (int i = 0; i < DIM * DIM; i++) w[i] = number(i, s + 3);
    CHECK_OK(hp_write(d, name, w, sizeof w));
  }
}

typedef struct {
  float loss[8], norm, w[STAGES][DIM * DIM];
} numbers;

enum { PIECES = 5 };
static const char *const action[PIECES] = {"FBW", "FBW_add", "RBW", "RBW_add", "U"};

/* A line for all stages; or, if stages compile for themselves, with the other piece on each second
 * of them. */
static void add_rows(str *rows, bool by_stage, int micro) {
  int adds = micro > 0;
  if (!by_stage) str_printf(rows, "* %s %d\n", action[adds], micro);
  for (int s = 0; by_stage && s < STAGES; s++)
    str_printf(rows, "%d %s %d\n", s, action[2 * (s % 2) + adds], micro);
}

static void run_steps_by(hp_device *d, const hp_compile_options *o, bool by_stage, int micros,
                         numbers *out) {
  hp_graph *first = build(false), *next = build(true), *update = build_update();
  hp_piece *piece[PIECES];
  hp_program *p;
  str rows = {0};
  hp_compile_options again = o ? *o : (hp_compile_options){.remat = false};
  again.remat = true;
  CHECK_OK(hp_piece_compile(first, d, o, &piece[0]));
  CHECK_OK(hp_piece_compile(next, d, o, &piece[1]));
  CHECK_OK(hp_piece_compile(first, d, &again, &piece[2]));
  CHECK_OK(hp_piece_compile(next, d, &again, &piece[3]));
  CHECK_OK(hp_piece_compile(update, d, o, &piece[4]));
  for (int i = 0; i < micros; i++) add_rows(&rows, by_stage, i);
  str_printf(&rows, "* U %d\n", micros - 1);
  CHECK_OK(hp_link(piece, action, PIECES, rows.at, &p));
  write_weights(d);
  float x[8][ROWS * DIM];
  char names[17][16];
  hp_io io[17];
  int n = 0;
  const char *at = micros > 1 ? "%s@%d" : "%s";
  for (int i = 0; i < micros; i++) {
    for (int k = 0; k < ROWS * DIM; k++) x[i][k] = number(k, i);
    snprintf(names[n], 16, at, "x", i);
    io[n] = (hp_io){names[n], x[i], sizeof x[i]};
    n++;
    snprintf(names[n], 16, at, "loss", i);
    io[n] = (hp_io){names[n], &out->loss[i], sizeof(float)};
    n++;
  }
  snprintf(names[n], 16, at, "norm", micros - 1);
  io[n] = (hp_io){names[n], &out->norm, sizeof(float)};
  n++;
  for (int step = 0; step < 3; step++) CHECK_OK(hp_run(p, io, n));
  for (int s = 0; s < STAGES; s++) {
    char w[16];
    snprintf(w, sizeof w, "w%d", s);
    CHECK_OK(hp_read(d, w, out->w[s], sizeof out->w[s]));
  }
  hp_program_free(p);
  for (int i = 0; i < PIECES; i++) hp_piece_free(piece[i]);
  hp_graph_free(first);
  hp_graph_free(next);
  hp_graph_free(update);
  str_free(&rows);
}

static void run_steps_with(hp_device *d, const hp_compile_options *o, int micros, numbers *out) {
  run_steps_by(d, o, false, micros, out);
}

static void run_steps(hp_device *d, int micros, numbers *out) {
  run_steps_with(d, NULL, micros, out);
}

static void open_device(const char *on, const char *schedule, int stages, hp_device **d) {
  hp_device_options o = {.threads = 1,
                         .interpret = true,
                         .mesh = on,
                         .pipeline = schedule,
                         .stages = stages,
                         .no_partial_sums = true,
                         .may_miss = true};
  CHECK_OK(hp_device_open(&o, d));
}

static void check_same(const char *on, const char *schedule, int stages, int micros) {
  numbers one = {.norm = 0}, many = {.norm = 0};
  hp_device *d;
  open_device(NULL, NULL, 0, &d);
  run_steps(d, micros, &one);
  hp_device_close(d);
  open_device(on, schedule, stages, &d);
  run_steps(d, micros, &many);
  hp_device_close(d);
  CHECK(one.norm > 0 && one.loss[0] > 0);
  CHECK(!memcmp(&one, &many, sizeof one));
}

static const char *const lone[] = {"(1)(x);(1)(x)", "(1)(x);(1)(x);(1)(x);(1)(x)"};

TEST(any_schedule_gives_the_bits_of_one_device) {
  for (int micros = 1; micros <= 6; micros += 5) {
    check_same(lone[1], "gpipe", 0, micros);
    check_same(lone[1], "1f1b", 0, micros);
    check_same(lone[1], "zb-h1", 0, micros);
    check_same(lone[1], "zb-2p", 0, micros);
    check_same(lone[0], "interleaved", 0, micros);
    check_same(lone[0], "zbv", 0, micros);
    check_same(lone[0], "v-min", 0, micros);
  }
  check_same(lone[0], "dualpipe-v", 0, 4);
}

/* Layouts by name that shard what they can; values cross from two devices to three, then to one. */
static void run_unequal(const char *on, const char *entries, numbers *out) {
  hp_device *d;
  open_device(on, NULL, 0, &d);
  if (on) {
    CHECK_OK(hp_device_layout(d, "x", entries, true));
    CHECK_OK(hp_device_layout(d, "w*", "(None,a)", true));
    CHECK_OK(hp_device_layout(d, "g*", "(None,a)", true));
  }
  run_steps(d, 3, out);
  hp_device_close(d);
}

TEST(meshes_of_unequal_size_exchange_their_shards) {
  numbers one = {.norm = 0}, many;
  run_unequal(NULL, NULL, &one);
  static const char *const meshes[] = {"(2)(a);(3)(a);(1)(a);(2)(a)", "(2)(a);(5)(a);(1)(a);(2)(a)",
                                       "(2)(a)@5,0;(1)(a)@3;(1)(a)@1;(2)(a)@2,4"};
  for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
    many = (numbers){.norm = 0};
    run_unequal(meshes[i], "(a,None)", &many);
    CHECK(!memcmp(&one, &many, sizeof one));
    many = (numbers){.norm = 0};
    run_unequal(meshes[i], "(None,None)", &many); /* columns of products: boxes that are packed */
    CHECK(!memcmp(&one, &many, sizeof one));
  }
}

/* Values in chunks: no region of a mesh joins a forward with a backward that waits for another. */
TEST(chunks_of_a_stage_do_not_wait_for_another) {
  const hp_compile_options small = {.chunk_bytes = 64};
  numbers one = {.norm = 0}, many = {.norm = 0};
  hp_device *d;
  open_device(NULL, NULL, 0, &d);
  run_steps_with(d, &small, 4, &one);
  hp_device_close(d);
  open_device(lone[1], NULL, 0, &d);
  run_steps_with(d, &small, 4, &many);
  hp_device_close(d);
  CHECK(!memcmp(&one, &many, sizeof one));
}

TEST(rows_of_text_are_a_schedule_too) {
  check_same(lone[0],
             "placement 0 1 0 1\n0 F 0\n0 F 1\n2 F 0\n2 B 0\n0 B 0\n2 F 1\n2 B 1\n0 B 1\n"
             "1 F 0\n1 F 1\n3 F 0\n3 B 0\n1 B 0\n3 F 1\n3 B 1\n1 B 1\n",
             0, 2);
}

TEST(stages_run_pieces_of_their_own) {
  for (int micros = 1; micros <= 5; micros += 2) {
    numbers one = {.norm = 0}, many = {.norm = 0};
    hp_device *d;
    open_device(NULL, NULL, 0, &d);
    run_steps(d, micros, &one);
    hp_device_close(d);
    open_device(lone[1], "1f1b", 0, &d);
    run_steps_by(d, NULL, true, micros, &many);
    hp_device_close(d);
    CHECK(one.norm > 0 && !memcmp(&one, &many, sizeof one));
  }
}

static void refuse_link(const char *on, const char *schedule, const char *rows, const char *why) {
  hp_graph *g = build(false), *more = build(true);
  hp_device *d;
  hp_piece *piece[2];
  hp_program *p;
  open_device(on, schedule, 0, &d);
  CHECK_OK(hp_piece_compile(g, d, NULL, &piece[0]));
  CHECK_OK(hp_piece_compile(more, d, NULL, &piece[1]));
  CHECK_FAILS(hp_link(piece, action, 2, rows, &p), why);
  hp_piece_free(piece[0]);
  hp_piece_free(piece[1]);
  hp_device_close(d);
  hp_graph_free(g);
  hp_graph_free(more);
}

TEST(gradients_are_added_in_the_order_of_micro_batches) {
  const char *rows = "placement 0 1 0 1\n0 F 0\n0 F 1\n2 F 0\n2 F 1\n2 B 1\n0 B 1\n2 B 0\n0 B 0\n"
                     "1 F 0\n1 F 1\n3 F 0\n3 F 1\n3 B 1\n1 B 1\n3 B 0\n1 B 0\n";
  refuse_link(lone[0], rows, "* FBW 0\n* FBW_add 1\n",
              "comes after stage 2 B 1 (line 6); gradients are added in the order");
}

TEST(what_a_pipeline_cannot_run_is_refused) {
  refuse_link(lone[1], NULL, "0 FBW 0\n",
              "rows:1: micro-batch 0 has 0 rows of stage 1; expected 1");
  refuse_link(lone[1], NULL, "0 FBW 0\n0 FBW_add 0\n2 FBW 0\n3 FBW 0\n",
              "rows:4: micro-batch 0 has 2 rows of stage 0; expected 1");
  refuse_link(lone[1], NULL, "0 FBW 0\n1 FBW 0\n2 FBW 0\n9 FBW 0\n", "0 rows of stage 3");
  refuse_link(lone[0], "zbv", "0 FBW 0\n1 FBW 0\n2 FBW 0\n3 FBW_add 0\n",
              "another stage of its device another piece");
  refuse_link(lone[1], NULL, "* FBW 1\n", "micro-batch 1; expected 0");
  refuse_link(lone[1], NULL, "* FBW:F 0\n* FBW:BW 0\n", "a row is of all actions");
  refuse_link(lone[0], "dualpipe-v", "* FBW 0\n* FBW_add 1\n", "needs at least 4 micro-batches");
  hp_device *d;
  hp_device_options o = {.threads = 1, .mesh = "(2)(a);(1)(a)"};
  o.pipeline = "zbw";
  CHECK_FAILS(hp_device_open(&o, &d), "did you mean zbv?");
  o.pipeline = "zbv";
  o.stages = 3;
  CHECK_FAILS(hp_device_open(&o, &d), "expected 4 stages on 2 devices, not 3");
  o.stages = -1;
  CHECK_FAILS(hp_device_open(&o, &d), "stages is -1");
  o = (hp_device_options){.threads = 1, .mesh = "(2)(a)@0,1;(1)(a)@1"};
  CHECK_FAILS(hp_device_open(&o, &d), "rank 1 is on 2 of the pipeline's meshes");
  o.mesh = "(2)(a)@0,1;(1)(a)@5";
  CHECK_FAILS(hp_device_open(&o, &d), "the mesh has rank 5, and the job ranks 0 to 2");
  o.mesh = "(2)(a);";
  CHECK(hp_device_open(&o, &d));
}

/* A step of two micro-batches and its update, with such rows. */
static void refuse_next(hp_device *d, const char *rows, const char *why) {
  hp_graph *g[] = {build(false), build(true), build_update()};
  static const char *const name[] = {"FBW", "FBW_add", "U"};
  hp_piece *piece[3];
  hp_program *p;
  for (int i = 0; i < 3; i++) CHECK_OK(hp_piece_compile(g[i], d, NULL, &piece[i]));
  CHECK_FAILS(hp_link(piece, name, 3, rows, &p), why);
  for (int i = 0; i < 3; i++) hp_piece_free(piece[i]);
  for (int i = 0; i < 3; i++) hp_graph_free(g[i]);
}

TEST(rows_behind_the_update_are_those_of_the_next_step) {
#define STEP "* FBW 0\n* FBW_add 1\n* U 1\n"
  hp_device *d;
  open_device(lone[1], "zb-2p", 0, &d);
  refuse_next(d, STEP "* FBW 3\n", "rows:4: micro-batch 3 behind the update; expected 2: the 2");
  refuse_next(d, STEP "* FBW 2\n* FBW_add 4\n", "rows:5: micro-batch 4 behind the update");
  refuse_next(d, STEP "* FBW 2\n* FBW_add 2\n", "rows:5: micro-batch 2 behind the update");
  refuse_next(d, STEP "* FBW 2\n* FBW_add 3\n* FBW_add 4\n",
              "rows:6: micro-batch 4 behind the update");
  refuse_next(d, STEP "* FBW_add 2\n",
              "rows:4: \"FBW_add\" for micro-batch 2 of the next step; expected \"FBW\"");
  refuse_next(d, STEP "* U 2\n", "rows:4: \"U\" for micro-batch 2 of the next step");
  refuse_next(d, STEP "* FBW 2\n", "rows: 1 of the next step's 2 micro-batches; expected all");
  refuse_next(d, "* U 0\n* FBW 0\n", "rows:2: ");
  hp_device_set_memory_limit(d, 1 << 20);
  refuse_next(d, STEP "* FBW 2\n* FBW_add 3\n", "the device has a memory limit");
  hp_device_set_memory_limit(d, 0);
  CHECK_OK(hp_device_home(d, "w*", HP_OFFLOAD_HOST));
  refuse_next(d, STEP "* FBW 2\n* FBW_add 3\n", "tensors leave the device (offload)");
  hp_device_close(d);
#undef STEP
}

/* Meshes without a common axis: each has layouts of its own. */
static void run_unlike(const char *on, const char *const *entries, numbers *out) {
  hp_device *d;
  open_device(on, NULL, 0, &d);
  for (int i = 0; on && i < hp_device_stages(d); i++) {
    CHECK_OK(hp_device_stage_layout(d, i, "x", entries[i], true));
    CHECK_OK(hp_device_stage_layout(d, i, "[wg]*", entries[i], true));
  }
  run_steps(d, 3, out);
  hp_device_close(d);
}

TEST(each_mesh_may_have_layouts_of_its_own) {
  static const char *const entries[] = {"(a,None)", "(None,b)", "(c,None)", "(None,d)"};
  numbers one = {.norm = 0}, many = {.norm = 0};
  hp_device *d;
  run_unlike(NULL, NULL, &one);
  run_unlike("(2)(a);(3)(b);(1)(c);(2)(d)", entries, &many);
  CHECK(!memcmp(&one, &many, sizeof one));
  open_device("(2)(a);(3)(b);(1)(c);(2)(d)", NULL, 0, &d);
  CHECK_FAILS(hp_device_layout(d, "x", "(a,None)", false), "a");
  CHECK_FAILS(hp_device_stage_layout(d, 1, "x", "(a,None)", false), "a");
  CHECK_FAILS(hp_device_stage_layout(d, 4, "x", "(a,None)", false), "stage is 4");
  CHECK_FAILS(hp_device_stage_layout(d, -1, "x", "(a,None)", false), "stage is -1");
  hp_device_close(d);
}

TEST(params_are_on_the_mesh_of_their_stage) {
  hp_device *d;
  hp_shape s, shape = {1, {4}};
  hp_dtype t;
  const char *name;
  float x[4] = {1, 2, 3, 4}, y[4];
  open_device(lone[1], NULL, 0, &d);
  CHECK_EQ(hp_device_stages(d), 4);
  CHECK_FAILS(hp_param_create(d, "a", HP_F32, shape), "param \"a\" has no stage of the pipeline");
  CHECK_FAILS(hp_device_stage(d, "a", 4), "the pipeline has stages 0 to 3");
  CHECK_OK(hp_device_stage(d, "a", 2));
  CHECK_OK(hp_device_stage(d, "table", -1));
  CHECK_OK(hp_param_create(d, "a", HP_F32, shape));
  CHECK_OK(hp_param_create(d, "table", HP_F32, shape));
  CHECK_EQ(hp_param_count(d), 2);
  CHECK_OK(hp_param_info(d, 0, &name, &t, &s));
  CHECK_STR(name, "table");
  CHECK_OK(hp_param_info(d, 1, &name, &t, &s));
  CHECK_STR(name, "a");
  CHECK_FAILS(hp_param_info(d, 2, &name, &t, &s), "the device has 2 params");
  CHECK_OK(hp_write(d, "a", x, sizeof x));
  CHECK_OK(hp_param_rename(d, "a", "b"));
  CHECK_OK(hp_read(d, "b", y, sizeof y));
  CHECK(!memcmp(x, y, sizeof x));
  CHECK_FAILS(hp_read(d, "a", y, sizeof y), "the device has no param \"a\"");
  CHECK_OK(hp_param_free(d, "table"));
  CHECK_EQ(hp_param_count(d), 1);
  hp_device_close(d);
}

/* A graph says another stage than the param was declared on. */
TEST(a_param_of_another_stage_is_refused) {
  hp_graph *g = build(false);
  hp_device *d;
  hp_program *p;
  open_device(lone[1], NULL, 0, &d);
  CHECK_OK(hp_device_stage(d, "w1", 3));
  CHECK_FAILS(hp_compile(g, d, NULL, &p), "param \"w1\" is on stage 3 (hp_device_stage)");
  hp_device_close(d);
  hp_graph_free(g);
}

TEST(only_the_compiler_makes_transfers) {
  hp_graph *g;
  hp_device *d;
  hp_program *p;
  open_device(NULL, NULL, 0, &d);
  CHECK_OK(hp_graph_parse("%1:f32[4] = input {name=\"x\", dtype=f32, shape=[4]}\n"
                          "send %1 {name=\"y\", id=0, peer=1}\n",
                          "t.hp", &g));
  CHECK_FAILS(hp_compile(g, d, NULL, &p), "only the compiler makes these, from stages");
  hp_graph_free(g);
  hp_device_close(d);
}

/* The forward of stage 0 reads what stage 1 makes. */
TEST(stages_that_fall_are_refused) {
  hp_graph *g;
  hp_device *d;
  hp_program *p;
  CHECK_OK(hp_graph_create(&g));
  hp_tensor x = hp_input(g, "x", HP_F32, (hp_shape){1, {DIM}});
  for (int s = 0; s < 3; s++) {
    char name[8];
    snprintf(name, sizeof name, "w%d", s);
    hp_stage(g, s % 2);
    hp_at(g, name);
    x = hp_mul(g, x, hp_param(g, name, HP_F32, (hp_shape){1, {DIM}}));
  }
  hp_output(g, "y", x);
  open_device(lone[0], NULL, 0, &d);
  CHECK_FAILS(hp_compile(g, d, NULL, &p),
              "mul at w2 of stage 0 reads what stage 1 makes; in the forward a stage reads values "
              "of lower stages");
  hp_device_close(d);
  hp_graph_free(g);
}

TEST(a_graph_of_one_stage_runs_on_a_pipeline) {
  for (int stage = 0; stage < 2; stage++) {
    hp_graph *g;
    hp_device *d;
    hp_program *p;
    float x[DIM], y[DIM] = {0};
    for (int i = 0; i < DIM; i++) x[i] = number(i, 1);
    CHECK_OK(hp_graph_create(&g));
    hp_stage(g, stage);
    hp_tensor in = hp_input(g, "x", HP_F32, (hp_shape){1, {DIM}});
    hp_output(g, "y", hp_add(g, in, in));
    open_device(lone[0], NULL, 0, &d);
    CHECK_OK(hp_compile(g, d, NULL, &p));
    CHECK_OK(hp_run(p, (hp_io[]){{"x", x, sizeof x}, {"y", y, sizeof y}}, 2));
    for (int i = 0; i < DIM; i++) CHECK(y[i] == 2 * x[i]);
    hp_program_free(p);
    hp_device_close(d);
    hp_graph_free(g);
  }
}

/* Ranks make long texts, of options and of saved files. */
TEST(meshes_have_any_number_of_ranks) {
  hp_device *d;
  str mesh_text = {0};
  str_add(&mesh_text, "(32,16)(dp,tp)@");
  for (int i = 0; i < 512; i++) str_printf(&mesh_text, i ? ",%d" : "%d", 512 - i);
  str_add(&mesh_text, ";(1)(dp)@0");
  hp_device_options o = {.plan_only = true, .mesh = mesh_text.at, .may_miss = true};
  CHECK_OK(hp_device_open(&o, &d));
  CHECK_EQ(hp_device_stages(d), 2);
  hp_device_close(d);
  str_free(&mesh_text);
}
