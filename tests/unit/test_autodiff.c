/* Gradients against finite differences and closed forms, both in double precision: the reference
 * evaluates graph and backward without rounding. */
#include "test.h"

#include "base/dtype.h"
#include "ops/random_graph.h"
#include "pass/autodiff.h"

#include <math.h>
#include <stdlib.h>

enum { LEAVES = 4, ELEMENTS = 64 };

/* A graph with float leaves, and its values. */
typedef struct {
  hp_graph *g;
  ref_run ref;
  rng r;
  val leaf[LEAVES];
  int leaves;
} net;

static void net_begin(net *x, uint64_t seed) {
  *x = (net){.r = {.seed = seed}};
  CHECK_OK(graph_create(NULL, &x->g));
  ref_begin(&x->ref, x->g, true);
}

static void net_end(net *x) {
  ref_end(&x->ref);
  graph_free(x->g);
}

/* A param of that shape with values in [low, low + 1). */
static val leaf(net *x, int rank, const int64_t *dim, float low) {
  float data[ELEMENTS];
  char name[8];
  snprintf(name, sizeof name, "p%d", x->leaves);
  val v = ops_leaf(x->g, OP_PARAM, name, HP_F32, dim, rank);
  CHECK(v && x->leaves < LEAVES && value_elements(graph_value(x->g, v)) <= ELEMENTS);
  for (int64_t i = 0; i < value_elements(graph_value(x->g, v)); i++)
    data[i] = low + (float)rng_unit(&x->r);
  ref_set(&x->ref, v, data);
  x->leaf[x->leaves++] = v;
  return v;
}

static val scalar(net *x, float low) { return leaf(x, 0, NULL, low); }

static val sum_all(hp_graph *g, val x) {
  int64_t axes[HP_MAX_RANK] = {0, 1, 2, 3, 4, 5};
  return ops_sum(g, x, axes, graph_value(g, x)->rank, false);
}

static double *numbers(net *x, val v) {
  CHECK_OK(graph_status(x->g));
  ref_eval(&x->ref);
  return x->ref.value[v].f;
}
static double number(net *x, val v) { return numbers(x, v)[0]; }

static double loss_at(net *x, val leaf_, int64_t i, double value, val loss) {
  ref_again(&x->ref);
  x->ref.value[leaf_].f[i] = value;
  return number(x, loss);
}

/* Every element of every leaf against a central difference. */
static void check_differences(net *x, val loss, const val *grad) {
  const double h = 1e-5;
  for (int k = 0; k < x->leaves; k++)
    for (int64_t i = 0; i < value_elements(graph_value(x->g, x->leaf[k])); i++) {
      double at = x->ref.value[x->leaf[k]].f[i];
      double up = loss_at(x, x->leaf[k], i, at + h, loss);
      double down = loss_at(x, x->leaf[k], i, at - h, loss);
      (void)loss_at(x, x->leaf[k], i, at, loss);
      double want = (up - down) / (2 * h), got = numbers(x, grad[k])[i];
      if (!(fabs(got - want) <= 1e-6 * (1 + fabs(want)))) {
        char *text;
        hp_graph_print(x->g, &text);
        test_fail(__FILE__, __LINE__, "seed %d, leaf %d [%d]: %.9g, difference quotient %.9g\n%s",
                  (int)x->r.seed, k, (int)i, got, want, text);
      }
    }
}

static void differentiate(net *x, val loss, val *grad) {
  CHECK_OK(pass_autodiff(x->g, loss, x->leaf, x->leaves, grad));
  CHECK_OK(ops_verify(x->g));
  for (int k = 0; k < x->leaves; k++) {
    const ir_value *d = graph_value(x->g, grad[k]), *p = graph_value(x->g, x->leaf[k]);
    CHECK(d->dtype == p->dtype && value_same_shape(d, p));
  }
}

/* --- random nets ------------------------------------------------------------------------------ */

