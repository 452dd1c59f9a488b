/* Several processes agree on their work before it starts: a text of facts, one per line, must be
 * the same in all of them. */
#ifndef TRAIN_AGREE_H
#define TRAIN_AGREE_H

#include "ckpt/checkpoint.h"
#include "train/train_data.h"

/* Every key that affects the work of a process; not keys that may differ between machines: paths
 * of files, and threads. */
hp_status agree_config(const train_config *c);
/* The checkpoint from which a run resumes; its manifest has the hashes of all its files. */
hp_status agree_checkpoint(const checkpoint *c);
/* The samples, of training and evaluation. */
hp_status agree_data(const train_config *c, const train_data *d);
/* The files of the model's folder: config.json, tokenizer and, if they are loaded, weights. */
hp_status agree_model(const train_config *c, bool weights);

#endif
