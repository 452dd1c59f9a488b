/* Several processes agree on what they are about to do: a text of facts, a line each, that must be
 * the same in all of them. */
#ifndef TRAIN_AGREE_H
#define TRAIN_AGREE_H

#include "ckpt/checkpoint.h"
#include "train/train_data.h"

/* Every key that decides what a process does; not what may differ between machines: where files
 * are, and threads. */
hp_status agree_config(const train_config *c);
/* The checkpoint that a run goes on from; its manifest names the hashes of all its files. */
hp_status agree_checkpoint(const checkpoint *c);
/* The samples, of training and evaluation. */
hp_status agree_data(const train_config *c, const train_data *d);
/* The files of the model's folder: config.json, tokenizer and, where they are loaded, weights. */
hp_status agree_model(const train_config *c, bool weights);

#endif
