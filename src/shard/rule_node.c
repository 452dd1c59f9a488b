#include "shard/rule_node.h"

#include "ir/einsum_eq.h"
#include "shard/slices.h"

#include <stdio.h>
#include <string.h>

typedef struct {
  const hp_graph *g;
  const ir_node *n;
  dims in[RULE_TENSORS], out[OPS_OUT_MAX];
} site;

static dims dims_of(const hp_graph *g, val v) {
  const ir_value *x = graph_value(g, v);
  dims s = {.rank = x->rank};
  memcpy(s.dim, x->dim, (size_t)x->rank * sizeof *s.dim);
  return s;
}

/* Results that do not depend on an operand's dims. */
static hp_status new_tensor(const site *s, rule *r) {
  rule_begin(r, LIN_NONE);
  for (int i = 0; i < s->n->n_in; i++) rule_in(r, -1);
  for (int o = 0; o < s->n->n_out; o++) {
    rule_tensor *t = rule_out(r, s->out[o].rank);
    for (int d = 0; d < t->rank; d++) rule_dim(t, d, rule_factor(r, s->out[o].dim[d]));
  }
  return HP_OK;
}

/* All dims must be replicated. */
static hp_status replicated(const site *s, rule *r) {
  rule_begin(r, LIN_NONE);
  for (int i = 0; i < s->n->n_in; i++) {
    rule_tensor *t = rule_in(r, s->in[i].rank);
    for (int d = 0; d < t->rank; d++) rule_dim(t, d, rule_factor(r, s->in[i].dim[d]));
  }
  for (int f = 0; f < r->factors; f++) r->factor[f].replicated = true;
  for (int o = 0; o < s->n->n_out && o < OPS_OUT_MAX; o++) {
    rule_tensor *t = rule_out(r, s->out[o].rank);
    for (int d = 0; d < t->rank; d++) rule_dim(t, d, rule_factor(r, s->out[o].dim[d]));
  }
  return HP_OK;
}

static hp_status reduction(const site *s, partial_op op, rule *r) {
  int64_t axes[ATTR_LIST_MAX];
  bool cut[LAYOUT_DIMS] = {false};
  int n = attr_list(s->g, s->n, "axes", axes);
  for (int i = 0; i < n; i++) cut[axes[i]] = true;
  rule_reduce(&s->in[0], cut, attr_int(s->g, s->n, "keep") != 0, op, 1, r);
  return HP_OK;
}
static hp_status sum(const site *s, rule *r) { return reduction(s, PARTIAL_SUM, r); }
static hp_status max(const site *s, rule *r) { return reduction(s, PARTIAL_MAX, r); }

static hp_status reshape(const site *s, rule *r) { return rule_reshape(&s->in[0], &s->out[0], r); }

static hp_status transpose(const site *s, rule *r) {
  int64_t perm[ATTR_LIST_MAX];
  int source[LAYOUT_DIMS], n = attr_list(s->g, s->n, "perm", perm);
  for (int d = 0; d < n; d++) source[d] = (int)perm[d];
  rule_map(&s->in[0], &s->out[0], source, LIN_MOVE, r);
  return HP_OK;
}

/* Dim by dim, from the right; dims that change size must be replicated. */
static hp_status by_dim(const site *s, op_linearity l, rule *r) {
  int source[LAYOUT_DIMS], more = s->out[0].rank - s->in[0].rank;
  for (int d = 0; d < s->out[0].rank; d++) source[d] = d < more ? -1 : d - more;
  rule_map(&s->in[0], &s->out[0], source, l, r);
  return HP_OK;
}
static hp_status move(const site *s, rule *r) { return by_dim(s, LIN_MOVE, r); }
static hp_status pad(const site *s, rule *r) {
  return by_dim(s, attr_float(s->g, s->n, "value") == 0 ? LIN_JOINT : LIN_NONE, r);
}

