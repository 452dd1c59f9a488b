/* Uneven dims.  Padding by brute force: for every row of the op table, operands are made longer in
 * every way that layouts by chance ask for, inputs with NaN in what is added, and the results must
 * begin with those of the op on the true sizes. */
#include "ops/shard_case.h"
#include "shard/shard_pad.h"
#include "shard/layout_text.h"
#include "shard/slices.h"
#include "test.h"

#include <math.h>
#include <stdlib.h>

enum { TRIES = 60, FEW_TRIES = 30 };

typedef struct {
  grid_graph x; /* one node on leaves */
  const ir_node *node;
  ref_run global, longer;
  mesh m;
  uint64_t seed;
  padded p;
} trial;

static bool declared(const void *model, const char *name, const ir_value *type, layout *out) {
  const trial *t = model;
  rng r = {.seed = t->seed * 64 + (uint64_t)atoi(name + strcspn(name, "0123456789"))};
  *out = (layout){.rank = type->rank};
  for (int a = 0; a < t->m.axes; a++) {
    if (!type->rank || rng_chance(&r, 30)) continue;
    layout_append(out, rng_below(&r, type->rank), a);
  }
  for (int d = 0; d < type->rank; d++)
    if (out->n[d] && rng_chance(&r, 30))
      out->shard_size[d] =
          (int32_t)layout_shard_size(&t->m, out, d, type->dim[d]) + rng_below(&r, 4);
  return true;
}

/* Flat index in `global` of element k of the longer tensor; -1: it is padding. */
static int64_t global_index(const ref_tensor *global, const ref_tensor *longer, int64_t k) {
  int64_t index[HP_MAX_RANK];
  ref_unflatten(longer, k, index);
  for (int d = 0; d < global->rank; d++)
    if (index[d] >= global->dim[d]) return -1;
  return ref_flatten(global, index);
}

static void give_leaf(trial *t, val old, bool is_param) {
  const ref_tensor *global = &t->global.value[old];
  ref_tensor *x = ref_make(&t->longer, t->p.of[old]);
  for (int64_t k = 0; k < x->n; k++) {
    int64_t e = global_index(global, x, k);
    if (e >= 0) ref_copy(x, k, global, e);
    else if (!is_param && x->f) x->f[k] = NAN;
    else if (!is_param) x->i[k] = 1;
  }
}

static void run_longer(trial *t) {
  const hp_graph *g = t->p.graph;
  ref_begin(&t->longer, g, true);
  for (int i = 0; i < t->x.leaves; i++) {
    val old = t->x.leaf[i].v;
    give_leaf(t, old, graph_def(t->x.g, old)->op == OP_PARAM);
  }
  for (uint32_t i = 0; i < g->nodes.len; i++) {
    const ir_node *n = graph_node(g, i);
    if (n->n_out && n->op != OP_INPUT && n->op != OP_PARAM) ref_step(&t->longer, i);
  }
}

static void fail_trial(const trial *t, const char *why) {
  char *text;
  CHECK_OK(hp_graph_print(t->p.graph, &text));
  test_fail(__FILE__, __LINE__, "%s, seed %llu: %s\n%s", op_table[t->node->op].name,
            (unsigned long long)t->seed, why, text);
}

static void check_results(const trial *t) {
  char why[200];
  for (int o = 0; o < t->node->n_out; o++) {
    const ref_tensor *global = &t->global.value[t->node->out0 + (val)o];
    const ref_tensor *longer = &t->longer.value[t->p.of[t->node->out0 + (val)o]];
    for (int64_t k = 0; k < longer->n; k++) {
      int64_t e = global_index(global, longer, k);
      if (e < 0) continue;
      double want = global->f ? global->f[e] : (double)global->i[e];
      double got = longer->f ? longer->f[k] : (double)longer->i[k];
      if (fabs(got - want) <= 1e-9 * (1 + fabs(want)) || (isinf(want) && got == want)) continue;
      snprintf(why, sizeof why, "result %d, element %lld is %.12g, want %.12g", o, (long long)e,
               got, want);
      fail_trial(t, why);
    }
  }
}

static int padded_graphs;
static uint64_t tries;

static void try_once(trial *t) {
  shard_plan plan = {.mesh = &t->m, .declared = declared, .model = t};
  CHECK_OK(shard_pad(t->x.g, &plan, &t->p));
  if (!t->p.graph) return;
  padded_graphs++;
  CHECK_OK(ops_verify(t->p.graph));
  run_longer(t);
  check_results(t);
  ref_end(&t->longer);
  padded_free(&t->p);
}

static void try_case(const grid_row *row, const char *line) {
  trial *t = calloc(1, sizeof *t);
  HP_ASSERT(t);
  t->node = shard_case(row, line, &t->x, &t->global);
  CHECK_OK(
      mesh_init((int64_t[]){5, 7, 3}, (const char *const[]){"a", "b", "c"}, 3, NULL, 0, &t->m));
  for (t->seed = 0; t->seed < tries; t->seed++) try_once(t);
  mesh_free(&t->m);
  ref_end(&t->global);
  grid_graph_free(&t->x);
  free(t);
}

static void try_row(const grid_row *row, uint64_t times) {
  if (!*row->cases) return;
  tries = times;
  grid_each_case(row, try_case);
  CHECK(padded_graphs > 0);
}

