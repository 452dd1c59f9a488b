/* Steps of several micro-batches as one program (prog/link.h, hp_link): the bits of its pieces run
 * one after the other. */
#include "base/philox.h"
#include "base/str.h"
#include "sched/step_rows.h"
#include "test.h"

enum { IN = 12, MID = 16, OUT = 8, ROWS = 8, STEPS = 3 };
typedef enum { FIRST, NEXT, LAST, PIECES } piece_kind;
static const char *const action[PIECES] = {"F", "N", "L"};

static hp_tensor held(hp_graph *g, const char *name, hp_tensor like) {
  char full[16];
  snprintf(full, sizeof full, "g.%s", name);
  return hp_param(g, full, HP_F32, hp_shape_of(g, like));
}

/* One micro-batch of `rows` samples: its loss and gradients, summed with those before; the last one
 * updates the params, too. */
static hp_graph *micro(piece_kind kind, int64_t rows) {
  static const char *const name[] = {"w1", "w2"};
  hp_graph *g;
  hp_tensor grad[2];
  CHECK_OK(hp_graph_create(&g));
  hp_tensor x = hp_input(g, "x", HP_F32, (hp_shape){2, {rows, IN}});
  hp_tensor w[] = {hp_param(g, "w1", HP_F32, (hp_shape){2, {MID, IN}}),
                   hp_param(g, "w2", HP_F32, (hp_shape){2, {OUT, MID}})};
  hp_block(g, 1);
  hp_tensor y = hp_map(g, "tanh", hp_einsum(g, "bi,mi->bm", x, w[0]), HP_NONE, HP_NONE);
  hp_block(g, 0);
  y = hp_softmax(g, hp_einsum(g, "bm,om->bo", y, w[1]));
  hp_tensor loss = hp_sum(g, hp_mul(g, y, y), (int64_t[]){0, 1}, 2, false);
  hp_output(g, "loss", loss);
  CHECK_OK(hp_grad(g, loss, w, 2, grad));
  for (int i = 0; i < 2; i++) {
    hp_tensor sum = held(g, name[i], w[i]);
    if (kind != FIRST) grad[i] = hp_add(g, sum, grad[i]);
    hp_assign(g, sum, grad[i]);
  }
  if (kind == LAST) {
    hp_update_phase(g);
    hp_tensor lr = hp_input(g, "lr", HP_F32, (hp_shape){0});
    for (int i = 0; i < 2; i++) hp_assign(g, w[i], hp_sub(g, w[i], hp_mul(g, lr, grad[i])));
  }
  CHECK_OK(hp_graph_status(g));
  return g;
}

static void fill(float *x, size_t n, uint64_t stream) {
  for (size_t i = 0; i < n; i++) x[i] = (float)philox_u32(3, stream, i) * 0x1p-32f - 0.5f;
}

static hp_device *open_device(const char *mesh) {
  static const hp_layout_rule rule[] = {{"x", "(dp,None)"},
                                        {"w1", "(tp,None)"},
                                        {"g.w1", "(tp,None)"}};
  hp_device_options o = {.threads = 2, .interpret = true, .mesh = mesh, .layouts = rule};
  hp_device *d;
  if (mesh) o.n_layouts = 3;
  CHECK_OK(hp_device_open(&o, &d));
  float w[MID * IN];
  CHECK_OK(hp_param_create(d, "w1", HP_F32, (hp_shape){2, {MID, IN}}));
  CHECK_OK(hp_param_create(d, "w2", HP_F32, (hp_shape){2, {OUT, MID}}));
  fill(w, MID * IN, 1);
  CHECK_OK(hp_write(d, "w1", w, sizeof w));
  fill(w, OUT * MID, 2);
  CHECK_OK(hp_write(d, "w2", w, OUT * MID * sizeof *w));
  return d;
}

/* What a run of steps leaves. */
typedef struct {
  float loss[STEPS * ROWS], w1[MID * IN], w2[OUT * MID];
} result;

static piece_kind kind_of(int m, int n) { return m == 0 ? FIRST : m == n - 1 ? LAST : NEXT; }

static void read_params(hp_device *d, result *out) {
  CHECK_OK(hp_read(d, "w1", out->w1, sizeof out->w1));
  CHECK_OK(hp_read(d, "w2", out->w2, sizeof out->w2));
}

