/* Kernels of the CPU backend: one row an op in cpu_kernels.
 *
 * plan runs once when a program is loaded: it checks what it must, prepares what is constant, and
 * says how much work memory a run needs.  run gets addresses and the plan; it allocates nothing. */
#ifndef CPU_KERNEL_H
#define CPU_KERNEL_H

#include "backend/cpu/cpu_features.h"
#include "backend/cpu/gemm/einsum_plan.h"
#include "backend/cpu/engine/tuning_record.h"
#include "base/thread.h"
#include "codegen/loop.h"
#include "prog/program.h"

typedef struct {
  pool *threads;
  cpu_isa isa;
  loop_options loops;
  loop_module *kernels;      /* of loops, which programs share; NULL: there are none yet */
  const gemm_engine *engine; /* of products; NULL: of each the one that is fastest, by tuning */
  tuning_record tuning;
  char about[256];
} cpu_device;

typedef struct {
  cpu_device *dev;
  const program *p;   /* as it is prepared */
  loop_module *loops; /* kernels of the program's `fused` instructions, and of other programs */
  arena mem;          /* of the plans */
  map einsums;        /* equation, engine and types -> number of the plan, */
  VEC(void *) einsum; /* that the program's products share */
} cpu_loading;

typedef struct {
  const cpu_device *dev;
  const program *p;
  const prog_inst *n;
  void *plan;
  void *const *at; /* operands, then results */
  void *work;
  int64_t place; /* of the device along the instruction's axes */
  int stream;
} cpu_call;

typedef struct {
  hp_status (*plan)(cpu_loading *l, const prog_inst *n, void **plan,
                    uint64_t *work); /* (optional) */
  hp_status (*run)(const cpu_call *c);
} cpu_kernel;

extern const cpu_kernel cpu_kernels[OP_COUNT];

/* Type of operand or result k of an instruction. */
static inline const ir_value *call_type(const cpu_call *c, int k) {
  return &program_arg(c->p, c->n, k)->type;
}

/* Copies bytes with the threads of the call's stream; nothing is done when both are one address. */
void cpu_move(const cpu_call *c, void *to, const void *from, int64_t bytes);

/* The k-th product of an einsum, which has one, or of einsums. */
hp_status einsum_plan_inst(const program *p, const prog_inst *n, int k, einsum_plan *out);
/* Writes the engines of products, where they are not ours, into instructions that name none; what
 * is to be the fastest and was never measured is measured. */
hp_status cpu_choose_engines(void *dev, program *p);

/* Families of kernels, one file each. */
#define CPU_KERNEL(name)                                                                           \
  hp_status plan_##name(cpu_loading *l, const prog_inst *n, void **plan, uint64_t *work);          \
  hp_status run_##name(const cpu_call *c)
CPU_KERNEL(fused);
CPU_KERNEL(einsum);
CPU_KERNEL(einsums);
CPU_KERNEL(attention);
CPU_KERNEL(attention_grad);
CPU_KERNEL(paged_attention);
CPU_KERNEL(grouped);
CPU_KERNEL(grouped_grad);
CPU_KERNEL(conv);
CPU_KERNEL(pool);
hp_status run_local_shard(const cpu_call *c);
hp_status run_drop(const cpu_call *c);
hp_status run_locate(const cpu_call *c);
hp_status run_place(const cpu_call *c);
hp_status run_copy(const cpu_call *c);
hp_status run_update(const cpu_call *c);
hp_status run_paged_update(const cpu_call *c);
hp_status run_paged_part(const cpu_call *c);
hp_status run_paged_bounds(const cpu_call *c);
hp_status plan_paged_select(cpu_loading *l, const prog_inst *n, void **plan, uint64_t *work);
hp_status run_paged_select(const cpu_call *c);
hp_status run_pad(const cpu_call *c);
hp_status run_concat(const cpu_call *c);
hp_status run_embedding(const cpu_call *c);
hp_status run_embedding_grad(const cpu_call *c);
hp_status run_rope(const cpu_call *c);
hp_status run_cross_entropy(const cpu_call *c);
hp_status run_cross_entropy_grad(const cpu_call *c);
hp_status run_argmax(const cpu_call *c);
hp_status run_sum_sq(const cpu_call *c);
hp_status run_random(const cpu_call *c);
hp_status run_topk(const cpu_call *c);
hp_status run_gather(const cpu_call *c);
hp_status run_scatter_add(const cpu_call *c);
hp_status plan_embedding_grad(cpu_loading *l, const prog_inst *n, void **plan, uint64_t *work);
hp_status plan_sum_sq(cpu_loading *l, const prog_inst *n, void **plan, uint64_t *work);

#endif
