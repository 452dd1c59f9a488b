/* Top-k, elements by index, and products by expert. */
#include "backend/cpu/cpu_kernel.h"
#include "backend/cpu/gemm/grouped.h"
#include "backend/cpu/rows/rowops.h"

/* --- choosing --------------------------------------------------------------------------------- */

static row_choice make_choice(const cpu_call *c, int of, int index) {
  const ir_value *x = call_type(c, of), *i = call_type(c, index);
  int64_t rows = 1;
  for (int d = 0; d < i->rank - 1; d++) rows *= i->dim[d];
  return (row_choice){.N = rows,
                      .width = x->dim[x->rank - 1],
                      .k = i->dim[i->rank - 1],
                      .dtype = (hp_dtype)x->dtype,
                      .index = c->at[index]};
}

hp_status run_topk(const cpu_call *c) {
  row_choice r = make_choice(c, 0, 2);
  row_topk(c->dev->threads, &r, c->at[0], c->at[1]);
  return HP_OK;
}

hp_status run_gather(const cpu_call *c) {
  row_choice r = make_choice(c, 0, 1);
  row_take(c->dev->threads, &r, c->at[0], c->at[2]);
  return HP_OK;
}

hp_status run_scatter_add(const cpu_call *c) {
  row_choice r = make_choice(c, 2, 1);
  row_put(c->dev->threads, &r, c->at[0], c->at[2]);
  return HP_OK;
}

/* --- products by expert ----------------------------------------------------------------------- */

static const ir_value *get_type(const program *p, const prog_inst *n, int k) {
  return &program_arg(p, n, k)->type;
}

/* x may have one row for all slots of an id; weights are [E,N,K] or [E,K,N]. */
static grouped_spec make_spec(const ir_value *ids, const ir_value *x, const ir_value *w,
                              bool transposed, hp_dtype out) {
  int64_t slots = ids->dim[ids->rank - 1];
  return (grouped_spec){.rows = slots ? value_elements(ids) / slots : 0,
                        .slots = slots,
                        .experts = w->dim[0],
                        .n = w->dim[1 + transposed],
                        .k = w->dim[2 - transposed],
                        .shared = x->rank == ids->rank,
                        .transposed = transposed,
                        .type = (hp_dtype)x->dtype,
                        .out_type = out};
}

static grouped_spec make_product_spec(const program *p, const prog_inst *n) {
  return make_spec(get_type(p, n, 2), get_type(p, n, 0), get_type(p, n, 1),
                   inst_int(p, n, "transposed") != 0, (hp_dtype)get_type(p, n, 3)->dtype);
}
static grouped_spec make_gradient_spec(const program *p, const prog_inst *n) {
  const ir_value *dw = get_type(p, n, 3);
  return make_spec(get_type(p, n, 2), get_type(p, n, 1), dw, false, (hp_dtype)dw->dtype);
}

hp_status plan_grouped(cpu_loading *l, const prog_inst *n, void **plan, uint64_t *work) {
  grouped_spec s = make_product_spec(l->p, n);
  size_t bytes;
  (void)plan;
  HP_TRY(grouped_work(l->dev->isa, &s, pool_size(l->dev->threads), &bytes));
  *work = bytes;
  return HP_OK;
}

hp_status run_grouped(const cpu_call *c) {
  grouped_spec s = make_product_spec(c->p, c->n);
  grouped_run(c->dev->isa, c->dev->threads, &s, c->at[0], c->at[1], c->at[2], c->at[3], c->work);
  return HP_OK;
}

hp_status plan_grouped_grad(cpu_loading *l, const prog_inst *n, void **plan, uint64_t *work) {
  grouped_spec s = make_gradient_spec(l->p, n);
  size_t bytes;
  (void)plan;
  HP_TRY(grouped_grad_work(l->dev->isa, &s, pool_size(l->dev->threads), &bytes));
  *work = bytes;
  return HP_OK;
}

hp_status run_grouped_grad(const cpu_call *c) {
  grouped_spec s = make_gradient_spec(c->p, c->n);
  grouped_grad_run(c->dev->isa, c->dev->threads, &s, c->at[0], c->at[1], c->at[2], c->at[3],
                   c->work);
  return HP_OK;
}
