/* Rows that experts make, each on the device that has its expert: what is done with them there, and
 * what else reads them, gives what one device gives. */
#include "test.h"

enum { ROWS = 5, SLOTS = 2, EXPERTS = 6, IN = 4, WIDTH = 3 };
typedef struct {
  float same[ROWS * SLOTS * IN], other[ROWS * SLOTS * IN], sum[ROWS * WIDTH];
} answers;

/* exp makes something of the rows of others too, which are 0 before it.  Of that the experts of the
 * same rows must see nothing, nor those of other rows, nor a sum. */
static hp_program *experts(hp_device *d) {
  hp_graph *g;
  hp_program *p;
  CHECK_OK(hp_graph_create(&g));
  hp_tensor x = hp_input(g, "x", HP_F32, (hp_shape){2, {ROWS, IN}});
  hp_tensor ids = hp_input(g, "ids", HP_I32, (hp_shape){2, {ROWS, SLOTS}});
  hp_tensor ids_other = hp_input(g, "ids_other", HP_I32, (hp_shape){2, {ROWS, SLOTS}});
  hp_tensor up = hp_input(g, "up", HP_F32, (hp_shape){3, {EXPERTS, WIDTH, IN}});
  hp_tensor down = hp_input(g, "down", HP_F32, (hp_shape){3, {EXPERTS, IN, WIDTH}});
  hp_tensor h = hp_map(g, "exp", hp_grouped_matmul(g, x, up, ids), HP_NONE, HP_NONE);
  hp_output(g, "same", hp_grouped_matmul(g, h, down, ids));
  hp_output(g, "other", hp_grouped_matmul(g, h, down, ids_other));
  hp_output(g, "sum", hp_sum(g, h, (int64_t[]){1}, 1, false));
  CHECK_OK(hp_compile(g, d, NULL, &p));
  hp_graph_free(g);
  return p;
}

/* mesh NULL: one device. */
static void ask(const char *mesh, const char *cut, answers *out) {
  float x[ROWS * IN], up[EXPERTS * WIDTH * IN], down[EXPERTS * IN * WIDTH];
  int32_t ids[ROWS * SLOTS], other[ROWS * SLOTS];
  for (int i = 0; i < ROWS * IN; i++) x[i] = (float)(i % 7) / 4 - 0.5f;
  for (int i = 0; i < EXPERTS * WIDTH * IN; i++) up[i] = (float)(i % 5) / 4 - 0.5f;
  for (int i = 0; i < EXPERTS * IN * WIDTH; i++) down[i] = (float)(i % 11) / 8 - 0.5f;
  for (int i = 0; i < ROWS * SLOTS; i++) ids[i] = 5 * i % EXPERTS, other[i] = (i + 2) % EXPERTS;
  hp_layout_rule rules[] = {{"up", cut}, {"down", cut}};
  hp_device_options o = {.mesh = mesh,
                         .interpret = true,
                         .threads = 2,
                         .layouts = rules,
                         .n_layouts = mesh ? 2 : 0};
  hp_io io[] = {{"x", x, sizeof x},
                {"ids", ids, sizeof ids},
                {"ids_other", other, sizeof other},
                {"up", up, sizeof up},
                {"down", down, sizeof down},
                {"same", out->same, sizeof out->same},
                {"other", out->other, sizeof out->other},
                {"sum", out->sum, sizeof out->sum}};
  hp_device *d;
  CHECK_OK(hp_device_open(&o, &d));
  hp_program *p = experts(d);
  CHECK_OK(hp_run(p, io, sizeof io / sizeof *io));
  hp_program_free(p);
  hp_device_close(d);
}

static void check_near(const char *mesh, const char *cut, const char *name, const float *got,
                       const float *want, int n) {
  for (int i = 0; i < n; i++)
    if (!(got[i] - want[i] <= 1e-4f && want[i] - got[i] <= 1e-4f))
      test_fail(__FILE__, __LINE__, "%s %s: element %d of %s is %g, want %g", mesh, cut, i, name,
                (double)got[i], (double)want[i]);
}

TEST(rows_of_experts_are_seen_by_others_as_their_owners_have_them) {
  static const struct {
    const char *mesh, *cut;
  } c[] = {{"(2)(a)", "(a,None,None)"},
           {"(3)(a)", "(a,None,None)"},
           {"(2,2)(a,b)", "((b,a),None,None)"},
           {"(2,3)(a,b)", "((a,b),None,None)"}};
  answers want, got;
  ask(NULL, NULL, &want);
  for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
    ask(c[i].mesh, c[i].cut, &got);
    check_near(c[i].mesh, c[i].cut, "same", got.same, want.same, ROWS * SLOTS * IN);
    check_near(c[i].mesh, c[i].cut, "other", got.other, want.other, ROWS * SLOTS * IN);
    check_near(c[i].mesh, c[i].cut, "sum", got.sum, want.sum, ROWS * WIDTH);
  }
}