/* Micro-batch m of n has rows[m] samples; each piece is a program of its own. */
static void run_apart(const char *mesh, const int64_t *rows, int n, result *out) {
  hp_device *d = open_device(mesh);
  hp_program *p[ROWS];
  float x[ROWS * IN], lr = 0.1f;
  for (int m = 0; m < n; m++) {
    hp_graph *g = micro(kind_of(m, n), rows[m]);
    CHECK_OK(hp_compile(g, d, NULL, &p[m]));
    hp_graph_free(g);
  }
  for (int i = 0; i < STEPS * n; i++) {
    int m = i % n;
    size_t bytes = (size_t)rows[m] * IN * sizeof *x;
    fill(x, ROWS * IN, 10 + (uint64_t)i);
    hp_io io[] = {{"x", x, bytes}, {"loss", &out->loss[i], sizeof(float)}, {"lr", &lr, sizeof lr}};
    CHECK_OK(hp_run(p[m], io, 2 + (m == n - 1)));
  }
  for (int m = 0; m < n; m++) hp_program_free(p[m]);
  read_params(d, out);
  hp_device_close(d);
}

/* The orders of the actions of a step's micro-batches, whose pieces are called a, b, ... */
typedef enum { IN_ORDER, EACH, ALL_FORWARD, ONE_F_ONE_B, ORDERS } row_order;

static void add_row(str *rows, const char *actions, int m) {
  str_printf(rows, " 0\t%c%s %d # a row\n\n", 'a' + m, actions, m);
}

/* ONE_F_ONE_B: gradients of weights follow one micro-batch later. */
static void make_rows(row_order order, int n, str *rows) {
  static const char *const each[] = {":F", ":B", ":W"};
  str_add(rows, "# stage action microbatch\n");
  for (int m = 0; m < n && order == IN_ORDER; m++) add_row(rows, "", m);
  for (int k = 0; k < 3 * n && order == ALL_FORWARD; k++) add_row(rows, each[k / n], k % n);
  for (int k = 0; k < 3 * n && order == EACH; k++) add_row(rows, each[k % 3], k / 3);
  for (int m = 0; m <= n && order == ONE_F_ONE_B; m++) {
    if (m < n) add_row(rows, ":FB", m);
    if (m) add_row(rows, ":W", m - 1);
  }
  if (order != IN_ORDER) add_row(rows, ":U", n - 1);
}

static hp_program *link_step(hp_device *d, const int64_t *rows, int n, row_order order,
                             hp_piece **piece) {
  char name[ROWS][2] = {{0}};
  const char *names[ROWS];
  str text = {0};
  hp_program *p;
  for (int m = 0; m < n; m++) {
    hp_graph *g = micro(kind_of(m, n), rows[m]);
    CHECK_OK(hp_piece_compile(g, d, NULL, &piece[m]));
    hp_graph_free(g);
    name[m][0] = (char)('a' + m);
    names[m] = name[m];
  }
  make_rows(order, n, &text);
  CHECK_OK(hp_link(piece, names, n, text.at, &p));
  str_free(&text);
  return p;
}

static void run_linked(const char *mesh, const int64_t *rows, int n, row_order order, result *out) {
  hp_device *d = open_device(mesh);
  hp_piece *piece[ROWS];
  hp_program *p = link_step(d, rows, n, order, piece);
  static float x[ROWS][ROWS * IN];
  float lr = 0.1f;
  char name[2 * ROWS + 1][16];
  for (int m = 0; m < n; m++) hp_piece_free(piece[m]); /* the program stands by itself */
  for (int s = 0; s < STEPS; s++) {
    hp_io io[2 * ROWS + 1];
    for (int m = 0; m < n; m++) {
      snprintf(name[2 * m], sizeof name[0], "x@%d", m);
      snprintf(name[2 * m + 1], sizeof name[0], "loss@%d", m);
      fill(x[m], ROWS * IN, 10 + (uint64_t)(s * n + m));
      io[2 * m] = (hp_io){name[2 * m], x[m], (size_t)rows[m] * IN * sizeof(float)};
      io[2 * m + 1] = (hp_io){name[2 * m + 1], &out->loss[s * n + m], sizeof(float)};
    }
    snprintf(name[2 * n], sizeof name[0], "lr@%d", n - 1);
    io[2 * n] = (hp_io){name[2 * n], &lr, sizeof lr};
    CHECK_OK(hp_run(p, io, 2 * n + 1));
  }
  hp_program_free(p);
  read_params(d, out);
  hp_device_close(d);
}

