/* Towers side by side on meshes of their own, which one stage reads, forward and backward. */
#include "api/api_pipeline.h"
#include "base/io.h"
#include "base/str.h"
#include "hyperparallel.h"
#include "test.h"

#include <string.h>

enum { TOWERS = 2, STAGES = 3, ROWS = 6, DIM = 10, MICROS = 4 };

static const hp_shape square = {2, {DIM, DIM}};

typedef struct {
  int rows;    /* 0: ROWS */
  bool adds;   /* gradients to those of the micro-batches before */
  int ignored; /* a tower that the last stage does not read; -1: none */
  int falls;   /* a tower that reads the last stage; -1: none */
} shape;

/* Each tower multiplies its input by its weight; the last stage concatenates and multiplies. */
static hp_graph *build(shape o) {
  hp_graph *g;
  hp_tensor w[STAGES], grad[STAGES], x[TOWERS], y;
  char name[16];
  CHECK_OK(hp_graph_create(&g));
  for (int s = 0; s < STAGES; s++) {
    snprintf(name, sizeof name, "w%d", s);
    hp_stage(g, s);
    hp_at(g, s < TOWERS ? "tower" : "decoder");
    w[s] = hp_param(g, name, HP_F32, square);
  }
  for (int s = 0; s < TOWERS; s++) {
    snprintf(name, sizeof name, "x%d", s);
    hp_stage(g, s);
    hp_at(g, "tower");
    x[s] = hp_input(g, name, HP_F32, (hp_shape){2, {o.rows ? o.rows : ROWS, DIM}});
    x[s] = hp_map(g, "tanh", hp_einsum(g, "ab,bc->ac", x[s], w[s]), HP_NONE, HP_NONE);
  }
  hp_stage(g, TOWERS);
  hp_at(g, "decoder");
  y = hp_concat(g, (hp_tensor[]){o.ignored == 0 ? x[1] : x[0], o.ignored == 1 ? x[0] : x[1]}, 2, 0);
  y = hp_einsum(g, "ab,bc->ac", y, w[TOWERS]);
  if (o.falls >= 0) {
    hp_stage(g, o.falls);
    y = hp_mul(g, y, y);
  }
  hp_tensor loss = hp_sum(g, hp_mul(g, y, y), (int64_t[]){0, 1}, 2, false);
  hp_output(g, "loss", loss);
  CHECK_OK(hp_grad(g, loss, w, STAGES, grad));
  for (int s = 0; s < STAGES; s++) {
    snprintf(name, sizeof name, "g%d", s);
    hp_stage(g, s);
    hp_tensor held = hp_param(g, name, HP_F32, square);
    hp_assign(g, held, o.adds ? hp_add(g, held, grad[s]) : grad[s]);
  }
  CHECK_OK(hp_graph_status(g));
  return g;
}

static float number(int i, int k) { return (float)((i * 37 + k * 11) % 23 - 11) / 16; }

/* Computation takes long, and links little. */
static const char *write_cluster(void) {
  static const char text[] = "name: slow\n"
                             "device: {flops: 1e6, bandwidth_gb_s: 4}\n"
                             "links: [{name: link, bandwidth_gb_s: 1, latency_us: 1}]\n";
  static char name[300];
  snprintf(name, sizeof name, "%s/slow.yaml", test_dir());
  CHECK_OK(file_write(name, text, sizeof text - 1));
  return name;
}

static hp_status open_device(const char *on, const char *schedule, hp_device **d) {
  static const hp_layout_rule layouts[] = {{"x*", "(a,None)"}, {"w*", "(None,b)"}};
  hp_device_options o = {.threads = 1,
                         .interpret = true,
                         .mesh = on,
                         .pipeline = schedule,
                         .layouts = layouts,
                         .n_layouts = on ? 2 : 0,
                         .no_partial_sums = true,
                         .cluster = write_cluster(),
                         .may_miss = true};
  return hp_device_open(&o, d);
}

