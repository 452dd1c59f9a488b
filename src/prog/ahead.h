/* What a program does ahead: the first forwards of the next step, before the update of this one.
 *
 * Such rows are twice in the program.  At its start they are AHEAD_AGAIN, at its end AHEAD_NEXT:
 * these leave their values where the others would have made them, so that the next run can go on
 * with them.  They read params as the update is expected to make them: outputs ahead.NAME of the
 * piece with the update stand for the params NAME. */
#ifndef PROG_AHEAD_H
#define PROG_AHEAD_H

#include "prog/program.h"

/* The param for which an output stands; NULL: it is another output. */
const char *ahead_param(const char *output);

/* Are there instructions of the next step? */
bool ahead_is_in(const program *p);

enum {
  AHEAD_PART = 1, /* outputs ahead.NAME need the instruction, */
  AHEAD_REST = 2  /* and other outputs or named tensors do */
};
/* Bits of AHEAD_PART and AHEAD_REST for each instruction of a piece in the order of the graph.
 * stages: by stage, whose params rows of AHEAD_NEXT read; outputs of others need nothing.  NULL: of
 * all. */
hp_status ahead_parts(const program *p, const bool *stages, uint8_t *part);

/* Instructions of AHEAD_AGAIN and AHEAD_NEXT have the same buffers in two ranges of p: those from
 * `again` and from `next` on, n each.  Those whose values later instructions read are kept from one
 * run to the next, at one offset. */
typedef struct {
  uint32_t again, next, n;
} ahead_range;
hp_status ahead_carry(program *p, const ahead_range *range, size_t ranges);

#endif
