/* Internal to the offload stage: a program as input of mem/offload.
 *
 * An item is the memory of a value: a work buffer and the results that overwrite it one after the
 * other, a named tensor, or a slice of a named tensor that is accessed by slices alone.  Steps are
 * instructions, in their order. */
#ifndef COMPILE_OFFLOAD_ITEMS_H
#define COMPILE_OFFLOAD_ITEMS_H

#include "compile/host_update.h"
#include "compile/offload_stage.h"
#include "mem/offload.h"

/* What an item is that may be on either tier: the later kind goes to flash first. */
enum { ON_ITS_TIER, WORK_VALUE, STATE_OF_STEPS, STATE_OF_UPDATES };

typedef struct {
  const program *p;
  offload_overlap overlap;
  offload_problem problem;
  offload_item *item;
  offload_touch *touch;
  double *duration;
  uint64_t *workspace; /* by instruction */
  uint32_t *whole;     /* by buffer: the one of its memory on the device: its root, or of a slice
                          the first view of the slice */
  uint32_t *item_of;   /* by such a buffer; PROG_NONE: it stays where it is */
  uint8_t *away;       /* by root buffer that is on another tier without being an item, since
                          nothing uses it, or only slices of it are used: that tier; else 0 */
  uint32_t *state;     /* by item: the named tensor or its slice, or PROG_NONE */
  uint8_t *choice;     /* by item: may it be on either tier? */
  uint32_t *from;      /* by touch: offload_problem.from, NULL without a policy */
  uint8_t *on_host;    /* by instruction: HOST_* of compile/host_update.h; NULL: all are NONE */
  uint32_t *host_inst; /* by work of the host: its instruction */
  offload_host_work *host;
  uint32_t *need;
  uint32_t *before, *after; /* by touch: the buffer (`whole`) that holds the content before it,
                                and then */
} offload_items;

/* offload_items_free(out), also after a failure. */
hp_status offload_items_make(const program *p, const offload_options *o, offload_items *out);
void offload_items_free(offload_items *x);

static inline uint32_t offload_root(const program *p, uint32_t b) { return p->buffers.at[b].root; }
static inline bool offload_is_slice(const offload_items *x, uint32_t b) {
  return x->whole[b] == b && offload_root(x->p, b) != b;
}
/* Its step takes no time and no memory of the device, and touches nothing there. */
static inline bool offload_is_of_host(const offload_items *x, uint32_t i) {
  return x->on_host && x->on_host[i] != HOST_NONE;
}
/* offsets_assign rounds sizes up to 256. */
static inline uint64_t offload_padded(uint64_t bytes) { return (bytes + 255) & ~(uint64_t)255; }

#endif