static hp_status link_step(hp_device *d, shape o, hp_piece **piece, hp_program **out) {
  static const char *const action[] = {"FBW", "FBW_add"};
  str rows = {0};
  for (int i = 0; i < 2; i++) piece[i] = NULL;
  *out = NULL;
  for (int i = 0; i < 2; i++) {
    o.adds = i;
    hp_graph *g = build(o);
    hp_status st = hp_piece_compile(g, d, NULL, &piece[i]);
    hp_graph_free(g);
    if (st) return st;
  }
  for (int i = 0; i < MICROS; i++) str_printf(&rows, "* %s %d\n", action[i > 0], i);
  hp_status st = hp_link(piece, action, 2, rows.at, out);
  str_free(&rows);
  return st;
}

static void free_step(hp_piece **piece, hp_program *p) {
  hp_program_free(p);
  hp_piece_free(piece[0]);
  hp_piece_free(piece[1]);
}

typedef struct {
  float loss[MICROS], g[STAGES][DIM * DIM];
} numbers;

static void run(const char *on, const char *schedule, numbers *out) {
  hp_device *d;
  hp_piece *piece[2];
  hp_program *p;
  float x[MICROS][TOWERS][ROWS * DIM], w[DIM * DIM];
  char name[MICROS][TOWERS + 1][16];
  hp_io io[MICROS * (TOWERS + 1)];
  int n = 0;
  memset(out, 0, sizeof *out);
  CHECK_OK(open_device(on, schedule, &d));
  CHECK_OK(link_step(d, (shape){.ignored = -1, .falls = -1}, piece, &p));
  for (int s = 0; s < STAGES; s++) {
    snprintf(name[0][0], 16, "w%d", s);
    for (int i = 0; i < DIM * DIM; i++) w[i] = number(i, s + 3);
    CHECK_OK(hp_write(d, name[0][0], w, sizeof w));
  }
  for (int i = 0; i < MICROS; i++) {
    for (int s = 0; s < TOWERS; s++) {
      snprintf(name[i][s], 16, "x%d@%d", s, i);
      for (int k = 0; k < ROWS * DIM; k++) x[i][s][k] = number(k, 2 * i + s);
      io[n++] = (hp_io){name[i][s], x[i][s], sizeof x[i][s]};
    }
    snprintf(name[i][TOWERS], 16, "loss@%d", i);
    io[n++] = (hp_io){name[i][TOWERS], &out->loss[i], sizeof(float)};
  }
  CHECK_OK(hp_run(p, io, n));
  for (int s = 0; s < STAGES; s++) {
    snprintf(name[0][0], 16, "g%d", s);
    CHECK_OK(hp_read(d, name[0][0], out->g[s], sizeof out->g[s]));
  }
  free_step(piece, p);
  hp_device_close(d);
}

TEST(towers_on_groups_of_unlike_size_have_the_bits_of_one_device) {
  static const char *const groups[] = {"(1,1)(a,b);(1,1)(a,b);(1,1)(a,b)",
                                       "(2,1)(a,b);(1,1)(a,b);(2,2)(a,b)",
                                       "(1,1)(a,b);(1,3)(a,b);(4,1)(a,b)"};
  static const char *const schedule[] = {"gpipe", "1f1b", "zb-h1", "zb-2p"};
  numbers one, many;
  run(NULL, NULL, &one);
  CHECK(one.loss[0] > 0 && one.g[0][0] != 0);
  for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
    for (size_t k = 0; k < sizeof schedule / sizeof *schedule; k++) {
      run(groups[i], schedule[k], &many);
      CHECK(!memcmp(&one, &many, sizeof one));
    }
}

/* Both towers on one mesh, the second one first: no chain could run these rows. */
static void add_rows(str *rows) {
  str_add(rows, "placement 0 0 1\n");
  for (int i = 0; i < MICROS; i++)
    str_printf(rows, "1 F %d\n0 F %d\n2 F %d\n2 B %d\n0 B %d\n1 B %d\n", i, i, i, i, i, i);
}

TEST(towers_of_a_mesh_run_in_any_order) {
  numbers one, many;
  str rows = {0};
  add_rows(&rows);
  run(NULL, NULL, &one);
  run("(2,1)(a,b);(1,3)(a,b)", rows.at, &many);
  CHECK(!memcmp(&one, &many, sizeof one));
  str_free(&rows);
}

