/* Contractions: an instruction's equation as a batched matrix product. */
#include "backend/cpu/cpu_kernel.h"

#include <string.h>

typedef struct {
  einsum_plan p;
  const gemm_engine *engine;
  int out;       /* index of the result among operands and results */
  int64_t bytes; /* of the result */
} planned;

static einsum_tensor make_tensor(const ir_value *t) {
  hp_shape s = {.rank = t->rank};
  memcpy(s.dim, t->dim, sizeof s.dim);
  return einsum_dense((hp_dtype)t->dtype, &s);
}

hp_status einsum_plan_inst(const program *p, const prog_inst *n, int k, einsum_plan *out) {
  einsum_eq eq;
  einsum_options o = {.alpha = 1,
                      .rounded = true,
                      .accumulate = n->op == OP_EINSUM && n->n_in == 3};
  HP_TRY(einsum_parse(inst_str(p, n, "eq"), &eq));
  einsum_tensor a = make_tensor(&program_arg(p, n, 0)->type),
                b = make_tensor(&program_arg(p, n, 1 + k)->type),
                c = make_tensor(&program_arg(p, n, n->n_in + k)->type);
  return einsum_plan_make(&eq, &a, &b, &c, &o, out);
}

hp_status plan_einsum(cpu_loading *l, const prog_inst *n, void **plan, uint64_t *work) {
  planned *k = arena_alloc(&l->mem, 1, sizeof *k);
  HP_TRY_MEM(k);
  k->out = n->n_in;
  k->bytes = value_bytes(&program_arg(l->p, n, n->n_in)->type);
  HP_TRY(einsum_plan_inst(l->p, n, 0, &k->p));
  k->engine = engine_default();
  if (n->engine) HP_TRY(engine_find(program_str(l->p, n->engine), &k->engine));
  if (!einsum_supports(&k->p, k->engine))
    HP_FAIL(HP_ERR_UNSUPPORTED, "einsum \"%s\": engine %s cannot run it", inst_str(l->p, n, "eq"),
            k->engine->name);
  *work = einsum_workspace(&k->p, k->engine, pool_size(l->dev->threads));
  *plan = k;
  return HP_OK;
}

/* The start of the chains and the result usually share memory. */
hp_status run_einsum(const cpu_call *c) {
  const planned *k = c->plan;
  void *out = c->at[k->out];
  if (k->p.options.accumulate && c->at[2] != out) cpu_move(c, out, c->at[2], k->bytes);
  return einsum_run(&k->p, k->engine, c->at[0], c->at[1], out, c->dev->threads, c->work);
}
