/* Graph texts, from the first character to the numbers that come out.
 *
 * What is read prints to a text that reads back the same, and is sound after every pass.  A small
 * graph also gets its gradients, is compiled and run by the interpreter, in order and with all that
 * spares memory (recomputation, another order): the bits are the same.  A large one is compiled
 * only.  All may be refused. */
#include "fuzz.h"
#include "mutate.h"

#include "base/dtype.h"
#include "base/log.h"
#include "ir/print.h"
#include "ops/ops.h"
#include "pass/autodiff.h"
#include "compile/compile.h"
#include "rt/device_target.h"
#include "rt/exec.h"
#include "rt/explain.h"
#include "rt/device_mesh.h"
#include "shard/rule_node.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NODES_MAX = 400, ELEMENTS_MAX = 1 << 14, FLOPS_MAX = 10000000, IO_MAX = 64 };

static hp_status read_graph(const char *text, size_t n, hp_graph **out) {
  return graph_parse_checked(text, n, "fuzz", ops_verify_at, out);
}

/* The graph printed and read again. */
static hp_graph *copy_of(const hp_graph *g) {
  str one = {0}, two = {0};
  hp_graph *h;
  HP_ASSERT(!graph_print(g, &one));
  HP_ASSERT(!read_graph(one.at ? one.at : "", one.len, &h));
  HP_ASSERT(!graph_print(h, &two));
  HP_ASSERT(one.len == two.len && !memcmp(one.at ? one.at : "", two.at ? two.at : "", one.len));
  str_free(&one);
  str_free(&two);
  return h;
}

static bool is_small(const hp_graph *g) {
  double elements = 0, flops = 0;
  if (g->nodes.len > NODES_MAX) return false;
  for (val v = 1; v < g->values.len; v++) elements += (double)value_elements(graph_value(g, v));
  for (uint32_t i = 0; i < g->nodes.len; i++)
    flops += op_meanings[graph_node(g, i)->op].cost(g, graph_node(g, i)).flops;
  return elements <= ELEMENTS_MAX && flops <= FLOPS_MAX;
}

/* What a node asks of operands that are cut in their first dim, and makes of them, are layouts of
 * tensors of their ranks. */
static void check_rule(const hp_graph *g, const ir_node *n) {
  static const mesh pair = {.axes = 1, .size = {2}, .name = {"x"}, .devices = 2};
  layout in[RULE_TENSORS] = {{0}}, need[RULE_TENSORS], out[RULE_TENSORS];
  rule r;
  if (rule_of_node(g, n, &r)) return;
  HP_ASSERT(r.n_in == n->n_in);
  for (int i = 0; i < r.n_in; i++) {
    in[i].rank = graph_value(g, graph_in(g, n)[i])->rank;
    if (in[i].rank) layout_append(&in[i], 0, 0);
  }
  memset(need, 0xEE, sizeof need);
  memset(out, 0xEE, sizeof out);
  if (rule_derive(&pair, &r, in, need, out)) return;
  for (int i = 0; i < r.n_in; i++) HP_ASSERT(need[i].rank == in[i].rank);
  for (int o = 0; o < n->n_out; o++)
    HP_ASSERT(out[o].rank == graph_value(g, n->out0 + (val)o)->rank);
}

static void check_rules(const hp_graph *g) {
  for (uint32_t i = 0; i < g->nodes.len; i++) {
    check_rule(g, graph_node(g, i));
    err_clear();
  }
}

/* Types after every pass are those of the rules. */
static void check_passes(const hp_graph *g, bool remat) {
  capabilities can = capabilities_usual();
  pass_options o = {.options = &(hp_compile_options){.remat = remat}, .can = &can};
  const hp_graph *at = g;
  hp_graph *made = NULL, *next;
  for (int i = 0; pass_table[i].name; i++) {
    hp_status st = pass_table[i].run(at, &o, &next);
    graph_free(made);
    made = NULL;
    if (st) break;
    at = made = next;
    HP_ASSERT(!ops_verify(at));
  }
  graph_free(made);
  err_clear();
}

