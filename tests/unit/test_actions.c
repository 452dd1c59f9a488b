/* The split of a training step into forward, backward, backward to weights and update. */
#include "bare_target.h"
#include "prog/actions.h"
#include "step_case.h"
#include "test.h"

#include <string.h>

/* The lowered program of a step of two layers. */
static program *lower_step(hp_dtype dtype) {
  hp_graph *g = step_graph(dtype);
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

TEST(actions_one_after_the_other_keep_the_order_of_what_depends) {
  for (int k = 0; k < 2; k++) {
    program *p = lower_step(k ? HP_BF16 : HP_F32);
    uint8_t *action = mem_calloc(p->insts.len, 1);
    CHECK_OK(program_actions(p, action));
    for (size_t j = 0; j < p->insts.len; j++)
      for (size_t i = 0; i < j; i++)
        if (action[i] > action[j]) CHECK(!depends(p, program_inst(p, i), program_inst(p, j)));
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
