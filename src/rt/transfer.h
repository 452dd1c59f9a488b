/* Transfers of a program between two meshes: the instructions send and recv.  What a device holds
 * of a value under the layout of its own mesh goes, in boxes that intersect, to the devices that
 * need it under the layout of the other (shard/crossmesh.h). */
#ifndef RT_TRANSFER_H
#define RT_TRANSFER_H

#include "rt/device.h"
#include "shard/slices.h"

/* A value that crosses: attribute `id` of its instructions is the index in a table of these. */
typedef struct {
  ir_value type;         /* of the global value */
  const mesh *from, *to; /* no device is on both */
  layout given, taken;   /* on them */
} transfer_row;

/* Of a program on a device, made when it is loaded: which boxes each instruction sends or receives,
 * and room to pack them.  A run allocates nothing. */
typedef struct transfers transfers;
hp_status transfers_load(device *d, const program *p, const transfer_row *row, size_t rows,
                         transfers **out);
void transfers_free(transfers *t);
/* Runs instruction i on the device's shard `at`, and returns when its boxes are on the other
 * devices, or here. */
hp_status transfer_run(transfers *t, size_t i, void *at);

#endif
