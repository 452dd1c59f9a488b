/* Checks that all processes of the job share the folder of a run.  Each writes its shards of a
 * checkpoint there; a folder of the same name on another machine's disk would only be noticed at
 * the first save. */
#ifndef TRAIN_SHARED_FOLDER_H
#define TRAIN_SHARED_FOLDER_H

#include "base/status.h"

/* All processes call it while process 0 holds the folder: process 0 creates a file, and the
 * others look for it for some seconds, since a network file system may show it late.  If one
 * does not see it, all fail with HP_ERR_INPUT and a message that names those processes.  The
 * file is removed. */
hp_status shared_folder_check(const char *dir);

#endif