/* All operands are alike except along the dim of the concat or update. */
static hp_status joined(const site *s, int operands, op_linearity l, rule *r) {
  int axis = (int)attr_int(s->g, s->n, "axis");
  rule_begin(r, l);
  rule_tensor *y = rule_out(r, s->out[0].rank);
  for (int d = 0; d < y->rank; d++) {
    rule_dim(y, d, rule_factor(r, s->out[0].dim[d]));
    r->factor[d].replicated = d == axis;
  }
  for (int i = 0; i < operands; i++) {
    rule_tensor *x = rule_in(r, y->rank);
    for (int d = 0; d < y->rank; d++) rule_dim(x, d, y->factor[d][0]);
  }
  return HP_OK;
}
/* Jointly linear in all operands: of replicated operands only one counts. */
static hp_status concat(const site *s, rule *r) { return joined(s, s->n->n_in, LIN_JOINT, r); }
static hp_status update(const site *s, rule *r) {
  HP_TRY(joined(s, 2, LIN_NONE, r));
  rule_tensor *pos =
      rule_in(r, s->in[2].rank); /* position, one for all of dim 0 or one per element */
  if (s->in[2].rank) rule_dim(pos, 0, r->in[0].factor[0][0]);
  return HP_OK;
}

/* Each device starts its partial sums from its shard of the initial value.  Partial sums are in
 * f32; narrower ones would be rounded. */
static hp_status einsum_onto(const site *s, const char *eq, rule *r) {
  char text[2 * EINSUM_TEXT_MAX];
  const char *out = strstr(eq, "->") + 2;
  snprintf(text, sizeof text, "%.*s,%s->%s", (int)(out - 2 - eq), eq, out, out);
  HP_TRY(rule_from_text(text, LIN_NONE, s->in, 3, r));
  r->start = 3;
  return HP_OK;
}

/* For operands of one type; an f32 operand next to bf16 is rounded, which partial sums must not
 * be. */
static op_linearity einsum_linearity(const site *s) {
  const val *in = graph_in(s->g, s->n);
  return graph_value(s->g, in[0])->dtype == graph_value(s->g, in[1])->dtype ? LIN_EACH : LIN_NONE;
}

static hp_status einsum(const site *s, rule *r) {
  const char *eq = attr_str(s->g, s->n, "eq");
  bool onto = s->n->n_in == 3;
  HP_TRY(onto ? einsum_onto(s, eq, r) : rule_from_text(eq, einsum_linearity(s), s->in, 2, r));
  if (onto && graph_value(s->g, s->n->out0)->dtype != HP_F32) return HP_OK;
  for (int f = 0; f < r->factors; f++) r->factor[f].reduce = PARTIAL_SUM;
  return HP_OK;
}

static hp_status embedding_grad(const site *s, rule *r) {
  bool onto = s->n->n_in == 3, f32 = graph_value(s->g, s->n->out0)->dtype == HP_F32;
  const char *text = !onto ? "...d,...->vd;...=sum;v=@1"
                     : f32 ? "...d,...,vd->vd;...=sum;v=@1"
                           : "...d,...,vd->vd;...=rep;v=@1";
  HP_TRY(rule_from_text(text, onto ? LIN_NONE : LIN_FIRST, s->in, s->n->n_in, r));
  rule_out_sizes(r, s->out);
  if (onto) r->start = 3;
  return HP_OK;
}

/* With slots [R...,J,K], or without, if one row serves all of its slots.  The row of an expert
 * on another device is zero: a partial sum. */
static hp_status grouped(const site *s, rule *r) {
  bool slots = s->in[0].rank > s->in[2].rank, transposed = attr_int(s->g, s->n, "transposed") != 0;
  const char *text[2][2] = {{"...k,enk,...j->...jn;e=sum@2;k=sum",
                             "...jk,enk,...j->...jn;e=sum@2;k=sum"},
                            {"...k,ekn,...j->...jn;e=sum@2;k=sum",
                             "...jk,ekn,...j->...jn;e=sum@2;k=sum"}};
  return rule_from_text(text[transposed][slots], LIN_EACH, s->in, 3, r);
}
static hp_status grouped_grad(const site *s, rule *r) {
  bool slots = s->in[1].rank > s->in[2].rank;
  HP_TRY(rule_from_text(slots ? "...jn,...jk,...j->enk;...=sum;j=sum;e=@2"
                              : "...jn,...k,...j->enk;...=sum;j=sum;e=@2",
                        LIN_EACH, s->in, 3, r));
  rule_out_sizes(r, s->out);
  return HP_OK;
}

