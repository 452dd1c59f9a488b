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

/* What decides a plan; attributes and names of engines are interned. */
typedef struct {
  uint32_t attr, engine, operands;
  struct {
    uint32_t dtype, rank;
    int64_t dim[HP_MAX_RANK];
  } type[4];
} plan_key;

static plan_key make_key(const program *p, const prog_inst *n) {
  plan_key key;
  memset(&key, 0, sizeof key); /* its padding too */
  key.attr = n->attr;
  key.engine = n->engine;
  key.operands = n->n_in;
  for (int i = 0; i < n->n_in + n->n_out && i < 4; i++) {
    const ir_value *t = &program_arg(p, n, i)->type;
    key.type[i].dtype = t->dtype;
    key.type[i].rank = t->rank;
    for (int d = 0; d < t->rank; d++) key.type[i].dim[d] = t->dim[d];
  }
  return key;
}

static hp_status make_plan(cpu_loading *l, const prog_inst *n, planned **out) {
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
  *out = k;
  return HP_OK;
}

/* The layers of a model have the same products: each is planned once. */
hp_status plan_einsum(cpu_loading *l, const prog_inst *n, void **plan, uint64_t *work) {
  const plan_key key = make_key(l->p, n);
  uint32_t at;
  planned *k = NULL;
  if (map_get(&l->einsums, &key, sizeof key, &at)) {
    k = l->einsum.at[at];
  } else {
    HP_TRY(make_plan(l, n, &k));
    HP_TRY(map_set(&l->einsums, &key, sizeof key, (uint32_t)l->einsum.len));
    if (!vec_push(&l->einsum, k)) return HP_ERR_OOM;
  }
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
