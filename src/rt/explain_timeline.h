/* Pictures of a run: the streams over time, and the communication over each axis of the mesh. */
#ifndef RT_EXPLAIN_TIMELINE_H
#define RT_EXPLAIN_TIMELINE_H

#include "rt/exec.h"

/* SVG for a page.  t: of the run, measured or predicted.  A row per stream, and one for exposed
 * communication. */
hp_status explain_timeline_svg(const program *p, const mesh *m, const inst_times *t, bool measured,
                               str *out);
/* The devices in their grid, the axes in their colours, and below them the collectives of each
 * axis with the bytes that a device receives.  Nothing for one device. */
hp_status explain_mesh_svg(const program *p, const mesh *m, const cluster *c, const inst_times *t,
                           str *out);

#endif
