/* Embedding, rotary embedding, cross-entropy, reductions and random numbers: calls the kernels
 * of rowops.h for instructions.  A failure names the place in the model. */
#include "backend/cpu/cpu_kernel.h"
#include "backend/cpu/rows/rowops.h"

#include <string.h>

static hp_status at_place(const cpu_call *c, hp_status st) {
  if (!st) return HP_OK;
  err_report why;
  err_take(st, &why);
  HP_FAIL(st, "%s \"%s\": %s", op_table[c->n->op].name, program_str(c->p, c->n->loc), why.message);
}

/* --- embedding -------------------------------------------------------------------------------- */

static row_ids make_ids(const cpu_call *c, const ir_value *table, int ids) {
  const ir_value *t = call_type(c, ids);
  return (row_ids){.V = table->dim[0],
                   .C = table->dim[1],
                   .n = value_elements(t),
                   .ids = c->at[ids],
                   .id_type = (hp_dtype)t->dtype};
}

hp_status run_embedding(const cpu_call *c) {
  row_ids r = make_ids(c, call_type(c, 0), 1);
  return at_place(c, row_embedding(c->dev->isa, c->dev->threads, &r,
                                   (hp_dtype)call_type(c, 0)->dtype, c->at[0], c->at[2]));
}

hp_status plan_embedding_grad(cpu_loading *l, const prog_inst *n, void **plan, uint64_t *work) {
  const ir_value *table = &program_arg(l->p, n, 2)->type, *ids = &program_arg(l->p, n, 1)->type;
  row_ids r = {.V = table->dim[0],
               .C = table->dim[1],
               .n = value_elements(ids),
               .id_type = (hp_dtype)ids->dtype};
  size_t bytes;
  (void)plan;
  HP_TRY(row_embedding_grad_work(&r, &bytes));
  *work = bytes;
  return HP_OK;
}

hp_status run_embedding_grad(const cpu_call *c) {
  const ir_value *table = call_type(c, 2);
  row_ids r = make_ids(c, table, 1);
  void *out = c->at[c->n->n_in];
  bool onto = c->n->n_in == 3;
  if (onto && c->at[2] != out) cpu_move(c, out, c->at[2], value_bytes(table));
  return at_place(c, row_embedding_grad(c->dev->isa, c->dev->threads, &r,
                                        (hp_dtype)call_type(c, 0)->dtype, c->at[0],
                                        (hp_dtype)table->dtype, out, onto, c->work));
}

/* --- rotary embedding ------------------------------------------------------------------------- */

hp_status run_rope(const cpu_call *c) {
  const ir_value *x = call_type(c, 0), *table = call_type(c, 1);
  row_rope_spec r = {.B = x->dim[0],
                     .T = x->dim[1],
                     .H = x->dim[2],
                     .D = x->dim[3],
                     .P = table->dim[0],
                     .R = 2 * table->dim[1],
                     .cos = c->at[1],
                     .sin = c->at[2],
                     .position = c->at[3],
                     .interleaved = inst_int(c->p, c->n, "interleaved") != 0,
                     .inverse = inst_int(c->p, c->n, "inverse") != 0};
  return at_place(c, row_rope(c->dev->isa, c->dev->threads, &r, (hp_dtype)x->dtype, c->at[0],
                              c->at[4]));
}

/* --- cross-entropy ---------------------------------------------------------------------------- */

static row_labels make_labels(const cpu_call *c) {
  const ir_value *x = call_type(c, 0), *l = call_type(c, 1);
  return (row_labels){.N = value_elements(l),
                      .V = x->dim[x->rank - 1],
                      .logits = c->at[0],
                      .dtype = (hp_dtype)x->dtype,
                      .labels = c->at[1],
                      .label_type = (hp_dtype)l->dtype,
                      .ignore = inst_int(c->p, c->n, "ignore")};
}

hp_status run_cross_entropy(const cpu_call *c) {
  row_labels r = make_labels(c);
  return at_place(c, row_cross_entropy(c->dev->isa, c->dev->threads, &r, c->at[2], c->at[3]));
}

hp_status run_cross_entropy_grad(const cpu_call *c) {
  row_labels r = make_labels(c);
  return at_place(c, row_cross_entropy_grad(c->dev->isa, c->dev->threads, &r, c->at[2], c->at[3],
                                            c->at[4]));
}

/* --- over a tensor ---------------------------------------------------------------------------- */

hp_status run_argmax(const cpu_call *c) {
  const ir_value *x = call_type(c, 0);
  return row_argmax(c->dev->isa, c->dev->threads, (hp_dtype)x->dtype, c->at[0],
                    value_elements(call_type(c, 1)), x->dim[x->rank - 1], c->at[1]);
}

hp_status plan_sum_sq(cpu_loading *l, const prog_inst *n, void **plan, uint64_t *work) {
  size_t bytes;
  (void)plan;
  HP_TRY(row_sum_sq_work(value_elements(&program_arg(l->p, n, 0)->type), &bytes));
  *work = bytes;
  return HP_OK;
}

hp_status run_sum_sq(const cpu_call *c) {
  const ir_value *x = call_type(c, 0);
  double sum;
  HP_TRY(row_sum_sq(c->dev->isa, c->dev->threads, (hp_dtype)x->dtype, c->at[0], value_elements(x),
                    &sum, c->work));
  *(float *)c->at[1] = (float)sum;
  return HP_OK;
}

hp_status run_random(const cpu_call *c) {
  const ir_value *t = call_type(c, 1);
  row_random_spec r = {.kind = c->n->op == OP_NORMAL ? ROW_NORMAL : ROW_UNIFORM,
                       .seed = (uint64_t) * (const int64_t *)c->at[0],
                       .stream = (uint64_t)inst_int(c->p, c->n, "stream"),
                       .local = {.rank = t->rank}};
  memcpy(r.local.dim, t->dim, sizeof r.local.dim);
  r.global = r.local;
  return row_random(c->dev->isa, c->dev->threads, &r, (hp_dtype)t->dtype, c->at[1]);
}
