/* The CPU backend: threads, memory, and the dispatch of instructions to kernels. */
#include "backend/backend.h"
#include "backend/cpu/cpu_kernel.h"
#include "backend/cpu/machine_limits.h"
#include "base/dtype.h"

#include <stdio.h>
#include <string.h>

typedef struct {
  cpu_loading l;
  void **plan; /* by kernel */
} cpu_program;

static const char *cpu_get_engine(void *dev) {
  const gemm_engine *e = ((cpu_device *)dev)->engine;
  return e ? e->name : ENGINE_FASTEST;
}

static hp_status cpu_set_engine(void *dev, const char *name) {
  cpu_device *d = dev;
  if (strcmp(name, ENGINE_FASTEST)) return engine_find(name, &d->engine);
  d->engine = NULL;
  return HP_OK;
}

/* The engines of fixed bits run every query; libraries, those of one type. */
static void cpu_get_capabilities(void *dev, const capabilities *planned, capabilities *out) {
  const gemm_engine *e = ((cpu_device *)dev)->engine;
  (void)planned;
  *out = capabilities_usual();
  out->one_type = !e || !e->exact;
}

static void cpu_get_tuning(void *dev, str *out) {
  tuning_record_print(&((cpu_device *)dev)->tuning, out);
}

static hp_status cpu_set_tuning(void *dev, const char *text) {
  return tuning_record_parse(&((cpu_device *)dev)->tuning, text, strlen(text), "tuning record");
}

static hp_status cpu_open(const backend_options *o, void **out) {
  static const loop_isa loop_isa_of[ISA_COUNT] = {[ISA_PLAIN] = LOOP_ISA_PLAIN,
                                                  [ISA_AVX2] = LOOP_ISA_AVX2,
                                                  [ISA_AVX512] = LOOP_ISA_AVX512,
                                                  [ISA_AVX512_BF16] = LOOP_ISA_AVX512_BF16};
  cpu_device *d = mem_calloc(1, sizeof *d);
  HP_TRY_MEM(d);
  d->isa = cpu_best_isa();
  d->engine = engine_default();
  hp_status st = o->engine ? cpu_set_engine(d, o->engine) : HP_OK;
  if (!st) st = pool_create(o->threads, !o->shared, &d->threads);
  if (st) {
    mem_free(d);
    return st;
  }
  d->loops = (loop_options){.isa = loop_isa_of[d->isa], .interpret = o->interpret};
  snprintf(d->about, sizeof d->about, "cpu, %d thread%s, %s", pool_size(d->threads),
           pool_size(d->threads) == 1 ? "" : "s", cpu_isa_name(d->isa));
  *out = d;
  return HP_OK;
}

static void cpu_close(void *dev) {
  cpu_device *d = dev;
  pool_free(d->threads);
  loop_module_free(d->kernels);
  tuning_record_free(&d->tuning);
  mem_free(d);
}

static void cpu_release(void *loaded) {
  cpu_program *c = loaded;
  if (!c) return;
  loop_module_free(c->l.loops);
  arena_free(&c->l.mem);
  mem_free(c->plan);
  mem_free(c);
}

static hp_status plan_all(cpu_program *c, const program *p, uint64_t *workspace) {
  for (size_t i = 0; i < p->insts.len; i++) {
    const prog_inst *n = program_inst(p, i);
    const cpu_kernel *k = &cpu_kernels[n->op];
    if (c->plan[n->kernel]) continue; /* of another instruction with the same kernel */
    if (op_flags((op_id)n->op) & (OPF_RENDEZVOUS | OPF_MOVE | OPF_TRANSFER))
      continue; /* the runtime's */
    if (!k->run)
      HP_FAIL(HP_ERR_UNSUPPORTED, "op \"%s\" at \"%s\" has no CPU kernel", op_table[n->op].name,
              program_str(p, n->loc));
    if (k->plan) HP_TRY(k->plan(&c->l, n, &c->plan[n->kernel], &workspace[n->kernel]));
  }
  return HP_OK;
}

/* Programs of the device share their loops, so that one for another shape of a batch takes no time
 * for those it has in common with others.  Too many, and new ones begin afresh. */
static hp_status share_loops(cpu_device *d, loop_module **out) {
  enum { KERNELS_MAX = 1 << 14 };
  if (d->kernels && loop_module_report(d->kernels).kernels >= KERNELS_MAX) {
    loop_module_free(d->kernels);
    d->kernels = NULL;
  }
  if (!d->kernels) HP_TRY(loop_module_create(&d->loops, &d->kernels));
  *out = loop_module_share(d->kernels);
  return HP_OK;
}

static hp_status cpu_prepare(void *dev, const program *p, uint64_t *workspace, void **loaded) {
  cpu_program *c = mem_calloc(1, sizeof *c);
  HP_TRY_MEM(c);
  c->l.dev = dev;
  c->l.p = p;
  c->plan = mem_calloc(program_kernels(p), sizeof *c->plan);
  hp_status st = c->plan ? HP_OK : HP_ERR_OOM;
  pool_bind_caller(c->l.dev->threads, false); /* the compiler may use all cores */
  if (!st) st = share_loops(c->l.dev, &c->l.loops);
  if (!st) st = plan_all(c, p, workspace);
  if (!st) st = loop_module_build(c->l.loops);
  pool_bind_caller(c->l.dev->threads, true);
  for (size_t i = 0; !st && i < p->insts.len; i++) {
    const prog_inst *n = program_inst(p, i);
    if (n->op == OP_FUSED) workspace[n->kernel] = loop_scratch(c->plan[n->kernel]);
  }
  map_free(&c->l.einsums);
  vec_free(&c->l.einsum);
  c->l.p = NULL; /* it may be put in another order, and go */
  if (st) cpu_release(c);
  else *loaded = c;
  return st;
}