/* Query heads are groups over the key heads.  A query finds its keys by position, so the
 * sequence must be replicated, unless a span gives its keys, or dropout needs positions. */
typedef struct {
  int batch, kv, group, query, key, width, value_width;
} attention_factors;

static void heads(rule_tensor *t, int dim, const attention_factors *f) {
  rule_dim(t, dim, f->kv);
  if (f->group >= 0) rule_dim(t, dim, f->group);
}

/* [B,T,H,width] of queries, or [B,S,KV,width] of keys. */
static void attention_tensor(rule_tensor *t, const attention_factors *f, bool of_queries,
                             int width) {
  rule_dim(t, 0, f->batch);
  rule_dim(t, 1, of_queries ? f->query : f->key);
  if (of_queries) heads(t, 2, f);
  else rule_dim(t, 2, f->kv);
  rule_dim(t, 3, width);
}

/* lse [B,H,T] */
static void attention_rows(rule_tensor *t, const attention_factors *f) {
  rule_dim(t, 0, f->batch);
  heads(t, 1, f);
  rule_dim(t, 2, f->query);
}

static attention_factors attention_begin(const site *s, bool span, rule *r) {
  const int64_t *q = s->in[0].dim, *k = s->in[1].dim, *v = s->in[2].dim;
  attention_factors f = {.group = -1};
  rule_begin(r, LIN_NONE);
  f.batch = rule_factor(r, q[0]);
  f.kv = rule_factor(r, k[2]);
  if (q[2] != k[2]) f.group = rule_factor(r, q[2] / k[2]);
  f.query = rule_factor(r, q[1]);
  f.key = rule_factor(r, k[1]);
  f.width = rule_factor(r, q[3]);
  f.value_width = rule_factor(r, v[3]);
  bool sequence = !span && (attr_int(s->g, s->n, "causal") || attr_int(s->g, s->n, "window"));
  r->factor[f.query].replicated = sequence;
  r->factor[f.key].replicated = r->factor[f.width].replicated =
      r->factor[f.value_width].replicated = true;
  if (f.group >= 0) r->factor[f.group].reduce = PARTIAL_SUM; /* in gradients of keys */
  r->factor[f.query].reduce = PARTIAL_SUM;
  return f;
}

/* The seed.  Sequences and key heads can be sharded if the number of all rows is known and these
 * are not sharded already. */
static void attention_seed(const site *s, const attention_factors *f, rule *r) {
  const dims *q = &s->in[0], *seed = &s->in[s->n->n_in - 1];
  bool cuts =
      !seed->rank && (double)q->dim[0] * (double)q->dim[1] * (double)q->dim[2] <= UINT32_MAX;
  rule_tensor *t = rule_in(r, seed->rank);
  if (seed->rank) rule_dim(t, 0, rule_factor(r, seed->dim[0]));
  for (int i = 0; i < r->factors; i++)
    r->factor[i].replicated |= !cuts || (i != f->batch && i != f->kv);
}

static hp_status attention(const site *s, rule *r) {
  bool gradient = s->n->op == OP_ATTENTION_GRAD;
  bool drops = attr_float(s->g, s->n, "dropout") > 0;
  int given = gradient ? 6 : 3;
  bool span = s->n->n_in - drops > given;
  attention_factors f = attention_begin(s, span, r);
  attention_tensor(rule_in(r, 4), &f, true, f.width);
  attention_tensor(rule_in(r, 4), &f, false, f.width);
  attention_tensor(rule_in(r, 4), &f, false, f.value_width);
  if (gradient) {
    attention_tensor(rule_in(r, 4), &f, true, f.value_width);
    attention_rows(rule_in(r, 3), &f);
    attention_tensor(rule_in(r, 4), &f, true, f.value_width);
  }
  if (span) {
    rule_tensor *t = rule_in(r, 3);
    int pair = rule_factor(r, 2);
    r->factor[pair].replicated = true;
    rule_dim(t, 0, f.batch);
    rule_dim(t, 1, f.query);
    rule_dim(t, 2, pair);
  }
  if (drops) attention_seed(s, &f, r);
  attention_tensor(rule_out(r, 4), &f, true, gradient ? f.width : f.value_width);
  if (gradient) {
    attention_tensor(rule_out(r, 4), &f, false, f.width);
    attention_tensor(rule_out(r, 4), &f, false, f.value_width);
  } else {
    attention_rows(rule_out(r, 3), &f);
  }
  return HP_OK;
}

