#include "rt/op_times.h"

#include "base/dtype.h"
#include "codegen/loop.h"
#include "ir/einsum_eq.h"
#include "sched/predict.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PUT(field, ...) snprintf(field, sizeof(field), __VA_ARGS__)

/* --- what an instruction is ------------------------------------------------------------------- */

static const ir_value *operand(const program *p, const prog_inst *n, int i) {
  return &program_arg(p, n, i)->type;
}

static const char *phase_word(int phase) {
  return phase == PHASE_BACKWARD ? " backward" : phase == PHASE_UPDATE ? " update" : "";
}

/* f32 beside bf16 is rounded to it. */
static bool is_bf16(const program *p, const prog_inst *n) {
  if (n->n_in && operand(p, n, 0)->dtype == HP_BF16) return true;
  return n->op == OP_EINSUM && operand(p, n, 1)->dtype == HP_BF16;
}

static int64_t extent(const einsum_eq *eq, const einsum_sizes *s, einsum_role role) {
  char letters[EINSUM_LETTERS_MAX + 1];
  int64_t all = 1;
  einsum_letters(eq, role, letters);
  for (const char *c = letters; *c; c++) all *= einsum_size(s, *c);
  return all;
}

static hp_shape shape_of(const ir_value *v) {
  hp_shape s = {.rank = v->rank};
  memcpy(s.dim, v->dim, sizeof v->dim);
  return s;
}

/* The columns of a product, or of each of those that are one instruction: "(768+256+256)". */
static size_t put_columns(const program *p, const prog_inst *n, const einsum_eq *eq, char *to,
                          size_t size) {
  int products = n->op == OP_EINSUMS ? n->n_out : 1;
  size_t at = 0;
  hp_shape a = shape_of(operand(p, n, 0));
  const char *open = products > 1 ? "(" : "", *close = products > 1 ? ")" : "";
  for (int k = 1; k <= products && at < size; k++) {
    einsum_sizes s;
    hp_shape b = shape_of(operand(p, n, k));
    if (einsum_bind(eq, &a, &b, &s)) err_clear();
    at += (size_t)snprintf(to + at, size - at, "%s%lld%s", k > 1 ? "+" : open,
                           (long long)extent(eq, &s, EINSUM_COL), k < products ? "" : close);
  }
  return at;
}

/* A product that sums the outermost dim of both operands sums over tokens: the gradient of a
 * weight; others of the backward give that of an activation. */
static void name_einsum(const program *p, const prog_inst *n, hp_op_time *row) {
  einsum_eq eq;
  einsum_sizes s;
  hp_shape a = shape_of(operand(p, n, 0)), b = shape_of(operand(p, n, 1));
  const char *type = dtype_name(is_bf16(p, n) ? HP_BF16 : (hp_dtype)operand(p, n, 0)->dtype);
  if (einsum_parse(inst_str(p, n, "eq"), &eq) || einsum_bind(&eq, &a, &b, &s)) {
    err_clear();
    return;
  }
  bool sums_tokens = *eq.a && *eq.b && !strchr(eq.out, *eq.a) && !strchr(eq.out, *eq.b);
  int64_t batch = extent(&eq, &s, EINSUM_BATCH);
  if (n->phase == PHASE_FORWARD) PUT(row->kind, "einsum forward");
  else if (n->phase == PHASE_BACKWARD) PUT(row->kind, "einsum %s", sums_tokens ? "dW" : "dX");
  size_t at = batch > 1 ? (size_t)PUT(row->shape, "%lld*", (long long)batch) : 0;
  int64_t rows = extent(&eq, &s, EINSUM_ROW), inner = extent(&eq, &s, EINSUM_INNER);
  at += (size_t)snprintf(row->shape + at, sizeof row->shape - at, "%lldx", (long long)rows);
  at += put_columns(p, n, &eq, row->shape + at, sizeof row->shape - at);
  snprintf(row->shape + at, sizeof row->shape - at, "x%lld %s", (long long)inner, type);
}

/* S: the keys of a sequence, in the mean those that are seen. */
static void name_attention(const program *p, const prog_inst *n, const seen_keys *seen,
                           hp_op_time *row) {
  const int64_t *q = operand(p, n, 0)->dim, *k = operand(p, n, 1)->dim;
  int64_t keys = k[1];
  if (seen && seen->pairs > 0) {
    seen_work(p, n, *seen, &row->flops, &row->bytes);
    keys = (int64_t)(seen->keys / (double)k[0] + 0.5);
  }
  PUT(row->shape, "B%lld T%lld S%lld H%lld/%lld D%lld %s", (long long)q[0], (long long)q[1],
      (long long)keys, (long long)q[2], (long long)k[2], (long long)q[3],
      dtype_name((hp_dtype)operand(p, n, 0)->dtype));
}

/* By what it does, with the bytes that it touches and its machine operations. */
static void name_loop(const program *p, const prog_inst *n, hp_op_time *row) {
  const char *body = inst_str(p, n, "body");
  char title[32];
  loop l;
  if (loop_parse(body, strlen(body), "body", &l)) {
    err_clear();
    return;
  }
  loop_title(&l, title, sizeof title);
  loop_cost(&l, &row->flops, &row->bytes);
  loop_free(&l);
  PUT(row->kind, "loop %s%s", title, strcmp(title, "adamw") ? phase_word(n->phase) : "");
}