/* Rows take the time of their own micro-batch: the second has ten times the first's rows. */
TEST(a_plan_has_the_costs_of_each_micro_batch) {
  static const char *const action[] = {"few", "many"};
  hp_device *d;
  hp_piece *piece[2];
  hp_program *p;
  double seconds[2][STAGES] = {{0}};
  CHECK_OK(open_device("(1,1)(a,b);(1,1)(a,b);(1,1)(a,b)", "1f1b", &d));
  for (int i = 0; i < 2; i++) {
    hp_graph *g = build((shape){.rows = i ? 10 * ROWS : ROWS, .ignored = -1, .falls = -1});
    CHECK_OK(hp_piece_compile(g, d, NULL, &piece[i]));
    hp_graph_free(g);
  }
  CHECK_OK(hp_link(piece, action, 2, "* few 0\n* many 1\n", &p));
  const pipeline_plan *plan = &p->pipeline->plan;
  for (size_t i = 0; i < pipe_rows_count(&plan->rows); i++) {
    const pipe_row *row = &plan->rows.row[i];
    if (row->actions & PIPE_F)
      seconds[row->microbatch][row->stage] = plan->times.end_s[i] - plan->times.start_s[i];
  }
  for (int s = 0; s < STAGES; s++) {
    CHECK(seconds[1][s] > 2 * seconds[0][s]);
    CHECK_NEAR(plan->forward_s[s], (seconds[0][s] + seconds[1][s]) / 2, 1e-12);
  }
  free_step(piece, p);
  hp_device_close(d);
}

enum { ORDERED = 6 };
static const int rows_of[ORDERED] = {6, 60, 6, 60, 60, 6};

/* Pieces of micro-batches with few rows and with many. */
typedef struct {
  hp_device *d;
  hp_piece *piece[2];
} unlike;

static const char *const unlike_action[] = {"few", "many"};

static void open_unlike(const char *on, const char *schedule, unlike *u) {
  CHECK_OK(open_device(on, schedule, &u->d));
  for (int i = 0; i < 2; i++) {
    hp_graph *g = build((shape){.rows = rows_of[i], .ignored = -1, .falls = -1});
    CHECK_OK(hp_piece_compile(g, u->d, NULL, &u->piece[i]));
    hp_graph_free(g);
  }
}

static void close_unlike(unlike *u) {
  free_step(u->piece, NULL);
  hp_device_close(u->d);
}

static hp_status order_of(const unlike *u, const char *rows, int *order) {
  return hp_link_order(u->piece, unlike_action, 2, rows, order);
}

static void unlike_rows(const int *order, str *out) {
  for (int k = 0; k < ORDERED; k++)
    str_printf(out, "* %s %d\n", unlike_action[rows_of[order[k]] > rows_of[0]], k);
}

/* The predicted step of micro-batches in an order, which is replaced by the better one. */
static double step_and_order(const unlike *u, int *order) {
  hp_program_stats s;
  str rows = {0};
  int found[ORDERED], before[ORDERED];
  memcpy(before, order, sizeof before);
  unlike_rows(order, &rows);
  CHECK_OK(hp_link_plan(u->piece, unlike_action, 2, rows.at, &s, NULL, NULL));
  CHECK_OK(order_of(u, rows.at, found));
  for (int k = 0; k < ORDERED; k++) order[k] = before[found[k]];
  str_free(&rows);
  return s.predicted_s;
}

TEST(micro_batches_of_unlike_cost_have_an_order_with_a_shorter_step) {
  unlike u;
  int order[ORDERED] = {0, 1, 2, 3, 4, 5}, again[ORDERED], seen = 0;
  open_unlike("(1,1)(a,b);(1,1)(a,b);(1,1)(a,b)", "1f1b", &u);
  double given = step_and_order(&u, order);
  memcpy(again, order, sizeof again);
  double ordered = step_and_order(&u, again);
  for (int k = 0; k < ORDERED; k++) seen |= 1 << order[k];
  CHECK_EQ(seen, (1 << ORDERED) - 1);
  if (ordered > 0.95 * given)
    test_fail(__FILE__, __LINE__, "%g s ordered, %g s as given", ordered, given);
  close_unlike(&u);
}