/* Dims of a convolution: images, groups of channels (one group: none), channels of x and of y;
 * spatial dims must be replicated, and so must the channels of a group if there are several
 * groups. */
typedef struct {
  int images, groups, in, out, x[2], w[2], y[2];
} conv_factors;

static void conv_image(rule_tensor *t, const conv_factors *f, int channels, const int *spatial) {
  rule_dim(t, 0, f->images);
  if (f->groups >= 0) rule_dim(t, 1, f->groups);
  rule_dim(t, 1, channels);
  for (int d = 2; d < t->rank; d++) rule_dim(t, d, spatial[d - 2]);
}
static void conv_weights(rule_tensor *t, const conv_factors *f) {
  if (f->groups >= 0) rule_dim(t, 0, f->groups);
  rule_dim(t, 0, f->out);
  rule_dim(t, 1, f->in);
  for (int d = 2; d < t->rank; d++) rule_dim(t, d, f->w[d - 2]);
}

static int replicated_factor(rule *r, int64_t size) {
  int f = rule_factor(r, size);
  r->factor[f].replicated = true;
  return f;
}

static hp_status conv(const site *s, rule *r) {
  bool dx = s->n->op == OP_CONV_DX, dw = s->n->op == OP_CONV_DW;
  const dims *x = dx ? &s->out[0] : &s->in[0], *w = dw ? &s->out[0] : &s->in[1];
  const dims *y = dx ? &s->in[0] : dw ? &s->in[1] : &s->out[0];
  int64_t groups = attr_int(s->g, s->n, "groups");
  conv_factors f = {.groups = -1};
  rule_begin(r, LIN_EACH);
  f.images = rule_factor(r, x->dim[0]);
  if (groups > 1) f.groups = rule_factor(r, groups);
  f.in = rule_factor(r, x->dim[1] / groups);
  f.out = rule_factor(r, y->dim[1] / groups);
  r->factor[f.in].replicated = r->factor[f.out].replicated = groups > 1;
  for (int d = 0; d < x->rank - 2; d++) {
    f.x[d] = replicated_factor(r, x->dim[2 + d]);
    f.w[d] = replicated_factor(r, w->dim[2 + d]);
    f.y[d] = replicated_factor(r, y->dim[2 + d]);
  }
  int summed = dw ? f.images : dx ? f.out : f.in;
  r->factor[summed].reduce = PARTIAL_SUM;
  if (dx) conv_image(rule_in(r, y->rank), &f, f.out, f.y);
  else conv_image(rule_in(r, x->rank), &f, f.in, f.x);
  if (dw) conv_image(rule_in(r, y->rank), &f, f.out, f.y);
  else conv_weights(rule_in(r, w->rank), &f);
  if (dw) conv_weights(rule_out(r, w->rank), &f);
  else if (dx) conv_image(rule_out(r, x->rank), &f, f.in, f.x);
  else conv_image(rule_out(r, y->rank), &f, f.out, f.y);
  return HP_OK;
}

/* A cache in blocks: pools, the tensors of sequences, and what is by sequence alone.  Groups of
 * sequences have blocks of their own, so both are sharded together; heads as in attention. */
typedef struct {
  int groups, each, kv, group, token, width, out_width; /* factors; each: sequences of a group */
} paged_factors;

static void paged_pool(const dims *pool, const paged_factors *f, rule *r, rule_tensor *t) {
  const int front[] = {f->groups, -1, f->kv};
  for (int d = 0; d < pool->rank; d++) {
    bool shared = d == 0 || d == 2;
    rule_dim(t, d, shared ? front[d] : replicated_factor(r, pool->dim[d]));
  }
}

