/* Products with one left operand: threads take chunks of all of them from one counter. */
#include "backend/cpu/cpu_kernel.h"

typedef struct {
  int n;
  einsum_plan p[GEMM_TOGETHER];
  bool together; /* without copies or loops around a product */
} planned;

static bool is_one_product(const einsum_plan *p) {
  return !p->copy_a && !p->copy_b && !p->copy_c && !p->n_loops;
}

hp_status plan_einsums(cpu_loading *l, const prog_inst *n, void **plan, uint64_t *work) {
  planned *k = arena_alloc(&l->mem, 1, sizeof *k);
  HP_TRY_MEM(k);
  if (n->n_out > GEMM_TOGETHER)
    HP_FAIL(HP_ERR_UNSUPPORTED, "einsums \"%s\": %d products; at most %d run together",
            inst_str(l->p, n, "eq"), n->n_out, GEMM_TOGETHER);
  *k = (planned){.n = n->n_out, .together = true};
  for (int i = 0; i < k->n; i++) {
    HP_TRY(einsum_plan_inst(l->p, n, i, &k->p[i]));
    uint64_t bytes = einsum_workspace(&k->p[i], engine_default(), pool_size(l->dev->threads));
    if (bytes > *work) *work = bytes;
    k->together &= is_one_product(&k->p[i]);
  }
  *plan = k;
  return HP_OK;
}

hp_status run_einsums(const cpu_call *c) {
  const planned *k = c->plan;
  const void *const a = c->at[0];
  void *const *b = &c->at[1], *const *out = &c->at[1 + k->n];
  if (!k->together) {
    for (int i = 0; i < k->n; i++)
      HP_TRY(einsum_run(&k->p[i], engine_default(), a, b[i], out[i], c->dev->threads, c->work));
    return HP_OK;
  }
  gemm_query q[GEMM_TOGETHER];
  gemm_args args[GEMM_TOGETHER];
  for (int i = 0; i < k->n; i++) {
    q[i] = k->p[i].gemm;
    args[i] = (gemm_args){a, b[i], out[i], NULL};
  }
  gemm_packed_run_all(cpu_best_isa(), q, args, k->n, c->dev->threads, c->work);
  return HP_OK;
}
