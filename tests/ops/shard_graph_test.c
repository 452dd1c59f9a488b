/* Whole graphs on meshes: random graphs, forward and backward, with inputs and params laid out by
 * chance; every device's graph is evaluated in step with the others, collectives from the shards of
 * their ranks alone, and each shard of every output and param must be that of the global tensor.
 * Dims are cut unevenly too; what stands in the padding of inputs must not be seen anywhere. */
#include "ops/random_graph.h"
#include "shard/shard.h"
#include "shard/layout_text.h"
#include "shard/slices.h"
#include "test.h"

#include <math.h>
#include <stdlib.h>

enum { DEVICES_MAX = 8 };

typedef struct {
  random_graph x;
  ref_run global;
  mesh m;
  sharded s;
  ref_run shard[DEVICES_MAX];
  int64_t collectives, cut, padded;
} trial;

/* --- layouts by chance ------------------------------------------------------------------------ */

static bool declared(const void *model, const char *name, const ir_value *type, layout *out) {
  const trial *t = model;
  rng r = {.seed = t->x.r.seed * 77 + (uint64_t)(name[0] * 131 + atoi(name + 1))};
  *out = (layout){.rank = type->rank};
  for (int a = 0; a < t->m.axes; a++) {
    if (!type->rank || rng_chance(&r, 30)) continue;
    int d = rng_below(&r, type->rank);
    bool even = type->dim[d] % (layout_shard_count(&t->m, out, d) * t->m.size[a]) == 0;
    if (even || rng_chance(&r, 60)) layout_append(out, d, a);
  }
  for (int d = 0; d < type->rank; d++) /* in multiples of a unit */
    if (out->n[d] && rng_chance(&r, 20)) {
      int64_t unit = 1 + rng_below(&r, 3), shard = layout_shard_size(&t->m, out, d, type->dim[d]);
      out->shard_size[d] = (int32_t)((shard + unit - 1) / unit * unit);
    }
  return rng_chance(&r, 90);
}

/* --- devices in step -------------------------------------------------------------------------- */

/* Flat index in `to` of the element of `from` at k, when dim `d` starts at `at` in to (from's
 * shard) or in from (to's shard). */
static int64_t shifted(const ref_tensor *from, const ref_tensor *to, int64_t k, int d, int64_t at) {
  int64_t index[HP_MAX_RANK];
  ref_unflatten(from, k, index);
  index[d] += at;
  return ref_flatten(to, index);
}

static int64_t group_of(const trial *t, const ir_node *n, const char *key, int64_t position,
                        int64_t *group, int64_t *place) {
  int64_t axes[ATTR_LIST_MAX];
  uint8_t axis[LAYOUT_AXES];
  int count = attr_list(t->s.graph, n, key, axes);
  int64_t size = attr_int(t->s.graph, n, "n");
  for (int i = 0; i < count; i++) axis[i] = (uint8_t)axes[i];
  mesh_get_ranks(&t->m, position, axis, count, group);
  for (*place = 0; group[*place] != position; ++*place) {}
  return size;
}

static double number(const ref_tensor *x, int64_t k) { return x->f ? x->f[k] : (double)x->i[k]; }
static void set_number(ref_tensor *x, int64_t k, double v) {
  if (x->f) x->f[k] = v;
  else x->i[k] = (int64_t)v;
}

/* Element k of the group's values, reduced. */
static double reduce(const trial *t, val v, const int64_t *group, int64_t n, int64_t k, int op) {
  double y = number(&t->shard[group[0]].value[v], k);
  for (int64_t i = 1; i < n; i++) {
    double x = number(&t->shard[group[i]].value[v], k);
    y = op == PARTIAL_MAX ? fmax(y, x) : y + x;
  }
  return op == PARTIAL_AVG ? y / (double)n : y;
}

