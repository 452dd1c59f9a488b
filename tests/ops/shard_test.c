/* Layout rules by brute force: for every row of the op table, operands lie on a mesh in every way
 * that chance finds, with partial reductions split unevenly; each device computes on its shard, its
 * reductions are carried out, and the shards must be those of the global result. */
#include "ops/shard_case.h"
#include "shard/layout_text.h"
#include "shard/rule_node.h"
#include "shard/slices.h"
#include "test.h"

#include <math.h>
#include <stdlib.h>

enum {
#define SHARD(id, ...) TRIED_##id,
#include "ops/shard.def"
#undef SHARD
#define GRID(id, ...)
#define GRID1(id, ...) TRIED_##id,
#include "ops/grid.def"
#undef GRID
#define OP(id, ...) CHECKED_##id = TRIED_##id,
#include "ir/ops.def"
#undef OP
};

enum { TRIES = 80, FEW_TRIES = 40, DEVICES_MAX = 8, OPERANDS_MAX = 8 };

typedef struct {
  const mesh *m;
  grid_graph x; /* one node on leaves */
  const ir_node *node;
  ref_run global;
  rule rule;
  layout in[OPERANDS_MAX], need[OPERANDS_MAX], out[OPS_OUT_MAX];
  ref_run shard[DEVICES_MAX];
  hp_graph *local;
  val result; /* the node's first, of the global graph and of the shards alike */
} trial;

/* --- layouts by chance ------------------------------------------------------------------------ */

static void choose_layouts(trial *t, rng *r) {
  static const partial_op ops[] = {PARTIAL_SUM, PARTIAL_SUM, PARTIAL_AVG, PARTIAL_MAX};
  partial_op op = ops[rng_below(r, 4)]; /* of different ones the order would matter */
  for (int i = 0; i < t->x.leaves; i++)
    t->in[i] = (layout){.rank = graph_value(t->x.g, t->x.leaf[i].v)->rank};
  for (int a = 0; a < t->m->axes; a++) {
    int i = rng_below(r, t->x.leaves);
    layout *l = &t->in[i];
    if (rng_chance(r, 65) && l->rank) {
      int d = rng_below(r, l->rank);
      int64_t shards = layout_shard_count(t->m, l, d) * t->m->size[a];
      if (graph_value(t->x.g, t->x.leaf[i].v)->dim[d] % shards == 0) layout_append(l, d, a);
      continue;
    }
    bool all = rng_chance(r, 40);
    for (int k = 0; k < t->x.leaves; k++) {
      bool is_float = dtype_is_float(graph_value(t->x.g, t->x.leaf[k].v)->dtype);
      if ((all || k == i) && is_float) t->in[k].partial[a] = (uint8_t)op;
    }
  }
}

/* --- shards ----------------------------------------------------------------------------------- */

/* A number that depends on all of its arguments, in [0, 1). */
static double chance(int64_t a, int64_t b, int64_t c) {
  rng r = {.seed = (uint64_t)(a * 1000003 + b * 10007 + c)};
  return rng_unit(&r);
}

/* What device `position` holds of element x: the reduction over the axis gives x again. */
static double split(const trial *t, const layout *l, int64_t position, int64_t element, double x) {
  for (int a = 0; a < t->m->axes; a++) {
    if (!l->partial[a]) continue;
    int64_t n = t->m->size[a], c = mesh_coordinate(t->m, position, a);
    double mean = 0, mine = chance(element, a, c);
    for (int64_t k = 0; k < n; k++) mean += chance(element, a, k) / (double)n;
    if (l->partial[a] == PARTIAL_SUM)
      x = x * (double)(c + 1) * 2 / (double)(n * (n + 1)) + mine - mean;
    if (l->partial[a] == PARTIAL_AVG) x += mine - mean;
    if (l->partial[a] == PARTIAL_MAX && c != (element + a) % n) x -= 5 * mine + 0.1;
  }
  return x;
}