/* One more value from those there are; 0 when it would not fit. */
static val grow(net *x, const val *pool, int n) {
  static const int unary[] = {OP_TANH, OP_SIN, OP_COS, OP_SIGMOID, OP_SQUARE, OP_NEG, OP_ERF};
  static const int binary[] = {OP_ADD, OP_SUB, OP_MUL, OP_MUL};
  hp_graph *g = x->g;
  val a = pool[rng_below(&x->r, n)], b = pool[rng_below(&x->r, n)];
  const ir_value *t = graph_value(g, a), *u = graph_value(g, b);
  int kind = rng_below(&x->r, 10);
  if (kind < 3) return ops_unary(g, unary[rng_below(&x->r, 7)], a);
  if (kind == 3 && t->rank == 2) return ops_transpose(g, a, (int64_t[]){1, 0});
  if (kind == 4 && t->rank)
    return ops_sum(g, a, (int64_t[]){rng_below(&x->r, t->rank)}, 1, rng_chance(&x->r, 50));
  if (kind == 5 && t->rank == 2 && u->rank == 2 && t->dim[1] == u->dim[1])
    return ops_einsum(g, "ab,cb->ac", a, b, HP_F32);
  if (kind == 6 && t->rank) return ops_unary(g, OP_SOFTMAX, a);
  if (kind == 7) return ops_binary(g, OP_DIV, a, ops_unary(g, OP_EXP, ops_unary(g, OP_TANH, a)));
  for (int d = 1; d <= t->rank && d <= u->rank; d++) {
    int64_t m = t->dim[t->rank - d], k = u->dim[u->rank - d];
    if (m != k && m != 1 && k != 1) return 0;
  }
  return ops_binary(g, binary[rng_below(&x->r, 4)], a, b);
}

TEST(gradients_of_random_nets_are_their_difference_quotients) {
  for (uint64_t seed = 1; seed <= 150; seed++) {
    net x;
    val pool[40], grad[LEAVES];
    int n = 0;
    net_begin(&x, seed);
    pool[n++] = leaf(&x, 2, (int64_t[]){2, 3}, 0.2f);
    pool[n++] = leaf(&x, 1, (int64_t[]){3}, -0.5f);
    pool[n++] = leaf(&x, 2, (int64_t[]){2, 1}, 0.5f);
    pool[n++] = scalar(&x, 0.1f);
    while (n < 24) {
      val v = grow(&x, pool, n);
      if (v) pool[n++] = ops_unary(x.g, OP_TANH, v);
    }
    val loss = sum_all(x.g, pool[n - 1]);
    for (int i = 4; i < n - 1; i += 3) loss = ops_binary(x.g, OP_ADD, loss, sum_all(x.g, pool[i]));
    differentiate(&x, loss, grad);
    check_differences(&x, loss, grad);
    net_end(&x);
  }
}

/* --- small nets ------------------------------------------------------------------------------- */

TEST(uses_of_a_value_add_up) {
  net x;
  val grad[LEAVES];
  net_begin(&x, 1);
  val a = scalar(&x, 2);
  val cube = ops_binary(x.g, OP_MUL, ops_binary(x.g, OP_MUL, a, a), a);
  val loss = ops_binary(x.g, OP_ADD, cube, ops_scale(x.g, a, 5)); /* a^3 + 5 a */
  differentiate(&x, loss, grad);
  double at = number(&x, a);
  CHECK_NEAR(number(&x, grad[0]), 3 * at * at + 5, 1e-12);
  net_end(&x);
}

TEST(cross_entropy_has_the_gradient_softmax_less_one_hot_and_none_where_ignored) {
  net x;
  val grad[LEAVES];
  net_begin(&x, 2);
  val logits = leaf(&x, 2, (int64_t[]){3, 5}, -0.5f);
  val labels = ops_leaf(x.g, OP_INPUT, "labels", HP_I32, (int64_t[]){3}, 1);
  ref_set(&x.ref, labels, (int32_t[]){4, -100, 0});
  attr_record a = {0};
  attr_put_int(&a, -100);
  val rows = ops_add(x.g, OP_CROSS_ENTROPY, (val[]){logits, labels}, 2, &a);
  val loss = sum_all(x.g, rows), soft = ops_unary(x.g, OP_SOFTMAX, logits);
  differentiate(&x, loss, grad);
  for (int i = 0; i < 15; i++) {
    double want = i / 5 == 1 ? 0 : numbers(&x, soft)[i] - (i == 4 || i == 10);
    CHECK_NEAR(numbers(&x, grad[0])[i], want, 1e-12);
  }
  check_differences(&x, loss, grad);
  net_end(&x);
}