static void collective(trial *t, const ir_node *n, int64_t position) {
  const hp_graph *g = t->s.graph;
  int64_t group[DEVICES_MAX], cut[DEVICES_MAX], place, cut_place = 0;
  val v = graph_in(g, n)[0];
  int64_t size = group_of(t, n, "axes", position, group, &place);
  const ref_tensor *x = &t->shard[position].value[v];
  ref_tensor *y = ref_make(&t->shard[position], n->out0);
  x = &t->shard[position].value[v]; /* room may have moved */
  bool has_dim = n->op != OP_ALL_REDUCE && n->op != OP_DROP && n->op != OP_LOCATE;
  int d = has_dim ? (int)attr_int(g, n, "dim") : 0;
  int to = n->op == OP_ALL_TO_ALL ? (int)attr_int(g, n, "to") : 0;
  if (n->op == OP_ALL_TO_ALL) group_of(t, n, "cut", position, cut, &cut_place);
  for (int64_t k = 0; k < y->n; k++) {
    int64_t index[HP_MAX_RANK];
    if (n->op == OP_LOCAL_SHARD) {
      ref_copy(y, k, x, shifted(y, x, k, d, place * y->dim[d]));
    } else if (n->op == OP_ALL_REDUCE) {
      set_number(y, k, reduce(t, v, group, size, k, (int)attr_int(g, n, "op")));
    } else if (n->op == OP_REDUCE_SCATTER) {
      int64_t at = shifted(y, x, k, d, place * y->dim[d]);
      set_number(y, k, reduce(t, v, group, size, at, (int)attr_int(g, n, "op")));
    } else if (n->op == OP_LOCATE) {
      int64_t shard = attr_int(g, n, "size"), at = x->i[k] - place * shard;
      y->i[k] = x->i[k] < 0 ? x->i[k] : at >= 0 && at < shard ? at : ID_ELSEWHERE;
    } else if (n->op == OP_DROP) {
      int op = (int)attr_int(g, n, "op");
      set_number(y, k, place && op == PARTIAL_SUM ? 0 : number(x, k));
    } else { /* joined along d; of an all_to_all only this device's shard along `to` */
      ref_unflatten(y, k, index);
      int64_t from = index[d] / x->dim[d];
      index[d] %= x->dim[d];
      if (n->op == OP_ALL_TO_ALL) index[to] += cut_place * y->dim[to];
      const ref_tensor *theirs = &t->shard[group[from]].value[v];
      ref_copy(y, k, theirs, ref_flatten(theirs, index));
    }
  }
}

static bool is_collective(const ir_node *n) { return op_flags((op_id)n->op) & OPF_COLLECTIVE; }

/* Flat index in the global tensor of element k of the shard; -1: it is padding. */
static int64_t global_index(const trial *t, const layout *l, const ref_tensor *global,
                            const ref_tensor *shard, int64_t position, int64_t k) {
  int64_t index[HP_MAX_RANK];
  ref_unflatten(shard, k, index);
  for (int d = 0; d < l->rank; d++) {
    index[d] += layout_shard_index(&t->m, l, d, position) * shard->dim[d];
    if (index[d] >= global->dim[d]) return -1;
  }
  return ref_flatten(global, index);
}

static val find_leaf(const trial *t, const char *name) {
  for (int i = 0; i < t->x.leaves; i++)
    if (!strcmp(t->x.leaf[i].name, name)) return t->x.leaf[i].v;
  HP_ASSERT(false);
}

static void give_leaf(trial *t, const ir_node *n, int64_t position) {
  val old = find_leaf(t, attr_str(t->s.graph, n, "name"));
  const ref_tensor *global = &t->global.value[old];
  ref_tensor *shard = ref_make(&t->shard[position], n->out0);
  for (int64_t k = 0; k < shard->n; k++) {
    int64_t e = global_index(t, &t->s.of[old], global, shard, position, k);
    if (e >= 0) ref_copy(shard, k, global, e);
    else if (n->op == OP_INPUT) set_number(shard, k, shard->f ? NAN : 77);
    t->padded += e < 0;
  }
  for (int d = 0; d < shard->rank; d++) t->cut += shard->dim[d] != global->dim[d];
}

static void run_devices(trial *t) {
  for (int64_t p = 0; p < t->m.devices; p++) ref_begin(&t->shard[p], t->s.graph, true);
  for (uint32_t i = 0; i < t->s.graph->nodes.len; i++) {
    const ir_node *n = graph_node(t->s.graph, i);
    t->collectives += is_collective(n);
    for (int64_t p = 0; p < t->m.devices; p++) {
      if (!n->n_out) continue;
      if (n->op == OP_INPUT || n->op == OP_PARAM) give_leaf(t, n, p);
      else if (is_collective(n)) collective(t, n, p);
      else ref_step(&t->shard[p], i);
    }
  }
}

/* --- comparing -------------------------------------------------------------------------------- */

static void fail_with_graphs(const trial *t, const char *what) {
  char *a, *b;
  CHECK_OK(hp_graph_print(t->x.g, &a));
  CHECK_OK(hp_graph_print(t->s.graph, &b));
  test_fail(__FILE__, __LINE__, "seed %llu: %s\n%s\n%s", (unsigned long long)t->x.r.seed, what, a,
            b);
}

/* Value `local` of every device against the global `old`, lying as l says; the padding of params
 * must be 0. */
static void check_value(const trial *t, const char *name, val old, val local, const layout *l,
                        bool is_param) {
  const ref_tensor *global = &t->global.value[old], *rough = &t->x.ref.value[old];
  char what[200];
  for (int64_t p = 0; p < t->m.devices; p++) {
    const ref_tensor *shard = &t->shard[p].value[local];
    for (int64_t k = 0; k < shard->n; k++) {
      int64_t e = global_index(t, l, global, shard, p, k);
      double want = e < 0 ? 0 : number(global, e), got = number(shard, k);
      if (e < 0 && (!is_param || got == 0)) continue;
      if (e >= 0 && rough->e[e] == INFINITY) continue;
      if (fabs(got - want) <= 1e-8 * (1 + fabs(want))) continue;
      if (isnan(got) == isnan(want) && !isfinite(want)) continue;
      snprintf(what, sizeof what, "%s: device %lld, element %lld is %.12g, want %.12g", name,
               (long long)p, (long long)k, got, want);
      fail_with_graphs(t, what);
    }
  }
}

