/* Params of a group of devices to files and back, by parts: see ckpt/saved.h. */
#ifndef RT_PARAMS_H
#define RT_PARAMS_H

#include "rt/group.h"

/* Each device of this process writes what it saves of these params (n 0: of all), on its own
 * thread, through a buffer of 1 MiB; the process of device 0 writes the index.  An index that is
 * there goes first, so a folder that has one is whole; with several processes once all of them have
 * returned. */
hp_status params_save(group *g, const char *path, const char *const *name, int n);
/* Each device of this process reads what it is to hold, out of files that hold these params and no
 * others.  Everything is checked before the first value changes. */
hp_status params_load(group *g, const char *path, const char *const *name, int n);

#endif
