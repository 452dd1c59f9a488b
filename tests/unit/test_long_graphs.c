/* Graphs of tens of thousands of nodes through every pass, on a small stack: nothing recurses along
 * a chain, and nothing looks at all nodes again for each one, which would not end in time. */
#include "test.h"

#include "ops/ops.h"
#include "pass/autodiff.h"
#include "bare_target.h"
#include "compile/prog_schedule.h"

#include <sys/resource.h>

enum { LONG = 30000, STACK = 256 << 10 };

typedef struct {
  hp_graph *g;
  val x, first;
} net;

/* Node number i of a chain, from the one before it. */
typedef val (*link_fn)(net *n, val y, int i);

static val elementwise(net *n, val y, int i) {
  return i % 2 ? ops_unary(n->g, OP_TANH, y) : ops_binary(n->g, OP_MUL, y, n->x);
}
static val product(net *n, val y, int i) {
  (void)i;
  return ops_einsum(n->g, "ab,bc->ac", y, n->x, HP_F32);
}
/* Every other loop is kept from its neighbours by a product, and reads one value made at first. */
static val fan(net *n, val y, int i) {
  return i % 2 ? product(n, y, i) : ops_binary(n->g, OP_ADD, y, n->first);
}
static val there_and_back(net *n, val y, int i) {
  attr_record a = {0};
  attr_put_int(&a, 1);
  return i % 3 == 2 ? ops_unary(n->g, OP_SIN, y)
                    : ops_add(n->g, i % 3 ? OP_FETCH : OP_OFFLOAD, &y, 1, &a);
}
static val softmax(net *n, val y, int i) {
  return i % 4 ? ops_scale(n->g, y, 1 + 1.0 / i) : ops_unary(n->g, OP_SOFTMAX, y);
}
static val view(net *n, val y, int i) {
  return i % 2 ? ops_transpose(n->g, y, (int64_t[]){1, 0})
               : ops_reshape(n->g, y, graph_value(n->g, n->x)->dim, 2);
}

/* A chain in one block, with its backward, to a plan with offsets. */
static void check_chain(link_fn link) {
  net n = {0};
  bare_target b;
  bool fits;
  program *p;
  val dx;
  int64_t dim[2] = {8, 8};
  CHECK_OK(graph_create(NULL, &n.g));
  n.x = ops_leaf(n.g, OP_PARAM, "x", HP_F32, dim, 2);
  n.g->block = 1;
  val y = n.first = ops_unary(n.g, OP_EXP, n.x);
  for (int i = 0; i < LONG; i++) y = link(&n, y, i);
  y = ops_sum(n.g, y, (int64_t[]){0, 1}, 2, false);
  CHECK_OK(graph_status(n.g));
  CHECK_OK(pass_autodiff(n.g, y, &n.x, 1, &dx));
  ops_output(n.g, "dx", dx);
  CHECK_OK(bare_compile(n.g, &(hp_compile_options){.remat = true}, &p));
  CHECK_OK(bare_target_init(&b));
  schedule_options o = {.cluster = &b.c, .mesh = &b.m};
  CHECK_OK(schedule_program(p, SCHEDULE_MINIMUM, &o, &fits));
  CHECK(fits);
  mesh_free(&b.m);
  program_free(p);
  graph_free(n.g);
}

TEST(long_chains_of_every_kind_pass_on_a_small_stack) {
  static const link_fn links[] = {elementwise, product, fan, there_and_back, softmax, view};
  CHECK(!setrlimit(RLIMIT_STACK, &(struct rlimit){STACK, STACK}));
  for (size_t i = 0; i < sizeof links / sizeof *links; i++) check_chain(links[i]);
}
