/* Checks that devices with the same shard of a tensor have the same bits; otherwise memory or a
 * computation of one of them has failed. */
#ifndef RT_REPLICAS_H
#define RT_REPLICAS_H

#include "rt/device_mesh.h"

/* Compares hashes of the params of all devices; every process calls it.  HP_ERR_DEVICE names the
 * first tensor that differs and the devices; the one that differs, if the others agree. */
hp_status replicas_verify(const device_mesh *dm);

#endif
