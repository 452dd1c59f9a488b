/* Memory of a device: the one place where it is counted.  explain, reports, bench and
 * hp_program_stats print what is found here. */
#ifndef RT_MEMORY_USE_H
#define RT_MEMORY_USE_H

#include "mem/timeline.h"
#include "rt/group.h"

/* A tensor that outlives runs, and a buffer of work memory, take their bytes rounded up. */
static inline uint64_t memory_round(uint64_t bytes) { return (bytes + 255) & ~(uint64_t)255; }

/* Bytes of params that the program needs and the device does not hold yet. */
uint64_t memory_new_state(const device *d, const program *p);
/* Spans of the program's work buffers over its instructions, by buffer, in all tiers.  A result
 * that is written over an operand takes its place: the operand's span ends before.  Views, state
 * and what is never touched have 0 bytes.  mem_free. */
hp_status memory_spans(const program *p, timeline_span **out);
/* What program p takes of the i-th device of this process.  model: bytes of the tensors of the
 * whole model by class (state_classes_set); the rest of the tensors that outlive runs count as
 * "other". */
hp_status memory_use_of(const group *g, int i, const program *p,
                        const uint64_t model[MEM_CLASS_COUNT], hp_memory *out);
/* Bytes of device work memory live in each of n equal parts of the program, where most is live in
 * that part; of one class at the same instructions. */
void memory_live(const program *p, uint64_t *live, int n);
hp_status memory_live_of(const program *p, mem_class class, uint64_t *live, int n);

#endif