/* [B,T,heads,width], or the first n dims of those followed by replicated ones. */
static void paged_rows(const dims *x, int n, const paged_factors *f, int width, rule *r,
                       rule_tensor *t) {
  rule_dim(t, 0, f->groups);
  rule_dim(t, 0, f->each);
  if (n > 1) rule_dim(t, 1, f->token);
  if (n > 2) rule_dim(t, 2, f->kv);
  if (n > 2 && f->group >= 0) rule_dim(t, 2, f->group);
  if (n > 3) rule_dim(t, 3, width);
  for (int d = n; d < x->rank; d++) rule_dim(t, d, replicated_factor(r, x->dim[d]));
}

/* Pools of one group each, and lists of their blocks. */
static hp_status paged_move(const site *s, rule *r) {
  int pools = s->n->op == OP_PAGED_STORE ? 2 : 1;
  int64_t slot_heads = (pools == 2 ? &s->in[1] : &s->out[0])->dim[2];
  rule_begin(r, LIN_NONE);
  paged_factors f = {.groups = rule_factor(r, s->in[0].dim[0])};
  bool split = slot_heads != s->in[0].dim[2]; /* the list says which heads */
  f.kv = split ? replicated_factor(r, s->in[0].dim[2]) : rule_factor(r, s->in[0].dim[2]);
  int one = split ? replicated_factor(r, 1) : f.kv;
  paged_factors slots = f;
  slots.kv = one;
  for (int i = 0; i < pools; i++) paged_pool(&s->in[i], i ? &slots : &f, r, rule_in(r, 5));
  rule_tensor *list = rule_in(r, 2);
  rule_dim(list, 0, f.groups);
  rule_dim(list, 1, replicated_factor(r, s->in[pools].dim[1]));
  paged_pool(&s->out[0], pools == 2 ? &f : &slots, r, rule_out(r, 5));
  return HP_OK;
}

static hp_status paged(const site *s, rule *r) {
  if (s->n->op == OP_PAGED_FETCH || s->n->op == OP_PAGED_STORE) return paged_move(s, r);
  bool update = s->n->op == OP_PAGED_UPDATE;
  const dims *pool = &s->in[update ? 0 : 1], *x = &s->in[update ? 1 : 0];
  rule_begin(r, LIN_NONE);
  paged_factors f = {.groups = rule_factor(r, pool->dim[0]), .group = -1};
  f.each = update ? replicated_factor(r, x->dim[0] / pool->dim[0])
                  : rule_factor(r, x->dim[0] / pool->dim[0]);
  f.kv = rule_factor(r, pool->dim[2]);
  if (x->dim[2] != pool->dim[2]) f.group = rule_factor(r, x->dim[2] / pool->dim[2]);
  f.token = update ? replicated_factor(r, x->dim[1]) : rule_factor(r, x->dim[1]);
  f.width = replicated_factor(r, x->dim[3]);
  f.out_width = replicated_factor(r, update ? x->dim[3] : s->out[0].dim[3]);
  if (update) {
    paged_pool(pool, &f, r, rule_in(r, 5));
    paged_rows(x, 4, &f, f.width, r, rule_in(r, 4));
    for (int i = 2; i < 5; i++) paged_rows(&s->in[i], 1, &f, -1, r, rule_in(r, s->in[i].rank));
    *rule_out(r, 5) = r->in[0];
    return HP_OK;
  }
  paged_rows(x, 4, &f, f.width, r, rule_in(r, 4));
  for (int i = 1; i < 3; i++) paged_pool(&s->in[i], &f, r, rule_in(r, 5));
  paged_rows(&s->in[3], 1, &f, -1, r, rule_in(r, 2));
  paged_rows(&s->in[4], 2, &f, -1, r, rule_in(r, 3));
  if (s->n->n_in > 5)
    paged_rows(&s->in[5], 4, &f, replicated_factor(r, s->in[5].dim[3]), r, rule_in(r, 4));
  paged_rows(x, 4, &f, f.out_width, r, rule_out(r, 4));
  return HP_OK;
}

