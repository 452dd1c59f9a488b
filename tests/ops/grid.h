/* The graphs of the op grid: for a row of grid.def, every case in every dtype as one graph. */
#ifndef GRID_H
#define GRID_H

#include "ops/random_graph.h"

typedef enum { GRID_NONE, GRID_OF, GRID_REFUSED } grid_gradient;

typedef struct {
  int op;
  unsigned types; /* bit t: T goes through hp_dtype t */
  grid_gradient gradient;
  double low, high;
  const char *cases;
} grid_row;
extern const grid_row grid_rows[OP_COUNT]; /* by op */

typedef struct {
  val v;
  const char *name; /* the graph's */
  double low, high;
  bool whole, no_gradient;
} grid_leaf;

enum { GRID_LEAVES = 1024 };
typedef struct {
  hp_graph *g;
  grid_leaf leaf[GRID_LEAVES]; /* inputs and params in the order of the graph */
  int leaves, cases;
} grid_graph;

/* Case `line` of the row with T = t, added to x; the node's first result goes to *out (0: it has
 * none).  With the results as outputs of the graph when `outputs` is set. */
void grid_add_case(grid_graph *x, const grid_row *row, const char *line, hp_dtype t, bool outputs,
                   val *out);
/* A loss that depends on every element of y: its sum, weighted with a random input.  f32 scalar. */
val grid_loss(grid_graph *x, val y);
/* The float operands of the last case, as far as they may be asked for: to wrt[8]. */
int grid_wrt(const grid_graph *x, int first_leaf, val wrt[8]);
/* The cases of a row in all its dtypes, with gradients where the row has some; without those of a
 * line that begins with "~" when `few`. */
void grid_graph_make(const grid_row *row, bool few, grid_graph *x);
void grid_graph_free(grid_graph *x);
/* Calls f for every case of the row. */
void grid_each_case(const grid_row *row, void (*f)(const grid_row *row, const char *line));
/* Random elements of a leaf, in the bytes that the program gets. */
void grid_leaf_fill(const grid_graph *x, const grid_leaf *l, rng *r, void *bytes);

#endif