/* --- running ------------------------------------------------------------------------------ */

/* Numbers that are harmless as any dtype: small; now and then one that is not. */
static void fill(void *data, const ir_value *t, uint64_t seed) {
  int64_t n = value_elements(t);
  size_t size = dtype_size((hp_dtype)t->dtype);
  mutate_rng r = {seed};
  for (int64_t i = 0; i < n; i++) {
    float x = (float)(mutate_below(&r, 9) - 4) / 4;
    int64_t k = mutate_below(&r, 200) ? mutate_below(&r, 3) : (int64_t)mutate_next(&r) - (1 << 30);
    void *to = (char *)data + (size_t)i * size;
    if (t->dtype == HP_BOOL) k &= 1;
    if (!dtype_is_float(t->dtype)) memcpy(to, &k, size);
    else HP_ASSERT(!dtype_convert((hp_dtype)t->dtype, to, HP_F32, &x, 1));
  }
}

typedef struct {
  hp_io io[IO_MAX];
  const ir_value *type[IO_MAX];
  int n;
} values;

static void add_value(values *v, const hp_graph *g, const ir_node *n, const ir_value *t) {
  size_t bytes = (size_t)value_bytes(t);
  char *data = calloc(bytes + 1, 1);
  HP_ASSERT(data && v->n < IO_MAX);
  if (n->op == OP_INPUT) fill(data, t, v->n + 1);
  v->type[v->n] = t;
  v->io[v->n++] = (hp_io){attr_str(g, n, "name"), data, bytes};
}

/* Inputs and outputs of a run, each name once; false when there are too many. */
static bool make_values(const hp_graph *g, values *v) {
  *v = (values){0};
  for (uint32_t i = 0; i < g->nodes.len; i++) {
    const ir_node *n = graph_node(g, i);
    bool known = n->op != OP_INPUT && n->op != OP_OUTPUT;
    for (int k = 0; !known && k < v->n; k++) known = !strcmp(v->io[k].name, attr_str(g, n, "name"));
    if (known) continue;
    if (v->n == IO_MAX) return false;
    add_value(v, g, n, graph_value(g, n->op == OP_INPUT ? n->out0 : graph_in(g, n)[0]));
  }
  return true;
}

static void free_values(values *v) {
  for (int i = 0; i < v->n; i++) free(v->io[i].data);
}

static hp_status fill_params(const hp_graph *g, hp_device *d) {
  for (uint32_t i = 0; i < g->nodes.len; i++) {
    const ir_node *n = graph_node(g, i);
    if (n->op != OP_PARAM) continue;
    const ir_value *t = graph_value(g, n->out0);
    hp_shape s = {.rank = t->rank};
    memcpy(s.dim, t->dim, sizeof s.dim);
    size_t bytes = (size_t)value_bytes(t);
    char *data = calloc(bytes + 1, 1);
    HP_ASSERT(data);
    fill(data, t, i);
    hp_status st = hp_param_create(d, attr_str(g, n, "name"), (hp_dtype)t->dtype, s);
    if (!st) st = hp_write(d, attr_str(g, n, "name"), data, bytes);
    free(data);
    HP_TRY(st);
  }
  return HP_OK;
}

/* The text of a program reads back as it was printed. */
static void check_program(const program *p) {
  str one = {0}, two = {0};
  program *q;
  HP_ASSERT(!program_print(p, &one));
  HP_ASSERT(!program_parse(one.at ? one.at : "", one.len, "program", &q));
  HP_ASSERT(!program_print(q, &two));
  HP_ASSERT(one.len == two.len && !memcmp(one.at ? one.at : "", two.at ? two.at : "", one.len));
  program_free(q);
  str_free(&one);
  str_free(&two);
}