/* The executor's thread, which makes the others, is bound to the core of the first thread. */
static void cpu_join(void *dev) { pool_bind_caller(((cpu_device *)dev)->threads, false); }

static hp_status cpu_launch(void *loaded, const program *p, const prog_inst *n,
                            const launch_args *a) {
  cpu_program *c = loaded;
  cpu_call call = {.dev = c->l.dev,
                   .p = p,
                   .n = n,
                   .plan = c->plan[n->kernel],
                   .at = a->at,
                   .work = a->workspace,
                   .place = a->place,
                   .stream = a->stream};
  return cpu_kernels[n->op].run(&call);
}

static void *cpu_reserve(void *dev, int tier, uint64_t bytes) {
  (void)dev, (void)tier;
  return mem_reserve(bytes);
}
static void cpu_unreserve(void *dev, int tier, void *at, uint64_t bytes) {
  (void)dev, (void)tier;
  mem_unmap(at, bytes);
}
static hp_status cpu_commit(void *dev, int tier, void *at, uint64_t bytes) {
  (void)dev, (void)tier;
  return mem_commit(at, bytes);
}
static void cpu_discard(void *dev, int tier, void *at, uint64_t bytes) {
  (void)dev, (void)tier;
  mem_discard(at, bytes);
}
/* A stream is a thread of the executor: the caller's. */
static hp_status cpu_copy(void *dev, void *to, const void *from, uint64_t bytes, int stream) {
  (void)dev, (void)stream;
  if (bytes) memcpy(to, from, bytes);
  return HP_OK;
}

static hp_status cpu_zero(void *dev, void *at, uint64_t bytes, int stream) {
  (void)dev, (void)stream;
  if (bytes) memset(at, 0, bytes);
  return HP_OK;
}

typedef struct {
  hp_fill_fn fill;
  void *context;
  char *at;
  int64_t rows, row, step; /* of the tensor; elements of one; rows of a part */
  size_t size;             /* of an element */
} filling;

static hp_status fill_part(void *ctx, int64_t part) {
  const filling *f = ctx;
  int64_t from = part * f->step, left = f->rows - from, n = left < f->step ? left : f->step;
  from *= f->row;
  return f->fill(f->context, from, n * f->row, f->at + (size_t)from * f->size);
}

static hp_status cpu_fill(void *dev, void *at, const ir_value *type, hp_fill_fn fill,
                          void *context) {
  enum { PART_BYTES = 1 << 20 };
  cpu_device *d = dev;
  int64_t n = value_elements(type), rows = type->rank ? type->dim[0] : 1;
  if (n == 0) return HP_OK;
  filling f = {fill, context, at, rows, n / rows, 1, dtype_size((hp_dtype)type->dtype)};
  int64_t fit = PART_BYTES / (f.row * (int64_t)f.size);
  if (fit > 1) f.step = fit;
  return pool_try(d->threads, (rows + f.step - 1) / f.step, fill_part, &f);
}
static const char *cpu_describe(void *dev) { return ((cpu_device *)dev)->about; }
static int cpu_get_threads(void *dev) { return pool_size(((cpu_device *)dev)->threads); }

static hp_status cpu_measure(void *dev, uint64_t most_bytes, hp_limits *out) {
  cpu_device *d = dev;
  hp_limits l = {.flops = limits_measure_flops(d->isa, d->threads, HP_F32)};
  bool dots = d->isa == ISA_AVX512_BF16;
  l.bf16_flops = dots ? limits_measure_flops(d->isa, d->threads, HP_BF16) : l.flops;
  HP_TRY(limits_measure_read(d->isa, d->threads, most_bytes, &l.bytes));
  *out = l;
  return HP_OK;
}

const backend_iface backend_cpu = {.name = "cpu",
                                   .host_addressable = true,
                                   .open = cpu_open,
                                   .close = cpu_close,
                                   .choose = cpu_choose_engines,
                                   .prepare = cpu_prepare,
                                   .release = cpu_release,
                                   .join = cpu_join,
                                   .launch = cpu_launch,
                                   .reserve = cpu_reserve,
                                   .unreserve = cpu_unreserve,
                                   .commit = cpu_commit,
                                   .discard = cpu_discard,
                                   .copy = cpu_copy,
                                   .zero = cpu_zero,
                                   .fill = cpu_fill,
                                   .describe = cpu_describe,
                                   .threads = cpu_get_threads,
                                   .engine = cpu_get_engine,
                                   .set_engine = cpu_set_engine,
                                   .capabilities = cpu_get_capabilities,
                                   .tuning = cpu_get_tuning,
                                   .set_tuning = cpu_set_tuning,
                                   .measure = cpu_measure};
