/* A target for tests that compile without a device: no kernels, no limits, the cluster `this`. */
#ifndef BARE_TARGET_H
#define BARE_TARGET_H

#include "compile/compile.h"

typedef struct {
  target t;
  capabilities can;
  cluster c;
  mesh m;
} bare_target;

static inline uint64_t bare_resident(void *context, const program *p, int tier) {
  (void)context, (void)p, (void)tier;
  return 0;
}
static inline hp_status bare_choose(void *context, program *p) {
  (void)context, (void)p;
  return HP_OK;
}
static inline hp_status bare_prepare(void *context, const program *p, uint64_t *workspace,
                                     void **kernels) {
  (void)context, (void)p, (void)workspace;
  *kernels = NULL;
  return HP_OK;
}
static inline void bare_release(void *kernels) { (void)kernels; }

static inline hp_status bare_target_init(bare_target *b) {
  const char *axis = "device";
  b->can = capabilities_usual();
  HP_TRY(cluster_load("this", &b->c));
  HP_TRY(mesh_init(&(int64_t){1}, &axis, 1, NULL, 0, &b->m));
  b->t = (target){.name = "bare",
                  .can = &b->can,
                  .cluster = &b->c,
                  .mesh = &b->m,
                  .resident_bytes = bare_resident,
                  .choose = bare_choose,
                  .prepare = bare_prepare,
                  .release = bare_release};
  return HP_OK;
}

/* The graph's program for one device; program_free. */
static inline hp_status bare_compile(const hp_graph *g, const hp_compile_options *o, program **p) {
  bare_target b;
  compilation c;
  compiled made = {0};
  HP_TRY(bare_target_init(&b));
  hp_status st = compile_begin(g, NULL, o, &c);
  if (!st) st = compile_for(&c, &b.t, &made);
  compile_end(&c);
  mesh_free(&b.m);
  if (st) program_free(made.p);
  else *p = made.p;
  return st;
}

#endif