/* Images and channels may be sharded. */
static hp_status pooling(const site *s, rule *r) {
  rule_begin(r, op_table[s->n->op].linearity);
  int images = rule_factor(r, s->out[0].dim[0]), channels = rule_factor(r, s->out[0].dim[1]);
  for (int i = 0; i <= s->n->n_in; i++) {
    const dims *of = i < s->n->n_in ? &s->in[i] : &s->out[0];
    rule_tensor *t = i < s->n->n_in ? rule_in(r, of->rank) : rule_out(r, of->rank);
    rule_dim(t, 0, images);
    rule_dim(t, 1, channels);
    for (int d = 2; d < of->rank; d++) rule_dim(t, d, replicated_factor(r, of->dim[d]));
  }
  return HP_OK;
}

/* Labels become indices among the classes of a shard; a class index may mean "ignored" only if
 * no class is sharded away. */
static hp_status loss_grad(const site *s, rule *r) {
  bool cut = attr_int(s->g, s->n, "ignore") < 0;
  const char *text = cut ? "...v,...,...,...->...v;v=@1" : "...v,...,...,...->...v;v=rep";
  return rule_from_text(text, LIN_NONE, s->in, 4, r);
}

static const struct {
  const char *name;
  hp_status (*make)(const site *s, rule *r);
} functions[] = {
    {"=new", new_tensor},
    {"=replicated", replicated},
    {"=sum", sum},
    {"=max", max},
    {"=reshape", reshape},
    {"=transpose", transpose},
    {"=broadcast", move},
    {"=slice", move},
    {"=pad", pad},
    {"=concat", concat},
    {"=update", update},
    {"=einsum", einsum},
    {"=embedding_grad", embedding_grad},
    {"=grouped", grouped},
    {"=grouped_grad", grouped_grad},
    {"=attention", attention},
    {"=paged", paged},
    {"=conv", conv},
    {"=pool", pooling},
    {"=loss_grad", loss_grad},
};

hp_status rule_of_node(const hp_graph *g, const ir_node *n, rule *out) {
  const op_row *row = &op_table[n->op];
  site s = {.g = g, .n = n};
  if (n->n_in > RULE_TENSORS)
    HP_FAIL(HP_ERR_LAYOUT, "%s: %d operands, a layout rule holds %d", row->name, n->n_in,
            RULE_TENSORS);
  for (int i = 0; i < n->n_in; i++) s.in[i] = dims_of(g, graph_in(g, n)[i]);
  for (int o = 0; o < n->n_out && o < OPS_OUT_MAX; o++) s.out[o] = dims_of(g, n->out0 + (val)o);
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
    if (!strcmp(row->rule, functions[i].name)) return functions[i].make(&s, out);
  HP_TRY(rule_from_text(row->rule, row->linearity, s.in, n->n_in, out));
  rule_out_sizes(out, s.out);
  return HP_OK;
}

/* A convolution on a shard of its groups: the channels of the result are dim 1, but dim 0 of the
 * gradient of the weights. */
static int64_t local_groups(const hp_graph *g, const ir_node *n, const ir_value *out) {
  int64_t groups = attr_int(g, n, "groups");
  int d = n->op == OP_CONV_DW ? 0 : 1;
  return groups == 1 ? 1 : groups * out->dim[d] / graph_value(g, n->out0)->dim[d];
}

attr_record rule_local_attrs(const hp_graph *g, const ir_node *n, const ir_value *out) {
  const char *at = op_table[n->op].attrs, *name;
  const ir_value *global = graph_value(g, n->out0);
  attr_record a = {0};
  int len;
  char kind, key[32];
  while (attr_next_key(&at, &name, &len, &kind)) {
    snprintf(key, sizeof key, "%.*s", len, name);
    int64_t list[ATTR_LIST_MAX];
    if (kind == 'f') {
      attr_put_float(&a, attr_float(g, n, key));
    } else if (!strcmp(key, "groups")) {
      attr_put_int(&a, local_groups(g, n, out));
    } else if (!strcmp(key, "rows") || !strcmp(key, "experts")) {
      attr_put_int(&a, out->dim[0]);
    } else if (kind != 'l') {
      attr_put_int(&a, attr_int(g, n, key));
    } else {
      int count = attr_list(g, n, key, list);
      bool shape = !strcmp(key, "shape"), stop = !strcmp(key, "stop");
      for (int d = 0; d < count && (shape || stop); d++)
        if (out->dim[d] != global->dim[d]) list[d] = out->dim[d];
      attr_put_list(&a, list, count);
    }
  }
  return a;
}
