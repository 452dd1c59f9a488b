/* Contractions: an instruction's equation as a batched matrix product. */
#include "backend/cpu/cpu_kernel.h"
#include "backend/cpu/einsum_plan.h"

#include <string.h>

typedef struct {
  einsum_plan p;
  const gemm_engine *engine;
} planned;

static einsum_tensor tensor_of(const ir_value *t) {
  hp_shape s = {.rank = t->rank};
  memcpy(s.dim, t->dim, sizeof s.dim);
  return einsum_dense((hp_dtype)t->dtype, &s);
}

/* The engine of an instruction that names none; any but ours is written into the program. */
static hp_status choose(cpu_loading *l, const prog_inst *n, planned *k) {
  bool half = program_arg(l->p, n, 0)->type.dtype != HP_F32;
  k->engine = half ? l->dev->half : engine_default();
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
  einsum_options o = {.alpha = 1};
  HP_TRY(einsum_parse(inst_str(l->p, n, "eq"), &eq));
  einsum_tensor a = tensor_of(&program_arg(l->p, n, 0)->type),
                b = tensor_of(&program_arg(l->p, n, 1)->type);
  einsum_tensor out = tensor_of(&program_arg(l->p, n, 2)->type);
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

hp_status run_einsum(const cpu_call *c) {
  const planned *k = c->plan;
  return einsum_run(&k->p, k->engine, c->at[0], c->at[1], c->at[2], c->dev->threads, c->work);
}
