/* The split of a training step into forward, backward, backward to weights and update. */
#include "bare_target.h"
#include "prog/actions.h"
#include "step_case.h"
#include "test.h"

#include <string.h>

/* The lowered program of a graph, which is freed. */
static program *lower(hp_graph *g) {
  compilation c;
  bare_target b;
  CHECK_OK(bare_target_init(&b));
  CHECK_OK(compile_begin(g, NULL, NULL, &c));
  CHECK_OK(compile_lower(&c, &b.t));
  program *p = c.lowered;
  c.lowered = NULL;
  compile_end(&c);
  mesh_free(&b.m);
  hp_graph_free(g);
  return p;
}

/* A step of two layers. */
static program *lower_step(hp_dtype dtype) { return lower(step_graph(dtype)); }

static bool writes(const program *p, const prog_inst *n, uint32_t root) {
  for (int k = n->n_in; k < n->n_in + n->n_out; k++)
    if (program_arg(p, n, k)->root == root) return true;
  return false;
}

static bool touches(const program *p, const prog_inst *n, uint32_t root) {
  for (int k = 0; k < n->n_in; k++)
    if (program_arg(p, n, k)->root == root) return true;
  return writes(p, n, root);
}

/* Must b stay behind a? */
static bool depends(const program *p, const prog_inst *a, const prog_inst *b) {
  for (int k = 0; k < a->n_in + a->n_out; k++) {
    uint32_t root = program_arg(p, a, k)->root;
    if (k < a->n_in ? writes(p, b, root) : touches(p, b, root)) return true;
  }
  return false;
}

static void check_order(const program *p, const uint8_t *action) {
  for (size_t j = 0; j < p->insts.len; j++)
    for (size_t i = 0; i < j; i++)
      if (action[i] > action[j]) CHECK(!depends(p, program_inst(p, i), program_inst(p, j)));
}

TEST(actions_one_after_the_other_keep_the_order_of_what_depends) {
  for (int k = 0; k < 2; k++) {
    program *p = lower_step(k ? HP_BF16 : HP_F32);
    uint8_t *action = mem_calloc(p->insts.len, 1);
    CHECK_OK(program_actions(p, action));
    check_order(p, action);
    mem_free(action);
    program_free(p);
  }
}

/* 6 products a layer and the logits: each has a gradient of its activation, on which the layers
 * below wait, and one of its weight.  The lowest values only lead to the gradient of the table. */
TEST(gradients_of_weights_can_wait_and_gradients_of_activations_cannot) {
  program *p = lower_step(HP_F32);
  uint8_t *action = mem_calloc(p->insts.len, 1);
  int products[ACTION_ALL + 1] = {0};
  CHECK_OK(program_actions(p, action));
  for (size_t i = 0; i < p->insts.len; i++) {
    const prog_inst *n = program_inst(p, i);
    CHECK_EQ(action[i] == ACTION_FORWARD, n->phase == PHASE_FORWARD);
    CHECK_EQ(action[i] == ACTION_UPDATE, n->phase == PHASE_UPDATE);
    if (n->op == OP_EINSUM) products[action[i]]++;
    if (n->op == OP_ATTENTION_GRAD) CHECK_EQ(action[i], ACTION_BACKWARD);
    if (n->op == OP_EMBEDDING_GRAD) CHECK_EQ(action[i], ACTION_WEIGHTS);
  }
  CHECK_EQ(products[ACTION_FORWARD], 13);
  CHECK_EQ(products[ACTION_BACKWARD], 13);
  CHECK_EQ(products[ACTION_WEIGHTS], 13);
  mem_free(action);
  program_free(p);
}

