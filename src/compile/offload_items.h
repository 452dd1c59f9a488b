/* Internal to the offload stage: a program as input of mem/offload.
 *
 * An item is the memory of a value: a work buffer and the results that overwrite it one after the
 * other, or a named tensor.  Steps are instructions, in their order. */
#ifndef COMPILE_OFFLOAD_ITEMS_H
#define COMPILE_OFFLOAD_ITEMS_H

#include "compile/offload_stage.h"
#include "mem/offload.h"

typedef struct {
  const program *p;
  offload_problem problem;
  offload_item *item;
  offload_touch *touch;
  double *duration;
  uint64_t *workspace;      /* by instruction */
  uint32_t *item_of;        /* by root buffer; PROG_NONE: it stays where it is */
  uint8_t *unused;          /* by root buffer that could leave the device, and nothing touches: its
                               tier; 0: it is used */
  uint32_t *state;          /* by item: the named tensor, or PROG_NONE */
  uint8_t *choice;          /* by item: may it be on either tier? */
  uint32_t *from;           /* by touch: offload_problem.from, NULL without a policy */
  uint32_t *before, *after; /* by touch: root buffer that holds the content before it, and then */
} offload_items;

/* offload_items_free(out), also after a failure. */
hp_status offload_items_make(const program *p, const offload_options *o, offload_items *out);
void offload_items_free(offload_items *x);

#endif