TEST(one_mesh_and_one_micro_batch_keep_their_order) {
  unlike u;
  int order[2] = {-1, -1};
  open_unlike(NULL, NULL, &u);
  CHECK_OK(order_of(&u, "* many 0\n* few 1\n", order));
  CHECK(order[0] == 0 && order[1] == 1);
  close_unlike(&u);
  open_unlike("(1,1)(a,b);(1,1)(a,b);(1,1)(a,b)", "1f1b", &u);
  order[0] = -1;
  CHECK_OK(order_of(&u, "* many 0\n", order));
  CHECK_EQ(order[0], 0);
  close_unlike(&u);
}

TEST(an_order_of_what_has_one_already_is_refused) {
  unlike u;
  int order[MICROS] = {7, 7, 7, 7};
  str rows = {0};
  add_rows(&rows);
  open_unlike("(1,1)(a,b);(1,1)(a,b);(1,1)(a,b)", "1f1b", &u);
  CHECK_FAILS(order_of(&u, "* few 1\n* many 0\n", order),
              "rows:1: micro-batch 1; expected 0: their order is asked for");
  CHECK_FAILS(order_of(&u, "* few 0\n* all 1\n", order), "all");
  close_unlike(&u);
  open_unlike("(1,1)(a,b);(1,1)(a,b)", rows.at, &u);
  CHECK_FAILS(order_of(&u, "* few 0\n* many 1\n* few 2\n* few 3\n", order),
              "the schedule of the pipeline is a list of rows");
  CHECK_EQ(order[0], 7);
  close_unlike(&u);
  str_free(&rows);
}

static void refuse_step(shape o, const char *why) {
  hp_device *d;
  hp_piece *piece[2];
  hp_program *p;
  CHECK_OK(open_device("(2,1)(a,b);(1,1)(a,b);(2,2)(a,b)", NULL, &d));
  CHECK_FAILS(link_step(d, o, piece, &p), why);
  free_step(piece, p);
  hp_device_close(d);
}

TEST(a_tower_that_nothing_reads_is_refused) {
  refuse_step((shape){.ignored = 0, .falls = -1},
              "nothing reads what its stage makes: einsum at tower of stage 0; expected");
  refuse_step((shape){.ignored = 1, .falls = -1}, "einsum at tower of stage 1; expected");
}

TEST(a_tower_that_reads_the_decoder_is_refused) {
  refuse_step((shape){.ignored = -1, .falls = 1},
              "mul at decoder of stage 1 reads what stage 2 makes; in the forward a stage reads");
}

static void refuse_groups(const char *on, const char *why) {
  hp_device *d;
  CHECK_FAILS(open_device(on, NULL, &d), why);
}

TEST(groups_that_are_no_division_of_the_devices_are_refused) {
  refuse_groups("(2,1)(a,b)@0,1;(2,1)(a,b)@1,2;(1,1)(a,b)@3",
                "rank 1 is on 2 of the pipeline's meshes; expected each of the 5 devices on one");
  refuse_groups("(2,1)(a,b)@0,1;(1,1)(a,b)@1;(1,1)(a,b)@2",
                "rank 1 is on 2 of the pipeline's meshes");
  refuse_groups("(2,1)(a,b)@0,0;(1,1)(a,b)@1;(1,1)(a,b)@2", "rank 0");
  refuse_groups("(2,1)(a,b)@0,1;(1,1)(a,b)@4;(1,1)(a,b)@2", "rank 4, and the job ranks 0 to 3");
  refuse_groups("(2,1)(a,b);(1,1)(a,c);(1,1)(a,b)", "\"b\"");
}

TEST(more_modules_than_groups_are_refused) {
  hp_device *d;
  hp_piece *piece[2];
  hp_program *p;
  CHECK_OK(open_device("(2,1)(a,b);(1,1)(a,b)", NULL, &d));
  CHECK_FAILS(link_step(d, (shape){.ignored = -1, .falls = -1}, piece, &p),
              "is of stage 2; the pipeline has stages 0 to 1");
  free_step(piece, p);
  hp_device_close(d);
}
