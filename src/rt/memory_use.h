/* Memory of a device, counted in one place for explain, reports, bench and hp_program_stats. */
#ifndef RT_MEMORY_USE_H
#define RT_MEMORY_USE_H

#include "mem/timeline.h"
#include "rt/device_mesh.h"

/* Rounded up: the bytes of a tensor that outlives runs, and of a buffer of work memory. */
static inline uint64_t memory_round(uint64_t bytes) { return (bytes + 255) & ~(uint64_t)255; }

/* Bytes of named tensors in that tier, with those that the program needs and the device does not
 * have there yet. */
uint64_t memory_state(const device *d, const program *p, int tier);
/* Does a program that is loaded send to the host what it does not keep on the device, and no other
 * program holds there?  Its plan, if tensors leave the device, has no room for that. */
bool memory_sends_away(const device *d, const program *p);
/* Live ranges of the program's work buffers over its instructions, by buffer, in all tiers.  If
 * a result overwrites an operand, the operand's range ends one instruction earlier.  Views,
 * state and unused buffers have 0 bytes.  mem_free. */
hp_status memory_spans(const program *p, timeline_span **out);
/* Memory of program p on the i-th device of this process.  model: bytes of the global model by
 * class (state_classes_set); other tensors that outlive runs count as "other". */
hp_status memory_use_of(const device_mesh *dm, int i, const program *p,
                        const uint64_t model[MEM_CLASS_COUNT], hp_memory *out);
/* Live bytes of device work memory in each of n equal ranges of the program, at the peak of the
 * range; for one class, at the same instructions. */
void memory_live(const program *p, uint64_t *live, int n);
hp_status memory_live_of(const program *p, mem_class class, uint64_t *live, int n);

#endif