static val output_of(const hp_graph *g, const char *name) {
  for (size_t i = 0; i < g->nodes.len; i++) {
    const ir_node *n = graph_node(g, (uint32_t)i);
    if (n->op == OP_OUTPUT && !strcmp(attr_str(g, n, "name"), name)) return graph_in(g, n)[0];
  }
  HP_ASSERT(false);
}

static void check_effects(const trial *t) {
  const hp_graph *g = t->s.graph;
  for (int i = 0; i < t->x.outputs; i++) {
    val old = t->x.output[i].v;
    check_value(t, t->x.output[i].name, old, output_of(g, t->x.output[i].name), &t->s.of[old],
                false);
  }
  for (size_t i = 0; i < g->nodes.len; i++) {
    const ir_node *n = graph_node(g, (uint32_t)i);
    if (n->op != OP_ASSIGN) continue;
    const char *name = attr_str(g, graph_def(g, graph_in(g, n)[0]), "name");
    val param = find_leaf(t, name), becomes = 0;
    for (int k = 0; k < t->x.leaves; k++)
      if (t->x.leaf[k].v == param) becomes = t->x.becomes[k];
    check_value(t, name, becomes, graph_in(g, n)[1], &t->s.of[param], true);
  }
}

/* --- trials ----------------------------------------------------------------------------------- */

static int64_t all_collectives, all_cut, all_padded;

static void try_seed(uint64_t seed, const int64_t *size, int axes) {
  static const char *const name[] = {"a", "b", "c"};
  static trial t;
  memset(&t, 0, sizeof t);
  random_graph_make(seed, &(random_options){.dtypes = seed % 2}, &t.x);
  CHECK_OK(mesh_init(size, name, axes, NULL, 0, &t.m));
  ref_begin(&t.global, t.x.g, true);
  for (int i = 0; i < t.x.leaves; i++) ref_set(&t.global, t.x.leaf[i].v, t.x.leaf[i].data);
  ref_eval(&t.global);
  ref_eval(&t.x.ref);
  cluster c;
  CHECK_OK(cluster_load("this", &c));
  shard_plan plan = {.mesh = &t.m, .cluster = &c, .declared = declared, .model = &t};
  if (shard_graph(t.x.g, &plan, &t.s)) {
    char *text;
    CHECK_OK(hp_graph_print(t.x.g, &text));
    test_fail(__FILE__, __LINE__, "seed %llu: %s\n%s\n%s", (unsigned long long)seed, err_message(),
              err_trace(), text);
  }
  CHECK_OK(ops_verify(t.s.graph));
  run_devices(&t);
  check_effects(&t);
  all_collectives += t.collectives;
  all_cut += t.cut;
  all_padded += t.padded;
  for (int64_t p = 0; p < t.m.devices; p++) ref_end(&t.shard[p]);
  sharded_free(&t.s);
  ref_end(&t.global);
  mesh_free(&t.m);
  random_graph_free(&t.x);
}

static void try_mesh(uint64_t first, int n, const int64_t *size, int axes) {
  const char *only = getenv("HYPER_SEED"), *more = getenv("HYPER_SEEDS");
  if (more) n *= atoi(more);
  if (only) first = strtoull(only, NULL, 10), n = 1;
  for (uint64_t seed = first; seed < first + (uint64_t)n; seed++) try_seed(seed, size, axes);
  CHECK(only || (all_collectives > 0 && all_cut > 0 && all_padded > 0));
}

TEST(random_graphs_on_one_axis_give_every_device_its_shard) {
  try_mesh(5000, 40, (int64_t[]){2}, 1);
  try_mesh(5100, 20, (int64_t[]){4}, 1);
  try_mesh(5200, 20, (int64_t[]){3}, 1);
}
TEST(random_graphs_on_several_axes_give_every_device_its_shard) {
  try_mesh(6000, 30, (int64_t[]){2, 2}, 2);
  try_mesh(6100, 15, (int64_t[]){2, 3}, 2);
  try_mesh(6200, 15, (int64_t[]){2, 2, 2}, 3);
}
TEST(torture_random_graphs_give_every_device_its_shard) {
  try_mesh(5000, 100, (int64_t[]){2}, 1);
  try_mesh(5100, 100, (int64_t[]){4}, 1);
  try_mesh(5200, 100, (int64_t[]){3}, 1);
  try_mesh(6000, 100, (int64_t[]){2, 2}, 2);
  try_mesh(6100, 100, (int64_t[]){2, 3}, 2);
  try_mesh(6200, 100, (int64_t[]){2, 2, 2}, 3);
}
