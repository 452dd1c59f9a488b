/* Lifetimes of the values of a program over the whole run, with all its micro-batches: where each
 * is made and used, when it is on the device, and where it is in between.
 *
 * A value is what copies between tiers and tensors that are carried from run to run connect: a
 * named tensor with its copies on the device, or a result with its copies on slower tiers and the
 * results that overwrite it there.  Everything is read from the program and the times of its
 * instructions, so it is also true for a program that was read from its text. */
#ifndef RT_VALUE_CHAIN_H
#define RT_VALUE_CHAIN_H

#include "prog/program.h"

enum { TOUCH_READ = 1, TOUCH_WRITE = 2, TOUCH_FETCH = 4, TOUCH_OFFLOAD = 8 };

/* An instruction that uses a value, or copies it. */
typedef struct {
  uint32_t inst;
  uint32_t stay; /* number in the value's stays; PROG_NONE: it touches no memory of the device */
  uint8_t what;  /* TOUCH_* */
} chain_touch;

/* From when to when memory of the device holds the value. */
typedef struct {
  uint32_t buffer; /* the first; results that overwrite it follow in the same stay */
  double start_s, end_s;
  bool at_start, at_end; /* it is there when the run begins, and when it ends */
} chain_stay;

typedef struct {
  uint32_t buffer; /* root that describes it: the named tensor, or what holds it first */
  uint32_t touch0, touches;
  uint32_t stay0, stays;
  uint32_t uses, writes, fetches, offloads; /* touches of each kind; uses: all but copies */
  int tier;                                 /* the slowest that holds it, TIER_DEVICE: no other */
  bool is_state, is_io;                     /* a named tensor; an input or output */
  uint64_t moved_bytes;
  double copy_s, exposed_s; /* of its copies */
  double make_s;            /* of the instruction that makes it; < 0: it is not made by one alone */
} value_chain;

typedef struct {
  uint32_t *value_of; /* by root buffer: index in value; PROG_NONE: workspace, or not used */
  value_chain *value;
  size_t values;
  chain_touch *touch; /* of a value in the order of instructions: touch[touch0] .. */
  chain_stay *stay;   /* in the order of their starts */
  double *exposed;    /* by instruction: seconds of a copy in which nothing is computed */
  double run_s, copy_s, exposed_s;
} value_chains;

/* t: times of the instructions.  value_chains_free(out), also after a failure. */
hp_status value_chains_make(const program *p, const inst_times *t, value_chains *out);
void value_chains_free(value_chains *c);
/* How often it could leave the device: between two uses, and, if it is a named tensor, between the
 * last one and the first of the next run; and how often it does. */
uint32_t value_gaps(const value_chain *v);
uint32_t value_gaps_away(const value_chains *c, const value_chain *v);

#endif
