/* Normal form of a loop, shared by the printers and the interpreter: dead and duplicate values
 * removed, dims of size 1 removed, dims merged if every access allows it; for each value the dims
 * along which it varies, and the number of reductions after which it is known.
 *
 * The nest is: outer dims (in parallel), and inside
 *   map  a loop over `inner` elements
 *   row  loops over `inner` elements, which are reduced
 *   col  loops over `reduced` rows of `inner` columns; reductions run over the rows
 * A row kernel with folds runs in two phases.  The parts of the first are blocks of 64 rows; each
 * stores a number per column and fold in scratch memory.  The parts of the second are blocks of
 * columns, which combine and store these numbers.
 * Fixed order of a reduction (docs/internals/codegen.md): a row is divided into segments of 64
 * blocks of 4096 elements; a block is 64 lanes (element index mod 64), combined in a tree;
 * blocks are chained within a segment, and segments are chained.  A column, also of a fold, is
 * divided into segments of 64 blocks of 64 rows, chained at all three levels. */
#ifndef CODEGEN_LOOP_PLAN_H
#define CODEGEN_LOOP_PLAN_H

#include "codegen/loop.h"

enum {
  PLAN_LANES = 64,
  PLAN_MAP_BLOCK = 4096,        /* elements of a part of a map */
  PLAN_ROW_BLOCK = 4096,        /* elements that share lanes */
  PLAN_ROW_SEGMENT = 64 * 4096, /* elements of a segment */
  PLAN_COL_BLOCK = 64,          /* rows of a block */
  PLAN_COL_SEGMENT = 64 * 64,   /* rows of a segment */
  PLAN_COLS = 64,               /* columns of a part */
  PLAN_FEW_PARTS = 64           /* fewer parts than this: a long reduction is split */
};

enum { VARY_INNER = 1, VARY_REDUCED = 2 };

/* The address of an access: element offset + sum(outer index * outer) + index * inner + row *
 * reduced. */
typedef struct {
  int64_t offset, outer[HP_MAX_RANK], inner, reduced;
} plan_path;

typedef struct {
  loop_value v;   /* arguments renumbered */
  plan_path path; /* LOOP_IN; LOOP_IOTA, LOOP_UNIFORM: the index itself */
  uint8_t varies; /* VARY_ bits */
  uint8_t stage;  /* reductions that must be done before; a reduction: its own number, from 1 */
} plan_value;

typedef struct {
  loop_store s;
  plan_path path;
  uint8_t varies; /* of the place stored to, and of the value */
} plan_store;

typedef struct {
  loop_kind kind;
  int outer;                /* number of outer dims */
  int64_t dim[HP_MAX_RANK]; /* their sizes */
  int64_t outer_count;      /* product of them */
  int64_t inner, reduced;   /* row: reduced == inner; map: reduced == 1 */
  int values, stores, stages, reductions, folds;
  bool split;        /* parts are segments: few, long rows or columns (plan_create) */
  plan_value *value; /* mem_free */
  plan_store *store;
} loop_plan;

extern const char *const loop_reduction_name[LOOP_REDUCE_COUNT];
extern const char *const loop_kind_name[3];

/* The dim that reductions run over; -1 for a map. */
int loop_reduced_dim(const loop *l);

/* Normal form of a loop whose loop_status is HP_OK. */
hp_status plan_create(const loop *l, loop_plan *out);
void plan_free(loop_plan *p);
/* Adds to need[] the value and all operands of it that vary with the reduced dim (map: with the
 * inner dim): what a loop over it must compute. */
void plan_need(const loop_plan *p, int value, bool *need);
/* The bit of values that vary in the innermost loop. */
static inline int plan_loop_bit(const loop_plan *p) {
  return p->kind == LOOP_MAP ? VARY_INNER : VARY_REDUCED;
}
/* Phases, one after the other: of a split kernel each stage of reductions, elements and row
 * values; with folds rows and columns; else 1. */
int plan_phases(const loop_plan *p);
/* Parts: outer indices, times blocks of the inner dim (map, col), times segments when split. */
int64_t plan_parts(const loop_plan *p, int phase);
/* Bytes of work memory that the parts of all phases share. */
size_t plan_scratch(const loop_plan *p);

#endif