/* As hp_compile does it; `spare` does all that spares memory: its limit is so small that every
 * order is tried, and then what the last of them needs. */
static hp_status load(hp_device *d, const hp_graph *g, bool spare, compiled *out) {
  hp_compile_options o = {.remat = spare};
  device_target t;
  compilation c;
  device_target_init(d, 0, &t);
  hp_status st = compile_begin(g, NULL, &o, &c);
  if (!st) st = compile_for(&c, &t.t, out);
  if (!st && spare) {
    t.t.limit[TIER_DEVICE] = 1;
    compile_free(&t.t, out);
    st = compile_for(&c, &t.t, out);
    if (st == HP_ERR_OOM && out->p) {
      t.t.limit[TIER_DEVICE] =
          t.t.resident_bytes(&t, out->p, TIER_DEVICE) + out->p->arena[TIER_DEVICE];
      err_clear();
      compile_free(&t.t, out);
      st = compile_for(&c, &t.t, out);
    }
  }
  compile_end(&c);
  if (!st) check_program(out->p);
  else compile_free(&t.t, out);
  return st;
}

static hp_device *open_device(void) {
  hp_device *d;
  HP_ASSERT(!hp_device_open(&(hp_device_options){.threads = 1, .interpret = true}, &d));
  return d;
}

static hp_status run(const hp_graph *g, bool spare, values *v) {
  hp_device *d = open_device();
  exec *e = NULL;
  compiled made = {0};
  str text = {0};
  hp_status st = fill_params(g, d);
  if (!st) st = load(d, g, spare, &made);
  if (!st) st = exec_create(d->member[0], made.p, made.kernels, &e);
  if (!st) st = exec_run(e, v->io, v->n, 0);
  if (e) {
    HP_ASSERT(!explain_print(made.p, d->member[0], e, NULL, "memory", &text));
    explain_trace(e, &d->m, 0, 0, &text);
  }
  exec_free(e);
  hp_device_close(d);
  str_free(&text);
  return st;
}

/* Element i of two results: the same bits, or two NaNs. */
static bool same_number(const ir_value *t, const char *a, const char *b, int64_t i) {
  size_t size = dtype_size((hp_dtype)t->dtype);
  float x, y;
  a += (size_t)i * size;
  b += (size_t)i * size;
  if (!memcmp(a, b, size)) return true;
  if (!dtype_is_float(t->dtype)) return false;
  HP_ASSERT(!dtype_convert(HP_F32, &x, (hp_dtype)t->dtype, a, 1));
  HP_ASSERT(!dtype_convert(HP_F32, &y, (hp_dtype)t->dtype, b, 1));
  return isnan(x) && isnan(y);
}

static void run_both(const hp_graph *g) {
  values a, b;
  bool fits = make_values(g, &a);
  fits &= make_values(g, &b);
  hp_status one = fits ? run(g, false, &a) : HP_OK;
  err_clear();
  hp_status two = fits ? run(g, true, &b) : HP_OK;
  err_clear();
  HP_ASSERT(!one == !two);
  for (int k = 0; fits && !one && k < a.n; k++)
    for (int64_t i = 0; i < value_elements(a.type[k]); i++)
      HP_ASSERT(same_number(a.type[k], a.io[k].data, b.io[k].data, i));
  free_values(&a);
  free_values(&b);
}

static void plan_large(const hp_graph *g) {
  hp_device *d = open_device();
  compiled made;
  if (!load(d, g, false, &made)) {
    d->member[0]->backend->release(made.kernels);
    program_free(made.p);
  }
  err_clear();
  hp_device_close(d);
}

static void compile(const hp_graph *g) {
  check_passes(g, false);
  check_passes(g, true);
  if (is_small(g)) run_both(g);
  else plan_large(g);
}

/* --- gradients ---------------------------------------------------------------------------- */

