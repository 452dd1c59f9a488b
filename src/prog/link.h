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
  bool of_stage; /* what the piece has of this stage; else all of it, which is of the stage then */
  uint32_t first, end; /* of the piece's instructions; end 0: to the last */
  uint32_t microbatch;
  bool with_next;    /* its instructions may mix with those of the next row */
  uint32_t transfer; /* 1 + the number of a transfer, which the row is then; 0: instructions */
  uint8_t ahead;     /* AHEAD_* of its instructions, or transfer (prog/ahead.h) */
  uint8_t part;      /* of the piece with the update: LINK_* */
} link_row;

/* Instructions that make outputs ahead.NAME which are read, and what these need; those behind them
 * that something else needs. */
enum { LINK_ALL, LINK_AHEAD, LINK_BEHIND };

/* An input or output of a piece that comes from or goes to another mesh.  Of an output to several
 * there are several. */
typedef struct {
  uint32_t piece;
  const char *name; /* of the input or output, which the linked program does not have as such */
  bool sends;
  /* The name of a param, which the piece copies to the output; NULL: another value.  It is sent as
   * it is, without a copy, and all rows on the other mesh read what is received once. */
  const char *param;
  uint32_t id;  /* attribute of the instruction: its row in the table of rt/transfer.h */
  int64_t peer; /* rank of the first device of the other mesh */
} link_transfer;

typedef struct {
  const link_row *row;
  size_t rows;
  const link_transfer *transfer;
  size_t transfers;
  uint32_t
      micros; /* of a step; those from here on are the same ones of the next; 0: all are of it */
  uint32_t update;   /* the piece whose outputs ahead.NAME are params of rows of AHEAD_NEXT, */
  const bool *ahead; /* [stages] of these stages */
} link_rows;

/* Does the instruction copy a named tensor? */
bool link_copies_state(const program *p, uint32_t inst);
/* Are there several micro-batches? */
bool link_has_micros(const link_rows *r);

/* Pieces are in the order of the graph and have no offsets (lower_graph); *out has the same form
 * and the rows in their order.  HP_ERR_SHAPE, with the name, if two pieces have different types of
 * a named tensor; HP_ERR_ARG if two pieces of a micro-batch have an input or output of the same
 * name, or rows with transfers read a value before it is made. kernel0[i]: the offset that was
 * added to the kernel numbers of piece i; PROG_NONE: no row runs the piece, so it is not linked.
 * Time and memory are linear in the instructions of all rows.
 */
hp_status program_link(const program *const *piece, size_t pieces, const link_rows *r,
                       uint32_t *kernel0, program **out);

#endif
