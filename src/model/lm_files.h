/* The tensors of a model in the files of a checkpoint, with what merged adapters make of them. */
#ifndef MODEL_LM_FILES_H
#define MODEL_LM_FILES_H

#include "ckpt/model_files.h"
#include "ckpt/weights.h"
#include "model/lm.h"

/* Elements of t from `first` on. */
typedef struct {
  const st_tensor *t;
  size_t first;
  uint64_t place; /* of the first element of t, in the order of the files */
} lm_place;

/* The place of each tensor of m in the files, from[m->tensors.len]; NULL for those of an adapter.
 * Sets their `stored`.  HP_ERR_INPUT names a tensor that is missing, or of another shape, or a part
 * of the decoder that m does not have. */
hp_status lm_find_places(lm *m, const weights *w, lm_place *from);
/* Does a merged adapter change the tensor? */
bool lm_is_merged(const lm *m, const lm_tensor *t);
/* n elements of t from `first` on, merged, in f32.  Thread-safe. */
hp_status lm_read_merged(const lm *m, const lm_place *from, const lm_tensor *t, size_t first,
                         size_t n, float *x);

/* Writes the model, whose weights are in `from`, into the folder `to`, in the types of the files,
 * or in *type: weights in files of at most max_shard_bytes, config.json, and the files that come
 * with it.  Needs no device. */
hp_status lm_export(lm *m, const char *from, const model_files *with, const char *to,
                    const hp_dtype *type, uint64_t max_shard_bytes);

#endif
