/* Saves and loads params of a device mesh as shards: see ckpt/saved.h. */
#ifndef RT_PARAMS_H
#define RT_PARAMS_H

#include "rt/device_mesh.h"

/* Each device of this process writes its share of these params (n 0: of all), on its own thread,
 * through a buffer of 1 MiB; the process of device 0 writes the index.  An existing index is
 * removed first, so a folder with an index is complete; with several processes once all have
 * returned. */
hp_status params_save(device_mesh *dm, const char *path, const char *const *name, int n);
/* Each device of this process reads its shards from files that hold exactly these params.
 * Everything is checked before the first value changes. */
hp_status params_load(device_mesh *dm, const char *path, const char *const *name, int n);

#endif
