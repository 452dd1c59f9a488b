/* Linking: one flat program made of pieces; a piece may come many times, once a micro-batch.
 *
 * Work memory is every row's own; named tensors are one for all rows.  Where there are several
 * micro-batches, inputs and outputs of micro-batch M are called NAME@M.  Instructions of one piece
 * share their kernels in all rows. Order, waits and offsets are decided for the whole, later
 * (src/compile). */
#ifndef PROG_LINK_H
#define PROG_LINK_H

#include "prog/program.h"

typedef struct {
  uint32_t piece; /* index of it */
  uint16_t stage;
  uint32_t microbatch;
} link_row;

/* Do the rows belong to several micro-batches? */
bool link_has_micros(const link_row *row, size_t rows);

/* Pieces in the order of the graph (lower_graph), without offsets; out: rows one after the other,
 * in the same form.  HP_ERR_SHAPE, by name, when two pieces disagree about a named tensor;
 * HP_ERR_ARG when two rows of a micro-batch have an input or output of one name.  Time and memory
 * grow with the instructions of all rows. */
hp_status program_link(const program *const *piece, size_t pieces, const link_row *row, size_t rows,
                       program **out);

#endif
