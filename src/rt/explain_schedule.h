/* The instructions of a program in order, and its buffers. */
#ifndef RT_EXPLAIN_SCHEDULE_H
#define RT_EXPLAIN_SCHEDULE_H

#include "base/json.h"
#include "prog/program.h"
#include "topo/mesh.h"

/* The text form of the program, with names as comments after its lines. */
hp_status explain_schedule(const program *p, const mesh *m, str *out);
/* The same as one JSON object, with the time of each instruction.  measured: t is of a run, not a
 * prediction. */
hp_status explain_schedule_json(const program *p, const mesh *m, const inst_times *t, bool measured,
                                str *out);
/* A buffer as one JSON object: its id, name, layer, class, place, type and bytes. */
void buffer_put(json_writer *w, const program *p, const mesh *m, const uint32_t *maker,
                uint32_t buffer);

#endif