static void shard_dims(const mesh *m, const layout *l, const ref_tensor *global, int64_t *dim) {
  for (int d = 0; d < l->rank; d++) dim[d] = layout_shard_size(m, l, d, global->dim[d]);
}

/* The elements of a device's shard, as they stand in the global tensor. */
static ref_walk walk_shard(const trial *t, const layout *l, const ref_tensor *global,
                           const ref_tensor *shard, int64_t position) {
  ref_walk w = {.shape = shard};
  int64_t step = 1;
  for (int d = l->rank - 1; d >= 0; d--) {
    w.at += step * layout_shard_index(t->m, l, d, position) * shard->dim[d];
    w.step[d] = step;
    step *= global->dim[d];
  }
  return w;
}

/* Is operand i a seed whose shard names the rows that it draws for? */
static bool places_rows(const trial *t, int i) {
  bool attends = t->node->op == OP_ATTENTION || t->node->op == OP_ATTENTION_GRAD;
  return attends && attr_float(t->x.g, t->node, "dropout") > 0 && i == t->x.leaves - 1;
}

/* The seed, the number of the shard's first row, and how many a sequence has. */
static void place_rows(const trial *t, int64_t position, int64_t seed, int64_t *out) {
  const int64_t *dim = t->global.value[t->x.leaf[0].v].dim;
  int64_t start[HP_MAX_RANK], stop[HP_MAX_RANK];
  layout_slice(t->m, &t->need[0], dim, position, start, stop);
  out[0] = seed;
  out[1] = (start[0] * dim[2] + start[2]) * dim[1];
  out[2] = dim[2] * dim[1];
}

/* The node on leaves of the shapes of shards; leaves get the ids that they have in the global
 * graph. */
static bool make_local(trial *t) {
  val in[OPERANDS_MAX];
  CHECK_OK(graph_create(t->x.g, &t->local));
  for (int i = 0; i < t->x.leaves; i++) {
    const ref_tensor *global = &t->global.value[t->x.leaf[i].v];
    int64_t dim[HP_MAX_RANK];
    char name[8];
    snprintf(name, sizeof name, "x%d", i);
    shard_dims(t->m, &t->need[i], global, dim);
    bool placed = places_rows(t, i);
    if (placed) dim[0] = 3;
    in[i] = ops_leaf(t->local, OP_INPUT, name, global->type, dim, placed ? 1 : global->rank);
  }
  ir_value shard = *graph_value(t->x.g, t->node->out0);
  shard_dims(t->m, &t->out[0], &t->global.value[t->node->out0], shard.dim);
  attr_record a = rule_local_attrs(t->x.g, t->node, &shard);
  t->result = ops_add(t->local, t->node->op, in, t->x.leaves, &a);
  if (t->result) return true;
  printf("%s\n", err_message());
  return false;
}

/* Index x, held by operand i, as one of the device's shard of the dim that it counts along. */
static int64_t located(const trial *t, int i, int64_t position, int64_t x) {
  for (int f = 0; f < t->rule.factors; f++) {
    int d, tensor = rule_find(&t->rule, f, &d);
    if (t->rule.factor[f].index != i + 1 || tensor < 0) continue;
    const layout *l = tensor < t->rule.n_in ? &t->need[tensor] : &t->out[tensor - t->rule.n_in];
    int64_t size = layout_shard_size(t->m, l, d, t->rule.factor[f].size);
    x -= layout_shard_index(t->m, l, d, position) * size;
    return x >= 0 && x < size ? x : ID_ELSEWHERE;
  }
  return x;
}

