/* Linking: one flat program made of pieces.  A piece runs once for each micro-batch, in one row or
 * in several rows that each run some of its actions.
 *
 * Rows of one piece and one micro-batch share its work memory; named tensors are shared by all
 * rows.  Where there are several micro-batches, inputs and outputs of micro-batch M are called
 * NAME@M.  Instructions of one piece share their kernels in all rows.  Order, waits and offsets are
 * decided later, for the linked program (src/compile). */
#ifndef PROG_LINK_H
#define PROG_LINK_H

#include "prog/actions.h"

typedef struct {
  uint32_t piece; /* its index */
  uint16_t stage;
  uint8_t actions; /* which of its instructions: bits of ACTION_*; each in one row at most */
  uint32_t microbatch;
} link_row;

/* Do the rows belong to several micro-batches? */
bool link_has_micros(const link_row *row, size_t rows);

/* Pieces in the order of the graph (lower_graph), without offsets; out: rows one after the other,
 * in the same form.  HP_ERR_SHAPE, by name, when two pieces disagree about a named tensor;
 * HP_ERR_ARG when two pieces of a micro-batch have an input or output of one name.  kernel0[i]:
 * what is added to the kernel numbers of piece i; PROG_NONE where no row runs it, and nothing of it
 * is linked.  Time and memory grow with the instructions of all rows. */
hp_status program_link(const program *const *piece, size_t pieces, const link_row *row, size_t rows,
                       uint32_t *kernel0, program **out);

#endif