TEST(nothing_flows_through_integers) {
  net x;
  val grad[LEAVES];
  net_begin(&x, 3);
  val a = leaf(&x, 1, (int64_t[]){4}, 3.25f);
  val whole = ops_cast(x.g, ops_cast(x.g, a, HP_I32), HP_F32);
  val loss = sum_all(x.g, ops_binary(x.g, OP_MUL, a, whole)); /* a trunc(a): d = trunc(a) */
  differentiate(&x, loss, grad);
  for (int i = 0; i < 4; i++) CHECK_NEAR(numbers(&x, grad[0])[i], trunc(numbers(&x, a)[i]), 1e-12);
  net_end(&x);
}

TEST(a_value_that_the_loss_does_not_depend_on_gets_zeros) {
  net x;
  val grad[LEAVES];
  net_begin(&x, 4);
  val a = scalar(&x, 1);
  (void)leaf(&x, 2, (int64_t[]){2, 2}, 1);
  differentiate(&x, ops_unary(x.g, OP_SQUARE, a), grad);
  for (int i = 0; i < 4; i++) CHECK_NEAR(numbers(&x, grad[1])[i], 0, 0);
  net_end(&x);
}

TEST(gradients_are_taken_by_values_in_the_middle_by_the_loss_itself_and_twice) {
  net x;
  val grad[4];
  net_begin(&x, 5);
  val a = scalar(&x, 1), y = ops_unary(x.g, OP_SIN, a), loss = ops_unary(x.g, OP_SQUARE, y);
  val later = ops_unary(x.g, OP_EXP, loss); /* the loss does not depend on it */
  CHECK_OK(pass_autodiff(x.g, loss, (val[]){y, loss, y, later}, 4, grad));
  CHECK_NEAR(number(&x, grad[0]), 2 * number(&x, y), 1e-12);
  CHECK_NEAR(number(&x, grad[1]), 1, 0);
  CHECK_NEAR(number(&x, grad[2]), 2 * number(&x, y), 1e-12);
  CHECK_NEAR(number(&x, grad[3]), 0, 0);
  net_end(&x);
}

TEST(a_gradient_is_a_value_like_others_and_has_gradients_itself) {
  net x;
  val first[LEAVES], second[LEAVES], third[LEAVES];
  net_begin(&x, 6);
  val a = scalar(&x, 0.5f), loss = ops_unary(x.g, OP_SIN, a);
  differentiate(&x, loss, first);
  differentiate(&x, first[0], second);
  differentiate(&x, second[0], third);
  double at = number(&x, a);
  CHECK_NEAR(number(&x, first[0]), cos(at), 1e-12);
  CHECK_NEAR(number(&x, second[0]), -sin(at), 1e-12);
  CHECK_NEAR(number(&x, third[0]), -cos(at), 1e-12);
  /* a penalty on the gradient, next to a second use of it */
  val w = leaf(&x, 1, (int64_t[]){3}, 0.5f), dw[LEAVES], ddw[LEAVES];
  val f = sum_all(x.g, ops_unary(x.g, OP_TANH,
                                 ops_binary(x.g, OP_MUL, w, ops_binary(x.g, OP_MUL, w, a))));
  differentiate(&x, f, dw);
  val penalty = sum_all(x.g, ops_unary(x.g, OP_SQUARE, dw[1]));
  val total = ops_binary(x.g, OP_ADD, penalty, ops_binary(x.g, OP_MUL, f, sum_all(x.g, dw[1])));
  differentiate(&x, total, ddw);
  check_differences(&x, total, ddw);
  net_end(&x);
}