static bool meets(const device *d, const prog_inst *n) {
  return d->mesh && op_flags((op_id)n->op) & OPF_MEETS;
}

static void name_collective(const program *p, const device *d, const prog_inst *n,
                            hp_op_time *row) {
  int64_t axes[ATTR_LIST_MAX];
  int count = inst_list(p, n, "axes", axes);
  size_t at = (size_t)PUT(row->kind, "%s", op_table[n->op].name);
  for (int i = 0; i < count && at < sizeof row->kind; i++)
    at += (size_t)snprintf(row->kind + at, sizeof row->kind - at, "%c%s", i ? ',' : ' ',
                           d->mesh->name[axes[i]]);
  row->bytes = predict_received(p, n);
}

/* A name in the model without the numbers of layers: "model.layers.*.mlp". */
static void name_place(const char *loc, char *out, size_t size) {
  size_t n = 0;
  for (const char *c = loc; *c && n + 1 < size;) {
    size_t len = strcspn(c, ".");
    bool number = len && strspn(c, "0123456789") == len;
    n += (size_t)snprintf(out + n, size - n, "%s%.*s", c == loc ? "" : ".", number ? 1 : (int)len,
                          number ? "*" : c);
    c += len + (c[len] == '.');
  }
}

static void set_limit(const program *p, const device *d, const prog_inst *n, hp_op_time *row) {
  const hp_limits *l = &d->limits;
  bool dots = is_bf16(p, n);
  double peak = n->op == OP_FUSED ? l->flops / 2 : dots ? l->bf16_flops : l->flops;
  double work = peak > 0 ? row->flops / peak : 0, move = l->bytes > 0 ? row->bytes / l->bytes : 0;
  row->limit = work > move ? "flops" : "bytes";
  row->limit_s = work > move ? work : move;
  if (!meets(d, n)) return;
  row->limit = "link";
  row->limit_s = predict_inst(d->cluster, d->mesh, p, n);
}

static void describe(const program *p, const device *d, const prog_inst *n, const seen_keys *seen,
                     hp_op_time *row) {
  *row = (hp_op_time){.count = 1, .flops = n->flops, .bytes = n->bytes};
  const char *name = op_table[n->op].name;
  row->beside = n->stream != STREAM_COMPUTE;
  PUT(row->kind, "%s%s", name, strstr(name, "_grad") ? "" : phase_word(n->phase));
  if (n->engine) PUT(row->engine, "%s", program_str(p, n->engine));
  name_place(program_str(p, n->loc), row->place, sizeof row->place);
  if (n->op == OP_EINSUM || n->op == OP_EINSUMS) name_einsum(p, n, row);
  else if (n->op == OP_ATTENTION || n->op == OP_ATTENTION_GRAD) name_attention(p, n, seen, row);
  else if (n->op == OP_FUSED) name_loop(p, n, row);
  else if (meets(d, n)) name_collective(p, d, n, row);
  set_limit(p, d, n, row);
}

/* --- rows ------------------------------------------------------------------------------------- */

static bool same_work(const hp_op_time *a, const hp_op_time *b) {
  return !strcmp(a->kind, b->kind) && !strcmp(a->shape, b->shape) &&
         !strcmp(a->engine, b->engine) && a->limit == b->limit && a->beside == b->beside;
}

static hp_status add_row(op_times *all, const hp_op_time *one) {
  for (size_t i = 0; i < all->len; i++) {
    hp_op_time *row = &all->at[i];
    if (!same_work(row, one)) continue;
    row->count++;
    row->seconds += one->seconds;
    row->limit_s += one->limit_s;
    row->flops += one->flops;
    row->bytes += one->bytes;
    row->place[graph_common_place(row->place, one->place)] = 0;
    return HP_OK;
  }
  return vec_push(all, *one) ? HP_OK : HP_ERR_OOM;
}

/* What goes beside computation has none: where that waits for it is a row of its own. */
static void set_gap(hp_op_time *r) {
  if (!r->beside && r->seconds > r->limit_s) r->gap_s = r->seconds - r->limit_s;
}

static int by_gap(const void *a, const void *b) {
  const hp_op_time *x = a, *y = b;
  if (x->gap_s != y->gap_s) return x->gap_s < y->gap_s ? 1 : -1;
  if (x->seconds != y->seconds) return x->seconds < y->seconds ? 1 : -1;
  if (x->limit_s != y->limit_s) return x->limit_s < y->limit_s ? 1 : -1;
  return strcmp(x->kind, y->kind);
}

hp_status op_times_make(const program *p, const device *d, const double *seconds, double run_s,
                        const seen_keys *seen, op_times *out) {
  op_times all = {0};
  hp_status st = HP_OK;
  hp_op_time one;
  for (size_t i = 0; i < p->insts.len && !st; i++) {
    describe(p, d, program_inst(p, i), seen ? &seen[i] : NULL, &one);
    one.seconds = seconds ? seconds[i] : 0;
    if (!one.beside) run_s -= one.seconds;
    st = add_row(&all, &one);
  }
  one = (hp_op_time){.kind = "between instructions", .limit = "wait", .count = 1, .seconds = run_s};
  if (!st && run_s > 0) st = add_row(&all, &one);
  if (st) {
    vec_free(&all);
    return st;
  }
  for (size_t i = 0; i < all.len; i++) set_gap(&all.at[i]);
  if (all.len) qsort(all.at, all.len, sizeof *all.at, by_gap);
  *out = all;
  return HP_OK;
}
