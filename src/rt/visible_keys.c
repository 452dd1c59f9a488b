#include "rt/visible_keys.h"

#include "base/dtype.h"
#include "ops/paged.h"

static const ir_value *operand(const program *p, const prog_inst *n, int i) {
  return &program_arg(p, n, i)->type;
}

/* The operands of attention and of its gradient, without a span. */
static int operands(const prog_inst *n) {
  if (n->op == OP_PAGED_ATTENTION) return 4;
  return n->op == OP_ATTENTION ? 3 : n->op == OP_ATTENTION_GRAD ? 6 : UINT8_MAX;
}

/* Keys that a sequence can have; those that exist; elements of a key and a value of all heads. */
static int64_t count_room(const program *p, const prog_inst *n) {
  if (n->op != OP_PAGED_ATTENTION) return operand(p, n, 1)->dim[1];
  return operand(p, n, 3)->dim[1] * PAGE_TOKENS;
}
static double count_keys(const program *p, const prog_inst *n) {
  const ir_value *k = operand(p, n, 1);
  double all = (double)(k->dim[0] * k->dim[1]);
  return n->op == OP_PAGED_ATTENTION ? all * PAGE_TOKENS : all;
}
static double count_width(const program *p, const prog_inst *n) {
  const ir_value *k = operand(p, n, 1), *v = operand(p, n, 2);
  bool pages = n->op == OP_PAGED_ATTENTION;
  return (double)(k->dim[2] * (k->dim[3] + v->dim[pages ? 4 : 3]));
}

const prog_buffer *visible_keys_input(const program *p, const prog_inst *n) {
  int at = operands(n);
  if (n->n_in <= at || operand(p, n, at)->dtype != HP_I32) return NULL; /* i64: a seed */
  const prog_buffer *f = program_arg(p, n, at), *root = &p->buffers.at[f->root];
  bool whole = root->flags & BUFFER_INPUT && f->at == 0 && f->bytes == root->bytes;
  return whole ? root : NULL;
}

/* The first and last visible key of a query, within the keys that exist. */
static void clamp(const int32_t *span, int64_t window, int64_t keys, int64_t *lo, int64_t *hi) {
  *lo = span[0];
  *hi = span[1];
  if (window > 0 && *hi - *lo >= window) *lo = *hi - window + 1;
  if (*lo < 0) *lo = 0;
  if (*hi > keys - 1) *hi = keys - 1;
}

visible_keys visible_keys_count(const program *p, const prog_inst *n, const int32_t *span) {
  int64_t B = operand(p, n, 0)->dim[0], T = operand(p, n, 0)->dim[1], S = count_room(p, n);
  int64_t window = inst_int(p, n, "window"), lo, hi;
  visible_keys visible = {0};
  for (int64_t b = 0; b < B; b++) {
    int64_t first = S, last = -1;
    for (int64_t t = 0; t < T; t++, span += 2) {
      clamp(span, window, S, &lo, &hi);
      if (hi < lo) continue;
      visible.pairs += (double)(hi - lo + 1);
      if (lo < first) first = lo;
      if (hi > last) last = hi;
    }
    if (first <= last) visible.keys += (double)(last - first + 1);
  }
  return visible;
}

void visible_keys_cost(const program *p, const prog_inst *n, visible_keys visible, double *flops,
                       double *bytes) {
  const ir_value *q = operand(p, n, 0), *k = operand(p, n, 1);
  double width = count_width(p, n);
  *flops = 2 * (double)(q->dim[2] / k->dim[2]) * width * visible.pairs;
  if (n->op == OP_ATTENTION_GRAD) *flops *= 2.5; /* as ops/nn.c counts them */
  *bytes =
      n->bytes - (count_keys(p, n) - visible.keys) * width * (double)dtype_size((hp_dtype)k->dtype);
}