TEST(a_loss_must_be_one_float) {
  net x;
  val grad[LEAVES];
  net_begin(&x, 7);
  val a = leaf(&x, 1, (int64_t[]){1}, 1), b = leaf(&x, 1, (int64_t[]){2}, 1);
  CHECK_FAILS(pass_autodiff(x.g, b, &b, 1, grad), "; one element of a float dtype was expected");
  CHECK_FAILS(pass_autodiff(x.g, ops_cast(x.g, a, HP_I32), &a, 1, grad),
              "; one element of a float dtype was expected");
  CHECK_OK(pass_autodiff(x.g, a, &a, 1, grad)); /* [1] is one element too */
  CHECK_NEAR(number(&x, grad[0]), 1, 0);
  net_end(&x);
}

/* a with b written into it at 1: nobody says how that flows back. */
static val updated(net *x, val a, val b) {
  attr_record axis = {0};
  attr_put_int(&axis, 0);
  val in[3] = {a, b, ops_const(x->g, HP_I32, 1)};
  return ops_add(x->g, OP_UPDATE, in, 3, &axis);
}

TEST(an_op_without_a_gradient_is_refused_by_name_instead_of_giving_zero) {
  net x;
  val grad[LEAVES];
  int64_t all = 0;
  net_begin(&x, 8);
  val a = leaf(&x, 1, (int64_t[]){4}, 1), b = leaf(&x, 1, (int64_t[]){2}, 1), c = scalar(&x, 1);
  val loss = ops_binary(x.g, OP_MUL, ops_sum(x.g, updated(&x, a, b), &all, 1, false), c);
  CHECK_OK(pass_autodiff(x.g, loss, &c, 1, grad)); /* nothing needs it */
  x.g->loc = graph_string(x.g, "model.cache");
  val other = ops_sum(x.g, updated(&x, a, b), &all, 1, false);
  CHECK_FAILS(pass_autodiff(x.g, other, &a, 1, grad), "update \"model.cache\"");
  net_end(&x);
}

static val rotated(net *x, val v, val cos, val sin) {
  attr_record a = {0};
  attr_put_int(&a, 0);
  attr_put_int(&a, 0);
  val at = ops_broadcast(x->g, ops_const(x->g, HP_I32, 0), (int64_t[]){1, 1}, 2);
  val y = ops_add(x->g, OP_ROPE, (val[]){v, cos, sin, at}, 4, &a);
  return ops_sum(x->g, y, (int64_t[]){0, 1, 2, 3}, 4, false);
}

TEST(an_operand_without_a_gradient_is_refused_by_its_number) {
  net x;
  val grad[LEAVES];
  net_begin(&x, 8);
  val v = leaf(&x, 4, (int64_t[]){1, 1, 1, 2}, 1);
  val cos = leaf(&x, 2, (int64_t[]){1, 1}, 1), sin = leaf(&x, 2, (int64_t[]){1, 1}, 1);
  val loss = rotated(&x, v, cos, sin);
  CHECK_OK(pass_autodiff(x.g, loss, &v, 1, grad));
  CHECK_FAILS(pass_autodiff(x.g, loss, &sin, 1, grad), "for operand 2");
  net_end(&x);
}

/* d(x s)/dx with s = stop_gradient(x x) is x x, not 3 x x, and nothing is computed for the rest. */
TEST(no_gradient_goes_through_stop_gradient) {
  net x;
  val grad;
  net_begin(&x, 1);
  val p = scalar(&x, 2), square = ops_binary(x.g, OP_MUL, p, p);
  val y = ops_binary(x.g, OP_MUL, p, ops_unary(x.g, OP_STOP_GRADIENT, square));
  size_t before = x.g->nodes.len;
  CHECK_OK(pass_autodiff(x.g, y, &p, 1, &grad));
  CHECK_EQ(x.g->nodes.len - before, 3); /* 1, and both gradients of the product */
  double v = numbers(&x, p)[0];
  CHECK_NEAR(number(&x, grad), v * v, 1e-12);
  net_end(&x);
}

TEST(the_gradient_of_what_stop_gradient_alone_reaches_is_zero) {
  net x;
  val grad;
  net_begin(&x, 1);
  val p = scalar(&x, 2), y = ops_unary(x.g, OP_STOP_GRADIENT, ops_binary(x.g, OP_MUL, p, p));
  CHECK_OK(pass_autodiff(x.g, y, &p, 1, &grad));
  CHECK_EQ(number(&x, grad), 0);
  net_end(&x);
}
