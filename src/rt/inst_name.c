#include "rt/inst_name.h"

#include "base/dtype.h"
#include "codegen/loop.h"
#include "ir/einsum_eq.h"
#include "mem/timeline.h"
#include "ops/op_class.h"
#include "ops/paged.h"
#include "prog/tier_check.h"
#include "sim/cost.h"

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

static int64_t extent(const einsum_eq *eq, const einsum_sizes *s, einsum_role role) {
  char letters[EINSUM_LETTERS_MAX + 1];
  int64_t all = 1;
  einsum_letters(eq, role, letters);
  for (const char *c = letters; *c; c++) all *= einsum_size(s, *c);
  return all;
}

/* The columns of a product, or of each product of one instruction: "(768+256+256)". */
static size_t put_columns(const program *p, const prog_inst *n, const einsum_eq *eq, char *to,
                          size_t size) {
  int products = n->op == OP_EINSUMS ? n->n_out : 1;
  size_t at = 0;
  hp_shape a = value_shape(operand(p, n, 0));
  const char *open = products > 1 ? "(" : "", *close = products > 1 ? ")" : "";
  for (int k = 1; k <= products && at < size; k++) {
    einsum_sizes s;
    hp_shape b = value_shape(operand(p, n, k));
    if (einsum_bind(eq, &a, &b, &s)) err_clear();
    at += (size_t)snprintf(to + at, size - at, "%s%lld%s", k > 1 ? "+" : open,
                           (long long)extent(eq, &s, EINSUM_COL), k < products ? "" : close);
  }
  return at;
}

/* A product that sums the outermost dim of both operands sums over tokens: the gradient of a
 * weight; other products of the backward give the gradient of an activation. */
