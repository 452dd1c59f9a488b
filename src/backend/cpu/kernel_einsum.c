/* Contractions: an instruction's equation as a batched matrix product. */
#include "backend/cpu/cpu_kernel.h"
#include "backend/cpu/einsum_plan.h"

#include <string.h>

typedef struct {
  einsum_plan p;
  const gemm_engine *engine;
  int out;       /* the result's place among operands and results */
  int64_t bytes; /* of the result */
} planned;

static einsum_tensor tensor_of(const ir_value *t) {
  hp_shape s = {.rank = t->rank};
  memcpy(s.dim, t->dim, sizeof s.dim);
  return einsum_dense((hp_dtype)t->dtype, &s);
}

/* The engine of an instruction that names none; any but ours is written into the program.  Few rows
 * are ours in every dtype: memory bounds them, and libraries made for many rows read it badly. */
static hp_status choose(cpu_loading *l, const prog_inst *n, planned *k) {
  bool half = program_arg(l->p, n, 0)->type.dtype != HP_F32;
  k->engine = half && !gemm_reads_once(&k->p.gemm) ? l->dev->half : engine_default();
  if (!einsum_supports(&k->p, k->engine)) k->engine = engine_default();
  if (k->engine == engine_default()) return HP_OK;
  prog_inst *mine = &l->p->insts.at[n - l->p->insts.at];
  mine->engine = graph_string(l->p->names, k->engine->name);
  return graph_status(l->p->names);
}

hp_status plan_einsum(cpu_loading *l, const prog_inst *n, void **plan, uint64_t *work) {
  planned *k = arena_alloc(&l->mem, 1, sizeof *k);
  HP_TRY_MEM(k);
  einsum_eq eq;
  einsum_options o = {.alpha = 1, .accumulate = n->n_in == 3};
  HP_TRY(einsum_parse(inst_str(l->p, n, "eq"), &eq));
  einsum_tensor a = tensor_of(&program_arg(l->p, n, 0)->type),
                b = tensor_of(&program_arg(l->p, n, 1)->type);
  const ir_value *result = &program_arg(l->p, n, n->n_in)->type;
  einsum_tensor out = tensor_of(result);
  k->out = n->n_in;
  k->bytes = value_bytes(result);
  HP_TRY(einsum_plan_make(&eq, &a, &b, &out, &o, &k->p));
  if (n->engine) HP_TRY(engine_find(program_str(l->p, n->engine), &k->engine));
  else HP_TRY(choose(l, n, k));
  if (!einsum_supports(&k->p, k->engine))
    HP_FAIL(HP_ERR_UNSUPPORTED, "einsum \"%s\": engine %s cannot run it", inst_str(l->p, n, "eq"),
            k->engine->name);
  *work = einsum_workspace(&k->p, k->engine, pool_size(l->dev->threads));
  *plan = k;
  return HP_OK;
}

/* What the chains start from and the result are mostly the same memory. */
hp_status run_einsum(const cpu_call *c) {
  const planned *k = c->plan;
  void *out = c->at[k->out];
  if (k->p.options.accumulate && c->at[2] != out) cpu_move(c, out, c->at[2], k->bytes);
  return einsum_run(&k->p, k->engine, c->at[0], c->at[1], out, c->dev->threads, c->work);
}
