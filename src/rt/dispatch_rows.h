/* Who needs a row, for a dispatch or combine of a program: the groups of experts that devices of
 * the mesh have. */
#ifndef RT_DISPATCH_ROWS_H
#define RT_DISPATCH_ROWS_H

#include "comm/comm.h"
#include "prog/program.h"
#include "topo/mesh.h"

typedef struct {
  comm_rows of; /* .ids is set before each run */
  int32_t *memory;
} dispatch_rows;

/* Of instruction n on the device at a position of the mesh.  HP_ERR_INTERNAL if its attributes do
 * not fit the mesh. */
hp_status dispatch_rows_create(const mesh *m, int64_t position, const program *p,
                               const prog_inst *n, dispatch_rows **out);
void dispatch_rows_free(dispatch_rows *r);

#endif