/* The first output that is one float; 0 when there is none. */
static val loss_of(const hp_graph *g) {
  for (uint32_t i = 0; i < g->nodes.len; i++) {
    const ir_node *n = graph_node(g, i);
    const ir_value *t = n->op == OP_OUTPUT ? graph_value(g, graph_in(g, n)[0]) : NULL;
    if (t && dtype_is_float(t->dtype) && value_elements(t) == 1) return graph_in(g, n)[0];
  }
  return 0;
}

static void differentiate(const hp_graph *from) {
  hp_graph *g = copy_of(from);
  val wrt[8], grad[8], loss = loss_of(g);
  int n = 0;
  for (uint32_t i = 0; loss && i < g->nodes.len && n < 8; i++) {
    const ir_node *d = graph_node(g, i);
    if ((d->op == OP_PARAM || d->op == OP_INPUT) && dtype_is_float(graph_value(g, d->out0)->dtype))
      wrt[n++] = d->out0;
  }
  if (n && !hp_grad(g, loss, wrt, n, grad)) {
    for (int i = 0; i < n; i++) {
      char name[24];
      snprintf(name, sizeof name, "gradient %d", i);
      ops_output(g, name, grad[i]);
    }
    HP_ASSERT(!graph_status(g));
    uint32_t node; /* the names may be taken */
    if (!ops_check_names(g, &node)) compile(g);
  }
  graph_free(g);
  err_clear();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
  hp_graph *g;
  log_set_level(LOG_ERROR);
  if (read_graph((const char *)bytes, n, &g)) {
    HP_ASSERT(!strncmp(err_message(), "fuzz:", 5)); /* the line */
    err_clear();
    return 0;
  }
  graph_free(copy_of(g));
  check_rules(g);
  compile(g);
  differentiate(g);
  graph_free(g);
  return 0;
}

/* --- mutation ----------------------------------------------------------------------------- */

static val pick_value(const hp_graph *g, mutate_rng *r, val like) {
  int n = (int)g->values.len - 1;
  for (int tries = 0; tries < 8; tries++) {
    val v = 1 + (val)mutate_below(r, n);
    const ir_value *a = graph_value(g, v), *b = graph_value(g, like ? like : v);
    if (a->dtype == b->dtype && value_same_shape(a, b)) return v;
  }
  return 1 + (val)mutate_below(r, n);
}

static int64_t small_number(mutate_rng *r) {
  return mutate_below(r, 10) ? mutate_below(r, 4) : mutate_below(r, 40) - 10;
}

/* A list that may fit the op: a shape like x's, a permutation, axes, bounds of a slice. */
static void put_list(attr_record *a, mutate_rng *r, const char *key, int len, const ir_value *x) {
  int64_t v[ATTR_LIST_MAX];
  int n = x->rank;
  for (int i = 0; i < n; i++) {
    bool plain = mutate_below(r, 8) > 0;
    v[i] = x->dim[i];
    if (!strncmp(key, "perm", (size_t)len)) v[i] = plain ? (i + 1) % n : small_number(r);
    else if (!strncmp(key, "axes", (size_t)len)) v[i] = i;
    else if (!strncmp(key, "step", (size_t)len)) v[i] = 1 + (plain ? 0 : small_number(r));
    else if (strncmp(key, "shape", (size_t)len) && strncmp(key, "stop", (size_t)len))
      v[i] = plain ? mutate_below(r, 2) : small_number(r);
    else if (!plain) v[i] = small_number(r);
  }
  if (n && !strncmp(key, "axes", (size_t)len)) { /* some of them */
    int keep = 1 + mutate_below(r, n), from = mutate_below(r, n - keep + 1);
    memmove(v, v + from, (size_t)keep * sizeof *v);
    n = keep;
  }
  if (!strncmp(key, "shape", (size_t)len) && n < HP_MAX_RANK && mutate_below(r, 3) == 0) {
    memmove(v + 1, v, (size_t)n * sizeof *v);
    v[0] = 1 + mutate_below(r, 3);
    n++;
  }
  attr_put_list(a, v, n);
}

