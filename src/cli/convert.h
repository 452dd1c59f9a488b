/* `hyper convert`: the formats it reads. */
#ifndef CLI_CONVERT_H
#define CLI_CONVERT_H

#include "base/status.h"

/* A checkpoint of a run or a model's folder, saved as global tensors or as shards, as a model's
 * folder `to`: a tensor
 * at a time.  type: of its floating tensors; NULL: as they are. */
hp_status convert_folder(const char *from, const char *to, const hp_dtype *type);

#endif
