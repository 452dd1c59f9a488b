/* Is the folder of a run one that all processes of the job share?  Each writes its shards of a
 * checkpoint there, and a folder of the same name on another machine's disk would be noticed at the
 * first save only. */
#ifndef TRAIN_SHARED_FOLDER_H
#define TRAIN_SHARED_FOLDER_H

#include "base/status.h"

/* To be called by all of them, while process 0 holds the folder: it makes a file there, which the
 * others look for, some seconds long, for a network file system may show it late.  Where one does
 * not see it all fail with HP_ERR_INPUT and a message that names those.  Nothing is left behind. */
hp_status shared_folder_check(const char *dir);

#endif