static void put_text(hp_graph *g, attr_record *a, mutate_rng *r, int op) {
  static const char *const eq[] = {"ab,bc->ac",   "ab,cb->ac",      "a,a->",   "ab,ab->ab",
                                   "abc,cd->abd", "a,b->ab",        "ab,ab->", "ab,b->a",
                                   ",->",         "abcd,abed->abce"};
  char name[16];
  snprintf(name, sizeof name, "n%d", mutate_below(r, 1000));
  attr_put_str(a, g, op == OP_EINSUM ? eq[mutate_below(r, 10)] : name);
}

static void put_attributes(hp_graph *g, attr_record *a, mutate_rng *r, int op, const ir_value *x) {
  static const double number[] = {0, 1, 0.5, 1e-5, -1, 3, 1e30, INFINITY, NAN};
  const char *at = op_table[op].attrs, *key;
  int len;
  char kind;
  while (attr_next_key(&at, &key, &len, &kind)) switch (kind) {
    case 'f': attr_put_float(a, number[mutate_below(r, 9)]); break;
    case 's': put_text(g, a, r, op); break;
    case 't':
      attr_put_int(a, mutate_below(r, 2) ? x->dtype : mutate_below(r, HP_DTYPE_COUNT));
      break;
    case 'l': put_list(a, r, key, len, x); break;
    default: attr_put_int(a, small_number(r));
    }
}

/* Tries to add a node of a random op. */
static void grow(hp_graph *g, mutate_rng *r) {
  static const ir_value usual = {.dtype = HP_F32, .rank = 2, .dim = {2, 3}};
  int op = 1 + mutate_below(r, OP_COUNT - 1);
  const op_row *row = &op_table[op];
  val in[8];
  int n = row->in_min + mutate_below(r, row->in_max - row->in_min + 1);
  if (op == OP_FUSED || n > 8 || (n && g->values.len < 2)) return;
  for (int i = 0; i < n; i++) in[i] = pick_value(g, r, i && mutate_below(r, 3) ? in[0] : 0);
  attr_record a = {0};
  ir_value like = g->values.len > 1 ? *graph_value(g, n ? in[0] : pick_value(g, r, 0)) : usual;
  put_attributes(g, &a, r, op, &like);
  ops_add(g, op, in, n, row->attrs[0] ? &a : NULL);
  g->failure = (err_report){0};
  err_clear();
}

static size_t grown(uint8_t *bytes, size_t n, size_t max, mutate_rng *r) {
  hp_graph *g;
  str text = {0};
  if (read_graph((const char *)bytes, n, &g)) {
    err_clear();
    return 0;
  }
  size_t before = g->nodes.len;
  g->block = (uint16_t)mutate_below(r, 3);
  g->phase = (uint8_t)mutate_below(r, 2);
  for (int i = 0; i < 12; i++) grow(g, r);
  char name[24];
  snprintf(name, sizeof name, "o%u", mutate_next(r) % 1000);
  if (g->values.len > 1) ops_output(g, name, (val)g->values.len - 1);
  bool more = g->nodes.len > before && !graph_print(g, &text) && text.len <= max;
  if (more) memcpy(bytes, text.at, text.len);
  size_t len = more ? text.len : 0;
  graph_free(g);
  str_free(&text);
  return len;
}

size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t n, size_t max, unsigned seed) {
  static const char *word[OP_COUNT + HP_DTYPE_COUNT];
  int words = 0;
  mutate_rng r = {seed};
  for (int op = 1; op < OP_COUNT; op++) word[words++] = op_table[op].name;
  for (int t = 0; t < HP_DTYPE_COUNT; t++) word[words++] = dtype_name((hp_dtype)t);
  size_t len = mutate_below(&r, 3) ? 0 : grown(bytes, n, max, &r);
  return len ? len : mutate_text(bytes, n, max, &r, word, words);
}