static void run_part(trial *t, int64_t position) {
  ref_run *r = &t->shard[position];
  ref_begin(r, t->local, true);
  for (int i = 0; i < t->x.leaves; i++) {
    const ref_tensor *global = &t->global.value[t->x.leaf[i].v];
    val v = (val)i + 1;
    size_t bytes = (size_t)value_bytes(graph_value(t->local, v)) + 8;
    void *zeros = calloc(bytes, 1);
    HP_ASSERT(zeros);
    ref_set(r, v, zeros);
    free(zeros);
    ref_tensor *shard = &r->value[v];
    if (places_rows(t, i)) {
      place_rows(t, position, global->i[0], shard->i);
      continue;
    }
    ref_walk w = walk_shard(t, &t->need[i], global, shard, position);
    for (int64_t k = 0; k < shard->n; k++, ref_walk_next(&w)) {
      int64_t e = w.at;
      if (shard->f) shard->f[k] = split(t, &t->need[i], position, e, global->f[e]);
      else shard->i[k] = located(t, i, position, global->i[e]);
    }
  }
  ref_eval(r);
}

/* --- results ---------------------------------------------------------------------------------- */

/* The devices that reduce a result with each other, and how. */
typedef struct {
  int64_t device[DEVICES_MAX], n;
  double averaged;
  bool is_max;
} reducers;

static reducers reducers_of(const trial *t, const layout *l, int64_t position) {
  reducers r = {.n = 1, .averaged = 1};
  uint8_t axis[LAYOUT_AXES];
  int n = 0;
  for (int a = 0; a < t->m->axes; a++) {
    if (!l->partial[a]) continue;
    axis[n++] = (uint8_t)a;
    r.n *= t->m->size[a];
    if (l->partial[a] == PARTIAL_AVG) r.averaged *= (double)t->m->size[a];
    r.is_max |= l->partial[a] == PARTIAL_MAX;
  }
  mesh_get_ranks(t->m, position, axis, n, r.device);
  return r;
}

/* Element k of a shard of v after that. */
static double reduced(const trial *t, const reducers *r, val v, int64_t k) {
  double sum = 0, most = -INFINITY;
  for (int64_t i = 0; i < r->n; i++) {
    const ref_tensor *shard = &t->shard[r->device[i]].value[v];
    double x = shard->f ? shard->f[k] : (double)shard->i[k];
    sum += x;
    most = fmax(most, x);
  }
  return r->is_max ? most : sum / r->averaged;
}

static void fail_trial(const trial *t, const char *why) {
  str text = {0};
  mesh_print(t->m, &text);
  for (int i = 0; i < t->x.leaves; i++) {
    str_add(&text, i ? " ; " : " ");
    layout_print_on(t->m, &t->need[i], &text);
  }
  for (int o = 0; o < t->node->n_out; o++) {
    str_add(&text, o ? " ; " : " -> ");
    layout_print_on(t->m, &t->out[o], &text);
  }
  test_fail(__FILE__, __LINE__, "%s on %s: %s", op_table[t->node->op].name, text.at, why);
}

static void check_results(const trial *t) {
  char why[200];
  for (int o = 0; o < t->node->n_out; o++) {
    const ref_tensor *global = &t->global.value[t->node->out0 + (val)o];
    for (int64_t p = 0; p < t->m->devices; p++) {
      const ref_tensor *shard = &t->shard[p].value[t->result + (val)o];
      const reducers with = reducers_of(t, &t->out[o], p);
      ref_walk w = walk_shard(t, &t->out[o], global, shard, p);
      for (int64_t k = 0; k < shard->n; k++, ref_walk_next(&w)) {
        int64_t e = w.at;
        double want = global->f ? global->f[e] : (double)global->i[e];
        double got = reduced(t, &with, t->result + (val)o, k);
        if (fabs(got - want) <= 1e-9 * (1 + fabs(want)) || (isinf(want) && got == want)) continue;
        snprintf(why, sizeof why, "result %d, device %lld, element %lld is %.12g, want %.12g", o,
                 (long long)p, (long long)k, got, want);
        fail_trial(t, why);
      }
    }
  }
}

/* --- trials ----------------------------------------------------------------------------------- */