#define OP(id, name, ...)                                                                          \
  static void test_pad_##id(void) { try_row(&shard_rows[OP_##id], FEW_TRIES); }                    \
  static void torture_pad_##id(void) { try_row(&shard_rows[OP_##id], TRIES); }                     \
  __attribute__((constructor)) static void register_pad_##id(void) {                               \
    test_register(__FILE__, "pad_" name, test_pad_##id);                                           \
    test_register(__FILE__, "torture_pad_" name, torture_pad_##id);                                \
  }
#include "ir/ops.def"
#undef OP

/* --- shared work ------------------------------------------------------------------------------ */

typedef struct {
  const char *what, *graph;
  struct {
    const char *name, *entries;
  } leaf[4];
  const char *absent[3]; /* what a device's graph must not do: the dim would be replicated */
} shared_case;

static const shared_case shared_cases[] = {
    {"heads that are cut otherwise than in groups",
     "%1:f32[1,128,9,64] = input {name=\"q\", dtype=f32, shape=[1,128,9,64]}\n"
     "%2:f32[1,128,3,64] = input {name=\"k\", dtype=f32, shape=[1,128,3,64]}\n"
     "%3:f32[1,128,9,64], %4:f32[1,9,128] = attention %1, %2, %2 {scale=0.5, causal=1, window=0, "
     "dropout=0.0, stream=0}\n"
     "output %3 {name=\"o\"}\n",
     {{"q", "(None,None,c,None)"}},
     {"f32[1,10,128] = attention", "f32[1,9,128] = attention", "all_gather"}},
    {"heads that are cut in groups",
     "%1:f32[1,128,6,64] = input {name=\"q\", dtype=f32, shape=[1,128,6,64]}\n"
     "%2:f32[1,128,3,64] = input {name=\"k\", dtype=f32, shape=[1,128,3,64]}\n"
     "%3:f32[1,128,6,64], %4:f32[1,6,128] = attention %1, %2, %2 {scale=0.5, causal=1, window=0, "
     "dropout=0.0, stream=0}\n"
     "output %3 {name=\"o\"}\n",
     {{"q", "(None,None,c,None)"}},
     {"broadcast", "f32[1,10,128] = attention", "all_gather"}},
    {"a norm counts the elements that are there",
     "%1:f32[4,11] = input {name=\"x\", dtype=f32, shape=[4,11]}\n"
     "%2:f32[11] = param {name=\"w\", dtype=f32, shape=[11]}\n"
     "%3:f32[4,11] = rms_norm %1, %2 {eps=0.1}\n"
     "output %3 {name=\"y\"}\n",
     {{"x", "(None,c)"}, {"w", "(c)"}},
     {"all_gather", "slice", "pad"}},
    {"classes that are cut are not gathered",
     "%1:f32[4,6] = input {name=\"x\", dtype=f32, shape=[4,6]}\n"
     "%2:f32[11,6] = param {name=\"w\", dtype=f32, shape=[11,6]}\n"
     "%3:i32[4] = input {name=\"y\", dtype=i32, shape=[4]}\n"
     "%4:f32[4,11] = einsum %1, %2 {eq=\"bc,vc->bv\", dtype=f32}\n"
     "%5:f32[4], %6:f32[4] = cross_entropy %4, %3 {ignore=-100}\n"
     "output %5 {name=\"loss\"}\n",
     {{"w", "(c,None)"}},
     {"all_gather", "slice", "pad"}},
    {"a gradient by rows is made in the shards of its param",
     "%1:f32[11,6] = param {name=\"w\", dtype=f32, shape=[11,6]}\n"
     "%2:f32[4,6] = input {name=\"dy\", dtype=f32, shape=[4,6]}\n"
     "%3:i32[4] = input {name=\"ids\", dtype=i32, shape=[4]}\n"
     "%4:f32[11,6] = embedding_grad %2, %3 {rows=11}\n"
     "%5:f32[11,6] = sub %1, %4\n"
     "assign %1, %5\n",
     {{"w", "(c,None)"}},
     {"all_gather", "f32[11,", "f32[15,"}},
};

static bool case_layout(const void *model, const char *name, const ir_value *type, layout *out) {
  const shared_case *c = model;
  mesh m;
  (void)type;
  CHECK_OK(mesh_init(&(int64_t){5}, &(const char *){"c"}, 1, NULL, 0, &m));
  for (int i = 0; i < 4 && c->leaf[i].name; i++) {
    if (strcmp(c->leaf[i].name, name)) continue;
    CHECK_OK(layout_parse_on(c->leaf[i].entries, &m, out));
    mesh_free(&m);
    return true;
  }
  mesh_free(&m);
  return false;
}

TEST(uneven_dims_share_the_work) {
  mesh m;
  cluster cost;
  CHECK_OK(cluster_load("this", &cost));
  CHECK_OK(mesh_init(&(int64_t){5}, &(const char *){"c"}, 1, NULL, 0, &m));
  for (size_t i = 0; i < sizeof shared_cases / sizeof *shared_cases; i++) {
    const shared_case *c = &shared_cases[i];
    shard_plan plan = {.mesh = &m, .cluster = &cost, .declared = case_layout, .model = c};
    hp_graph *g;
    sharded s;
    char *text;
    CHECK_OK(hp_graph_parse(c->graph, c->what, &g));
    CHECK_OK(shard_graph(g, &plan, &s));
    CHECK(s.padded_work < 0.5);
    CHECK_OK(hp_graph_print(s.graph, &text));
    for (int k = 0; k < 3 && c->absent[k]; k++)
      if (strstr(text, c->absent[k]))
        test_fail(__FILE__, __LINE__, "%s: has \"%s\"\n%s", c->what, c->absent[k], text);
    hp_free(text);
    sharded_free(&s);
    graph_free(g);
  }
  mesh_free(&m);
}
