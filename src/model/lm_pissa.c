/* PiSSA (Meng et al. 2024), as peft does it. */
#include "model/lm_pissa.h"

#include "base/dtype.h"
#include "base/milestone.h"
#include "base/svd.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct {
  lm *m;
  mt19937 random; /* torch's, as it is when peft makes the adapter */
  pool *threads;
} splitting;

/* A module while it is split. */
typedef struct {
  const model_linear *l;
  const model_param *p; /* of its weight */
  int64_t rank;
  double scale;
  float *w, *A, *B; /* [out,in] or transposed, [rank,in], [out,rank] */
  void *stored;     /* w as the device has it */
} split;

/* The weight of module l, or one of its factors. */
static void name_part(const model_linear *l, const char *part, char name[192]) {
  snprintf(name, 192, "%.152s.%s", l->name, part);
}

static size_t elements(const split *s) { return (size_t)s->l->in * (size_t)s->l->out; }

static hp_status read_weight(const lm *m, split *s) {
  size_t n = elements(s);
  HP_TRY(hp_read(m->d, s->p->name, s->stored, n * dtype_size(s->p->dtype)));
  return dtype_convert(HP_F32, s->w, s->p->dtype, s->stored, n);
}

static hp_status find_vectors(splitting *x, const split *s, svd_vectors *v) {
  const adapter_options *o = &x->m->adapter->o;
  svd_matrix a = {s->w, s->l->out, s->l->in, s->l->transposed};
  if (o->pissa_iter < 0) return svd_exact(&a, v);
  mt19937_skip(&x->random,
               s->rank * (s->l->in + s->l->out)); /* of the factors that peft replaces */
  return svd_lowrank(&a, o->pissa_iter, &x->random, x->threads, v);
}

/* A, B, and the weight without scale B A. */
static void take_apart(const split *s, const svd_vectors *v) {
  int64_t in = s->l->in, out = s->l->out, r = s->rank;
  double scale = s->scale;
  for (int64_t k = 0; k < r; k++) {
    double root = sqrt(v->s[k] / scale);
    for (int64_t j = 0; j < in; j++) s->A[k * in + j] = (float)(root * v->v[j * r + k]);
    for (int64_t i = 0; i < out; i++) s->B[i * r + k] = (float)(root * v->u[i * r + k]);
  }
  for (int64_t i = 0; i < out; i++)
    for (int64_t j = 0; j < in; j++) {
      double sum = 0;
      for (int64_t k = 0; k < r; k++) sum += (double)s->B[i * r + k] * (double)s->A[k * in + j];
      float *w = &s->w[s->l->transposed ? j * out + i : i * in + j];
      *w = (float)((double)*w - scale * sum);
    }
}

static hp_status write_split(const lm *m, const split *s) {
  size_t n = elements(s), r = (size_t)s->rank;
  char name[192];
  HP_TRY(dtype_convert(s->p->dtype, s->stored, HP_F32, s->w, n));
  HP_TRY(hp_write(m->d, s->p->name, s->stored, n * dtype_size(s->p->dtype)));
  name_part(s->l, "lora_A.weight", name);
  HP_TRY(hp_write(m->d, name, s->A, r * (size_t)s->l->in * sizeof *s->A));
  name_part(s->l, "lora_B.weight", name);
  return hp_write(m->d, name, s->B, r * (size_t)s->l->out * sizeof *s->B);
}

static hp_status split_weight(splitting *x, split *s) {
  size_t in = (size_t)s->l->in, out = (size_t)s->l->out, r = (size_t)s->rank;
  svd_vectors v = {.rank = s->rank,
                   .u = mem_calloc(out * r, sizeof *v.u),
                   .s = mem_calloc(r, sizeof *v.s),
                   .v = mem_calloc(in * r, sizeof *v.v)};
  s->w = mem_calloc(in * out, sizeof *s->w);
  s->stored = mem_calloc(in * out, dtype_size(s->p->dtype));
  hp_status st = v.u && v.s && v.v && s->w && s->stored ? HP_OK : HP_ERR_OOM;
  if (!st) st = read_weight(x->m, s);
  if (!st) st = find_vectors(x, s, &v);
  if (!st) take_apart(s, &v);
  if (!st) st = write_split(x->m, s);
  mem_free(v.u);
  mem_free(v.s);
  mem_free(v.v);
  mem_free(s->w);
  mem_free(s->stored);
  return st;
}

/* The factors are kept: what training adds to them is a plain adapter. */
static hp_status split_module(splitting *x, const model_linear *l, const adapter_module *module) {
  char name[192];
  adapter_start kept = {mem_calloc((size_t)(module->rank * l->in), sizeof(float)),
                        mem_calloc((size_t)(module->rank * l->out), sizeof(float))};
  if (!vec_push(&x->m->adapter->starts, kept)) {
    mem_free(kept.A);
    mem_free(kept.B);
    return HP_ERR_OOM;
  }
  if (!kept.A || !kept.B) return HP_ERR_OOM;
  name_part(l, "weight", name);
  split s = {.l = l,
             .p = model_param_find(x->m->params.at, x->m->params.len, name),
             .rank = module->rank,
             .scale = adapter_scale(x->m->adapter, module),
             .A = kept.A,
             .B = kept.B};
  HP_ASSERT(s.p);
  milestone_count_work();
  return split_weight(x, &s);
}

hp_status lm_split_weights(lm *m) {
  splitting x = {.m = m};
  const char *before = milestone_set_activity("finding the singular vectors of the weights");
  mt19937_seed(&x.random, (uint32_t)m->adapter->o.seed);
  hp_status st = pool_create(0, false, &x.threads);
  for (size_t i = 0; !st && i < m->linears.len; i++) {
    const adapter_module *module = adapter_find(m->adapter, m->linears.at[i].name);
    if (module) st = split_module(&x, &m->linears.at[i], module);
  }
  pool_free(x.threads);
  milestone_set_activity(before);
  return st;
}
