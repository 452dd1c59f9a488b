/* Can the programs of a pipeline exchange what they send and receive?  The rows of all meshes are
 * followed without running them: each transfer has both its ends, once, and no meshes wait for each
 * other in a circle, although a send waits for its receive. */
#ifndef COMPILE_PIPELINE_CHECK_H
#define COMPILE_PIPELINE_CHECK_H

#include "compile/pipeline_rows.h"

/* HP_ERR_INTERNAL, with the rows, if they cannot: schedules are checked before. */
hp_status pipeline_check(const mesh_rows *rows, int meshes);

#endif