TEST(a_step_in_one_program_has_the_bits_of_its_micro_batches_one_by_one) {
  static const char *const mesh[] = {NULL, "(2,1)(dp,tp)", "(2,2)(dp,tp)", "(1,3)(dp,tp)"};
  static const int64_t rows[][ROWS] = {{8, 8, 8, 8}, {8, 6, 4, 2}, {8, 8}};
  static const int n[] = {4, 4, 2};
  for (size_t i = 0; i < 4; i++)
    for (size_t k = 0; k < 3; k++) {
      result apart = {.loss = {0}};
      run_apart(mesh[i], rows[k], n[k], &apart);
      CHECK(apart.loss[0] != 0 && apart.loss[0] != apart.loss[1]);
      for (int order = 0; order < (k == 1 ? ORDERS : EACH); order++) {
        result linked = {.loss = {0}};
        run_linked(mesh[i], rows[k], n[k], (row_order)order, &linked);
        CHECK(!memcmp(&apart, &linked, sizeof apart));
      }
    }
}

/* Many micro-batches of one piece: its kernels are there once, and work memory is used again. */
TEST(memory_and_kernels_of_a_step_do_not_grow_with_its_micro_batches) {
  hp_device *d = open_device(NULL);
  hp_piece *piece[PIECES];
  hp_program_stats s[2];
  for (int k = 0; k < PIECES; k++) {
    hp_graph *g = micro((piece_kind)k, 8);
    CHECK_OK(hp_piece_compile(g, d, NULL, &piece[k]));
    hp_graph_free(g);
  }
  for (int k = 0; k < 2; k++) {
    int n = k ? 512 : 3;
    str rows = {0};
    hp_program *p;
    str_add(&rows, "0 F 0\n");
    for (int m = 1; m < n - 1; m++) str_printf(&rows, "0 N %d\n", m);
    str_printf(&rows, "0 L %d\n", n - 1);
    CHECK_OK(hp_link(piece, action, PIECES, rows.at, &p));
    CHECK_OK(hp_program_stats_get(p, &s[k]));
    hp_program_free(p);
    str_free(&rows);
  }
  CHECK_EQ(s[0].kernels, s[1].kernels);
  CHECK_EQ(s[0].memory.state_bytes, s[1].memory.state_bytes);
  CHECK(s[1].instructions > 100 * s[0].instructions / 3);
  /* inputs are there from the start, and losses until the end */
  uint64_t given = 512 * (ROWS * IN * sizeof(float) + 256);
  CHECK(s[1].memory.work_bytes <= s[0].memory.work_bytes + given);
  for (int k = 0; k < PIECES; k++) hp_piece_free(piece[k]);
  hp_device_close(d);
}

