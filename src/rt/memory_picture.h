/* A picture of memory over a run: for each tier what it holds, by class, with the limit; below, on
 * the same axis, what streams compute and copy, and what is exposed. */
#ifndef RT_MEMORY_PICTURE_H
#define RT_MEMORY_PICTURE_H

#include "prog/program.h"
#include "topo/mesh.h"

/* SVG.  predicted: times of the instructions; measured: NULL, or those of a run, to which the
 * prediction is compared.  m: NULL, or the memory that the program takes of the device: its limit,
 * and the tensors of other programs.  in_page: for a page, without size and background. */
hp_status memory_picture(const program *p, const mesh *on, const inst_times *predicted,
                         const inst_times *measured, const hp_memory *m, bool in_page, str *out);

#endif
