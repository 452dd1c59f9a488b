/* Memory of a linked step: offsets of its micro-batches (compile/memory_segments.h). */
#include "api/api_program.h"
#include "base/str.h"
#include "compile/lower.h"
#include "test.h"

enum { IN = 12, MID = 1 << 17, OUT = 8, ROWS = 8, MICROS = 6 }; /* none is run */

/* The loss of `rows` samples and its gradients, added to those before. */
static hp_piece *micro(hp_device *d, int64_t rows) {
  static const char *const sum_of[] = {"g.w1", "g.w2"};
  hp_graph *g;
  hp_piece *piece;
  hp_tensor grad[2];
  CHECK_OK(hp_graph_create(&g));
  hp_tensor x = hp_input(g, "x", HP_F32, (hp_shape){2, {rows, IN}});
  hp_tensor w[] = {hp_param(g, "w1", HP_F32, (hp_shape){2, {MID, IN}}),
                   hp_param(g, "w2", HP_F32, (hp_shape){2, {OUT, MID}})};
  hp_tensor y = hp_map(g, "tanh", hp_einsum(g, "bi,mi->bm", x, w[0]), HP_NONE, HP_NONE);
  y = hp_softmax(g, hp_einsum(g, "bm,om->bo", y, w[1]));
  hp_tensor loss = hp_sum(g, hp_mul(g, y, y), (int64_t[]){0, 1}, 2, false);
  hp_output(g, "loss", loss);
  CHECK_OK(hp_grad(g, loss, w, 2, grad));
  for (int i = 0; i < 2; i++) {
    hp_tensor sum = hp_param(g, sum_of[i], HP_F32, hp_shape_of(g, w[i]));
    hp_assign(g, sum, hp_add(g, sum, grad[i]));
  }
  CHECK_OK(hp_piece_compile(g, d, NULL, &piece));
  hp_graph_free(g);
  return piece;
}

static hp_device *open_device(void) {
  hp_device *d;
  CHECK_OK(hp_device_open(&(hp_device_options){.threads = 1, .interpret = true}, &d));
  return d;
}

/* The orders of the actions of a step's micro-batches, whose pieces are called a, b, ... */
enum { IN_ORDER, ALL_FORWARD, ONE_BEHIND, ORDERS };

static hp_program *link_step(hp_device *d, const int64_t *rows, int order, hp_piece **piece) {
  static const char *const name[] = {"a", "b", "c", "d", "e", "f"}, *const each[] = {"F", "B", "W"};
  str text = {0};
  hp_program *p;
  for (int m = 0; m < MICROS; m++) piece[m] = micro(d, rows[m]);
  for (int m = 0; m < MICROS && order == IN_ORDER; m++) str_printf(&text, "0 %s %d\n", name[m], m);
  for (int k = 0; k < 3 * MICROS && order == ALL_FORWARD; k++)
    str_printf(&text, "0 %s:%s %d\n", name[k % MICROS], each[k / MICROS], k % MICROS);
  for (int m = 0; m <= MICROS && order == ONE_BEHIND; m++) {
    if (m < MICROS) str_printf(&text, "0 %s:FB %d\n", name[m], m);
    if (m) str_printf(&text, "0 %s:W %d\n", name[m - 1], m - 1);
  }
  CHECK_OK(hp_link(piece, name, MICROS, text.at, &p));
  str_free(&text);
  return p;
}

/* By another way than that by which offsets are found. */
static uint64_t verify_offsets(const hp_program *h) {
  program *p;
  CHECK_OK(program_copy(exec_program(h->r.e[0]), &p));
  CHECK_OK(verify_memory(p));
  uint64_t bytes = p->arena[TIER_DEVICE];
  program_free(p);
  return bytes;
}

TEST(no_two_buffers_of_a_step_overlap_in_any_order_of_rows) {
  static const int64_t rows[][MICROS] = {{8, 8, 8, 8, 8, 8},
                                         {8, 6, 4, 8, 6, 4},
                                         {2, 8, 2, 8, 8, 2}};
  for (size_t k = 0; k < 3; k++)
    for (int order = 0; order < ORDERS; order++) {
      hp_device *d = open_device();
      hp_piece *piece[MICROS];
      hp_program *p = link_step(d, rows[k], order, piece);
      CHECK(verify_offsets(p) > 0);
      hp_program_free(p);
      for (int m = 0; m < MICROS; m++) hp_piece_free(piece[m]);
      hp_device_close(d);
    }
}

/* One piece for all micro-batches, as in training: they are planned once, and other numbers of them
 * are not planned again. */
TEST(micro_batches_of_one_piece_have_the_same_offsets) {
  enum { MANY = 40 };
  hp_device *d = open_device();
  hp_piece *piece = micro(d, ROWS);
  size_t plans = 0;
  for (int more = 0; more < 2; more++) {
    str rows = {0};
    hp_program *h;
    for (int m = 0; m < MANY + more; m++) str_printf(&rows, "0 a %d\n", m);
    CHECK_OK(hp_link(&piece, (const char *const[]){"a"}, 1, rows.at, &h));
    verify_offsets(h);
    const program *p = exec_program(h->r.e[0]);
    size_t each = p->insts.len / (size_t)(MANY + more);
    int inner = 0;
    for (size_t i = each; i < 2 * each; i++) {
      const prog_inst *one = program_inst(p, i), *next = program_inst(p, i + 10 * each);
      CHECK_EQ(one->kernel, next->kernel);
      for (int j = one->n_in; j < one->n_in + one->n_out; j++) {
        const prog_buffer *b = program_arg(p, one, j);
        if (b->place != PLACE_WORK || b->name) continue;
        CHECK_EQ(b->offset, program_arg(p, next, j)->offset);
        inner++;
      }
    }
    CHECK(inner > 0);
    if (more) CHECK_EQ(d->member[0]->offsets.plan.len, plans);
    plans = d->member[0]->offsets.plan.len;
    hp_program_free(h);
    str_free(&rows);
  }
  hp_piece_free(piece);
  hp_device_close(d);
}