TEST(rows_that_make_no_sense_are_refused_by_line) {
  static const struct {
    const char *rows, *message;
  } bad[] = {{"", "rows: no row"},
             {"# nothing\n\n", "rows: no row"},
             {"0 F\n", "rows:1: microbatch \"\""},
             {"0 F 0\nx F 1\n", "rows:2: stage \"x\""},
             {"0 F 0 0\n", "rows:1: a row has three words"},
             {"0 F 99999999999999999999\n", "rows:1: microbatch \"99999999999999999999\""},
             {"0 F -1\n", "rows:1: microbatch \"-1\""},
             {"0 a-name-that-is-too-long-for-an-action 0\n", "rows:1: action"},
             {"0 F 0\n0 G 1\n", "rows:2: no piece is called \"G\""},
             {"0 F 0\n\n0 F 0\n", "rows:3: F of micro-batch 0 is in line 1, too"},
             {"0 F:F 0\n0 F:BF 0\n", "rows:2: F:BF of micro-batch 0 is in line 1, too"},
             {"0 F:F 0\n0 F:W 0\n0 F:B 0\n", "rows:3: F:B of micro-batch 0 comes after line 2"},
             {"0 F:X 0\n", "rows:1: action \"F:X\": expected letters of F, B, W and U"},
             {"0 F:FF 0\n", "rows:1: action \"F:FF\": expected letters of F, B, W and U"},
             {"0 F: 0\n", "rows:1: action \"F:\": expected letters of F, B, W and U"},
             {"0 G:F 0\n", "rows:1: no piece is called \"G\""},
             {"0 F:F 0\n0 F 1\n0 F:B 0\n",
              "rows: there is no row F:W of micro-batch 0, whose last row is line 3"},
             {"1 F 0\n", "rows:1: stage 1: a step has one stage, 0"}};
  hp_device *d = open_device(NULL);
  hp_graph *g = micro(FIRST, 8);
  hp_piece *piece;
  hp_program *p;
  CHECK_OK(hp_piece_compile(g, d, NULL, &piece));
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    CHECK_FAILS(hp_link(&piece, (const char *const[]){"F"}, 1, bad[i].rows, &p), bad[i].message);
  hp_piece_free(piece);
  hp_graph_free(g);
  hp_device_close(d);
}

TEST(a_piece_that_no_row_runs_takes_no_part) {
  hp_device *d = open_device(NULL);
  hp_piece *piece[2];
  hp_program *p;
  hp_program_stats s[2];
  for (int k = 0; k < 2; k++) {
    hp_graph *g = micro(k ? FIRST : LAST, 8);
    CHECK_OK(hp_piece_compile(g, d, NULL, &piece[k]));
    hp_graph_free(g);
    CHECK_OK(
        hp_link(piece + k, (const char *const[]){k ? "F" : "L"}, 1, k ? "0 F 0" : "0 L 0", &p));
    CHECK_OK(hp_program_stats_get(p, &s[0]));
    hp_program_free(p);
  }
  CHECK_OK(hp_link(piece, (const char *const[]){"L", "F"}, 2, "0 F 0", &p));
  CHECK_OK(hp_program_stats_get(p, &s[1]));
  CHECK_EQ(s[0].instructions, s[1].instructions);
  CHECK_EQ(s[0].kernels, s[1].kernels);
  CHECK_EQ(s[0].memory.work_bytes, s[1].memory.work_bytes);
  hp_program_free(p);
  for (int k = 0; k < 2; k++) hp_piece_free(piece[k]);
  hp_device_close(d);
}

TEST(pieces_that_disagree_about_a_param_or_a_device_are_refused) {
  hp_device *d[2] = {open_device(NULL), open_device(NULL)};
  hp_graph *g = micro(FIRST, 8), *h;
  hp_piece *piece[2];
  hp_program *p;
  CHECK_OK(hp_graph_create(&h));
  hp_output(h, "y", hp_param(h, "g.w1", HP_F32, (hp_shape){1, {7}}));
  for (int k = 0; k < 2; k++) CHECK_OK(hp_piece_compile(g, d[k], NULL, &piece[k]));
  CHECK_FAILS(hp_link(piece, (const char *const[]){"F", "G"}, 2, "0 F 0", &p),
              "piece 1 is of another device than piece 0");
  hp_piece_free(piece[1]);
  CHECK_OK(hp_piece_compile(h, d[0], NULL, &piece[1]));
  CHECK_FAILS(hp_link(piece, (const char *const[]){"F", "G"}, 2, "0 F 0\n0 G 0", &p), "g.w1");
  CHECK_FAILS(hp_link(piece, (const char *const[]){"F", "F"}, 2, "0 F 0", &p),
              "pieces 0 and 1 are both called \"F\"");
  hp_piece_free(piece[1]);
  CHECK_OK(hp_piece_compile(g, d[0], NULL, &piece[1]));
  CHECK_FAILS(hp_link(piece, (const char *const[]){"F", "G"}, 2, "0 F 0\n0 G 0", &p),
              "\"x\" is an input or output of two pieces of micro-batch 0");
  for (int k = 0; k < 2; k++) hp_piece_free(piece[k]);
  for (int k = 0; k < 2; k++) hp_device_close(d[k]);
  hp_graph_free(g);
  hp_graph_free(h);
}
