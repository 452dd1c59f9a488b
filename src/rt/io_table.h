/* The names of a program's inputs and outputs as a table, made once when the program is loaded, so
 * that a run looks up each tensor of its list once.  Zeroed = empty. */
#ifndef RT_IO_TABLE_H
#define RT_IO_TABLE_H

#include "base/hash.h"
#include "base/vec.h"
#include "hyperparallel.h"

typedef struct {
  map rows;                 /* by name */
  VEC(const hp_io *) given; /* by row: the entry of the current list; NULL: none */
} io_table;

/* Adds a row.  *row is its index, or that of the existing row with this name. */
hp_status io_table_add(io_table *t, const char *name, uint32_t *row);
/* Fills `given` from io[n], which must live as long as `given` is used.  Fails if an entry lacks
 * its name or data, repeats a name, or has a name that is not in the table. */
hp_status io_table_match(io_table *t, const hp_io *io, int n);
void io_table_free(io_table *t);

#endif
