/* The linker: makes one flat program of compiled pieces by a list of rows.  A row runs a piece, or
 * some of its actions, for one micro-batch.
 *
 * Rows of the same piece and micro-batch share work buffers; all rows share named tensors.  If
 * there are several micro-batches, inputs and outputs of micro-batch M are renamed to NAME@M.
 * Copies of an instruction share one kernel.  Order, waits and offsets are decided afterwards, for
 * the linked program (src/compile). */
#ifndef PROG_LINK_H
#define PROG_LINK_H

#include "prog/actions.h"

typedef struct {
  uint32_t piece; /* index */
  uint16_t stage;
  uint8_t actions; /* bits of ACTION_*; for a micro-batch each action of a piece is in one row */
  uint32_t microbatch;
} link_row;

/* Are there several micro-batches? */
bool link_has_micros(const link_row *row, size_t rows);

/* Pieces are in the order of the graph and have no offsets (lower_graph); *out has the same form
 * and the rows in their order.  HP_ERR_SHAPE, with the name, if two pieces have different types of
 * a named tensor; HP_ERR_ARG if two pieces of a micro-batch have an input or output of the same
 * name. kernel0[i]: the offset that was added to the kernel numbers of piece i; PROG_NONE: no row
 * runs the piece, so it is not linked.  Time and memory are linear in the instructions of all rows.
 */
hp_status program_link(const program *const *piece, size_t pieces, const link_row *row, size_t rows,
                       uint32_t *kernel0, program **out);

#endif