static bool does_something(const trial *t) {
  for (int i = 0; i < t->x.leaves; i++) {
    for (int d = 0; d < t->need[i].rank; d++)
      if (t->need[i].n[d]) return true;
    for (int a = 0; a < t->m->axes; a++)
      if (t->need[i].partial[a]) return true;
  }
  return false;
}

/* A dim that only results have may be cut by an axis that no operand uses. */
static void give_cuts(trial *t, rng *r) {
  for (int f = 0; f < t->rule.factors; f++) {
    int d;
    t->rule.factor[f].n = 0;
    if (!t->rule.factor[f].index || rule_find(&t->rule, f, &d) < t->rule.n_in) continue;
    for (int a = 0; a < t->m->axes && !t->rule.factor[f].n; a++) {
      bool open = rng_chance(r, 60) && t->rule.factor[f].size % t->m->size[a] == 0;
      for (int i = 0; i < t->x.leaves; i++) open &= layout_is_free(&t->in[i], a);
      if (open) t->rule.factor[f].axis[t->rule.factor[f].n++] = (uint8_t)a;
    }
  }
}

/* True when the layouts were accepted and say something. */
static bool try_once(trial *t, rng *r) {
  choose_layouts(t, r);
  memset(t->need, 0, sizeof t->need);
  give_cuts(t, r);
  if (rule_derive(t->m, &t->rule, t->in, t->need, t->out)) {
    err_clear();
    return false;
  }
  if (!make_local(t)) fail_trial(t, "the shard's node does not build");
  for (int64_t p = 0; p < t->m->devices; p++) run_part(t, p);
  check_results(t);
  for (int64_t p = 0; p < t->m->devices; p++) ref_end(&t->shard[p]);
  graph_free(t->local);
  return does_something(t);
}

static int accepted, tries;

static void try_mesh(trial *t, const int64_t *size, int axes) {
  static const char *const name[] = {"a", "b", "c"};
  mesh m;
  rng r = {.seed = 31 * (uint64_t)t->node->op + (uint64_t)axes};
  CHECK_OK(mesh_init(size, name, axes, NULL, 0, &m));
  t->m = &m;
  for (int i = 0; i < tries; i++) accepted += try_once(t, &r);
  mesh_free(&m);
}

static void try_case(const grid_row *row, const char *line) {
  trial *t = calloc(1, sizeof *t);
  HP_ASSERT(t);
  t->node = shard_case(row, line, &t->x, &t->global);
  CHECK_OK(rule_of_node(t->x.g, t->node, &t->rule));
  try_mesh(t, (int64_t[]){2}, 1);
  try_mesh(t, (int64_t[]){4}, 1);
  try_mesh(t, (int64_t[]){2, 2}, 2);
  try_mesh(t, (int64_t[]){2, 3}, 2);
  try_mesh(t, (int64_t[]){2, 2, 2}, 3);
  ref_end(&t->global);
  grid_graph_free(&t->x);
  free(t);
}

/* Rows that nothing may be cut of. */
static bool is_replicated(const grid_row *row) {
  return !strcmp(op_table[row->op].rule, "=replicated");
}

static void try_row(const grid_row *row, int times) {
  if (!*row->cases) return;
  tries = times;
  grid_each_case(row, try_case);
  if (!accepted != is_replicated(row))
    test_fail(__FILE__, __LINE__, "%d trials accepted", accepted);
}

#define OP(id, name, ...)                                                                          \
  static void test_shard_##id(void) { try_row(&shard_rows[OP_##id], FEW_TRIES); }                  \
  static void torture_shard_##id(void) { try_row(&shard_rows[OP_##id], TRIES); }                   \
  __attribute__((constructor)) static void register_shard_##id(void) {                             \
    test_register(__FILE__, "shard_" name, test_shard_##id);                                       \
    test_register(__FILE__, "torture_shard_" name, torture_shard_##id);                            \
  }
#include "ir/ops.def"
#undef OP