static void name_einsum(const program *p, const prog_inst *n, hp_op_time *row) {
  einsum_eq eq;
  einsum_sizes s;
  hp_shape a = value_shape(operand(p, n, 0)), b = value_shape(operand(p, n, 1));
  const char *type = dtype_name(cost_is_bf16(p, n) ? HP_BF16 : (hp_dtype)operand(p, n, 0)->dtype);
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

/* S: the keys of a sequence; the mean of the visible keys. */
static void name_attention(const program *p, const prog_inst *n, const visible_keys *visible,
                           hp_op_time *row) {
  const int64_t *q = operand(p, n, 0)->dim, *k = operand(p, n, 1)->dim;
  int64_t keys = n->op == OP_PAGED_ATTENTION ? operand(p, n, 3)->dim[1] * PAGE_TOKENS : k[1];
  if (visible && visible->pairs > 0) {
    visible_keys_cost(p, n, *visible, &row->flops, &row->bytes);
    keys = (int64_t)(visible->keys / (double)q[0] + 0.5);
  }
  PUT(row->shape, "B%lld T%lld S%lld H%lld/%lld D%lld %s", (long long)q[0], (long long)q[1],
      (long long)keys, (long long)q[2], (long long)k[2], (long long)q[3],
      dtype_name((hp_dtype)operand(p, n, 0)->dtype));
}

/* Named by what it computes, with its bytes and machine operations. */
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

static void name_collective(const program *p, const mesh *m, const prog_inst *n, hp_op_time *row) {
  int64_t axes[ATTR_LIST_MAX];
  int count = inst_list(p, n, "axes", axes);
  size_t at = (size_t)PUT(row->kind, "%s", op_table[n->op].name);
  for (int i = 0; i < count && at < sizeof row->kind; i++)
    at += (size_t)snprintf(row->kind + at, sizeof row->kind - at, "%c%s", i ? ',' : ' ',
                           m->name[axes[i]]);
  row->bytes = cost_received(p, n);
}

/* Copies are named by the slower of their tiers. */
static void name_copy(const program *p, const prog_inst *n, hp_op_time *row) {
  tier_copy c = tier_copy_of(p, n);
  int from = c.from->tier, to = c.to->tier;
  bool in = to < from;
  PUT(row->kind, "%s %s %s", op_table[n->op].name, in ? "from" : "to", tier_name(in ? from : to));
  row->bytes = (double)c.bytes;
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

void inst_describe(const program *p, const mesh *m, const prog_inst *n, const visible_keys *visible,
                   hp_op_time *row) {
  *row = (hp_op_time){.count = 1, .flops = n->flops, .bytes = n->bytes};
  const char *name = op_table[n->op].name;
  row->overlapped = n->stream != STREAM_COMPUTE;
  PUT(row->kind, "%s%s", name, strstr(name, "_grad") ? "" : phase_word(n->phase));
  if (n->engine) PUT(row->engine, "%s", program_str(p, n->engine));
  name_place(program_str(p, n->loc), row->place, sizeof row->place);
  if (n->op == OP_EINSUM || n->op == OP_EINSUMS) name_einsum(p, n, row);
  else if (op_class((op_id)n->op) == COST_ATTENTION || n->op == OP_ATTENTION_GRAD)
    name_attention(p, n, visible, row);
  else if (n->op == OP_FUSED) name_loop(p, n, row);
  else if (op_flags((op_id)n->op) & OPF_MOVE) name_copy(p, n, row);
  else if (m && op_flags((op_id)n->op) & OPF_RENDEZVOUS) name_collective(p, m, n, row);
}

void inst_print_name(const program *p, const mesh *m, const prog_inst *n, str *out) {
  hp_op_time row;
  inst_describe(p, m, n, NULL, &row);
  str_add(out, row.kind);
  if (n->loc) str_printf(out, " %s", program_str(p, n->loc));
}

int inst_layer(const program *p, const prog_inst *n) {
  for (const char *c = program_str(p, n->loc); *c;) {
    size_t len = strcspn(c, ".");
    if (len && len < 8 && strspn(c, "0123456789") == len) return (int)strtol(c, NULL, 10);
    c += len + (c[len] == '.');
  }
  return n->block ? n->block - 1 : -1;
}

/* "layers.3" of "model.layers.3.mlp"; "" if no component is a number. */
static void place_layer(const char *place, char out[PLACE_LAYER]) {
  const char *word = NULL; /* the component before */
  *out = 0;
  for (const char *c = place; *c;) {
    size_t len = strcspn(c, ".");
    if (word && len && len < 8 && strspn(c, "0123456789") == len) {
      snprintf(out, PLACE_LAYER, "%.*s", (int)(c + len - word), word);
      return;
    }
    word = c;
    c += len + (c[len] == '.');
  }
}

void inst_name_layer(const program *p, const prog_inst *n, char out[PLACE_LAYER]) {
  place_layer(program_str(p, n->loc), out);
  if (!*out && n->block) snprintf(out, PLACE_LAYER, "block %d", n->block);
}

/* --- buffers ---------------------------------------------------------------------------------- */

static void note_maker(const program *p, uint32_t buffer, uint32_t inst, uint32_t *maker) {
  uint32_t root = p->buffers.at[buffer].root;
  if (maker[root] == PROG_NONE) maker[root] = inst;
}

hp_status buffer_makers(const program *p, uint32_t **out) {
  uint32_t *maker = mem_calloc(p->buffers.len, sizeof *maker);
  HP_TRY_MEM(maker);
  for (size_t b = 0; b < p->buffers.len; b++) maker[b] = PROG_NONE;
  for (uint32_t i = 0; i < p->insts.len; i++) {
    const prog_inst *n = program_inst(p, i);
    for (int k = 0; k < n->n_out; k++) note_maker(p, program_args(p, n)[n->n_in + k], i, maker);
    if (n->workspace != PROG_NONE) note_maker(p, n->workspace, i, maker);
  }
  *out = maker;
  return HP_OK;
}

/* The buffer whose content it has: the named tensor that is carried in it or fetched to it, the
 * value of which it is a copy, or itself. */
static uint32_t find_origin(const program *p, const uint32_t *maker, uint32_t b) {
  for (size_t steps = 0; steps < p->buffers.len; steps++) { /* texts may have copies in a circle */
    const prog_buffer *f = &p->buffers.at[b];
    if (f->name) return b;
    if (f->carries) return f->carries - 1;
    if (maker[b] == PROG_NONE) return b;
    const prog_inst *n = program_inst(p, maker[b]);
    if (!(op_flags((op_id)n->op) & OPF_MOVE)) return b;
    b = program_arg(p, n, 0)->root;
  }
  return b;
}

/* The number of the result if there are several, or "". */
static void print_place(const program *p, const prog_inst *n, uint32_t b, str *out) {
  for (int k = 0; n->n_out > 1 && k < n->n_out; k++)
    if (p->buffers.at[program_args(p, n)[n->n_in + k]].root == b) {
      str_printf(out, ", result %d", k + 1);
      return;
    }
}

void buffer_print_name(const program *p, const mesh *m, const uint32_t *maker, uint32_t buffer,
                       str *out) {
  uint32_t b = find_origin(p, maker, p->buffers.at[buffer].root);
  const prog_buffer *f = &p->buffers.at[b];
  if (f->name) str_add(out, program_str(p, f->name));
  else if (maker[b] == PROG_NONE) str_add(out, "not used");
  else {
    const prog_inst *n = program_inst(p, maker[b]);
    if (f->flags & BUFFER_WORKSPACE) str_add(out, "workspace of ");
    inst_print_name(p, m, n, out);
    if (!(f->flags & BUFFER_WORKSPACE)) print_place(p, n, b, out);
  }
}

void buffer_name_layer(const program *p, const uint32_t *maker, uint32_t buffer,
                       char out[PLACE_LAYER]) {
  uint32_t b = find_origin(p, maker, p->buffers.at[buffer].root);
  const prog_buffer *f = &p->buffers.at[b];
  bool table =
      f->place == PLACE_STATE && f->class == MEM_OTHER; /* "rope.256.cos": 256 is not a layer */
  *out = 0;
  if (f->name && !table) place_layer(program_str(p, f->name), out);
  if (!*out && maker[b] != PROG_NONE) inst_name_layer(p, program_inst(p, maker[b]), out);
}