/* Two products; of w0 the sum of squared gradients is an output, too, of w1 the gradient is. */
static hp_graph *sums_that_are_read(void) {
  enum { N = 8 };
  static const char *const name[] = {"w0", "w1"}, *const sum_name[] = {"g.w0", "g.w1"};
  hp_graph *g;
  hp_tensor w[2], grad[2];
  hp_shape square = {2, {N, N}};
  CHECK_OK(hp_graph_create(&g));
  hp_tensor y = hp_input(g, "x", HP_F32, square);
  for (int i = 0; i < 2; i++) {
    w[i] = hp_param(g, name[i], HP_F32, square);
    y = hp_map(g, "tanh", hp_einsum(g, "bi,oi->bo", y, w[i]), HP_NONE, HP_NONE);
  }
  hp_tensor loss = hp_sum(g, y, (int64_t[]){0, 1}, 2, false);
  CHECK_OK(hp_grad(g, loss, w, 2, grad));
  for (int i = 0; i < 2; i++) {
    hp_tensor sum = hp_param(g, sum_name[i], HP_F32, square);
    hp_output(g, i ? "gradient" : "sum", i ? grad[i] : sum);
    hp_assign(g, sum, hp_add(g, sum, i ? grad[i] : hp_mul(g, grad[i], grad[i])));
  }
  CHECK_OK(hp_graph_status(g));
  return g;
}

/* B of a micro-batch may run before W of the one before: what B reads of a sum is added by B. */
TEST(a_sum_that_the_backward_reads_and_an_output_do_not_wait) {
  program *p = lower(sums_that_are_read());
  uint8_t *action = mem_calloc(p->insts.len, 1);
  CHECK_OK(program_actions(p, action));
  check_order(p, action);
  for (size_t b = 0; b < p->buffers.len; b++) {
    const prog_buffer *f = &p->buffers.at[b];
    const char *name = f->name ? program_str(p, f->name) : "";
    bool is_sum = !strcmp(name, "g.w0"), is_output = !strcmp(name, "gradient");
    for (size_t i = 0; (is_sum || is_output) && i < p->insts.len; i++)
      if (is_sum ? touches(p, program_inst(p, i), f->root) : writes(p, program_inst(p, i), f->root))
        CHECK_EQ(action[i], ACTION_BACKWARD);
  }
  mem_free(action);
  program_free(p);
}

/* What a lower stage needs of a higher one is of its backward, though both are on one device, and
 * though only the gradient of one param comes of it. */
TEST(what_another_stage_needs_does_not_wait) {
  hp_graph *g;
  hp_tensor w[2], grad[2];
  CHECK_OK(hp_graph_create(&g));
  hp_tensor x = hp_input(g, "x", HP_F32, (hp_shape){2, {3, 4}});
  for (int s = 0; s < 2; s++) {
    hp_stage(g, s);
    w[s] = hp_param(g, s ? "w1" : "w0", HP_F32, (hp_shape){2, {4, 4}});
    x = hp_map(g, "tanh", hp_einsum(g, "ab,bc->ac", x, w[s]), HP_NONE, HP_NONE);
  }
  CHECK_OK(hp_grad(g, hp_sum(g, x, (int64_t[]){0, 1}, 2, false), w, 2, grad));
  for (int s = 0; s < 2; s++) {
    hp_stage(g, s);
    hp_assign(g, hp_param(g, s ? "g1" : "g0", HP_F32, (hp_shape){2, {4, 4}}), grad[s]);
  }
  program *p = lower(g);
  uint8_t *action = mem_calloc(p->insts.len, 1);
  CHECK_OK(program_actions(p, action));
  int crossings = 0;
  for (size_t i = 0; i < p->insts.len; i++)
    for (size_t j = i + 1; j < p->insts.len; j++) {
      const prog_inst *a = program_inst(p, i), *b = program_inst(p, j);
      if (a->phase != PHASE_BACKWARD || a->stage == b->stage || !depends(p, a, b)) continue;
      CHECK_EQ(action[i], ACTION_BACKWARD);
      crossings++;
    }
  CHECK(crossings > 0);
  mem_free(action);
  program_free(p);
}
