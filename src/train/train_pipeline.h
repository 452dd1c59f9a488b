/* The pipeline: block of a configuration. */
#ifndef TRAIN_TRAIN_PIPELINE_H
#define TRAIN_TRAIN_PIPELINE_H

#include "base/str.h"
#include "train/train_config.h"

/* Reads its keys; microbatches are gradient_accumulation_steps. */
hp_status train_pipeline_read(train_config *c);
/* The strategy with pp=STAGES, in *text, if the block says stages and the strategy does not say pp;
 * else `base` itself. */
hp_status train_pipeline_strategy(const train_config *c, const char *base, str *text,
                                  const char **out);
/* A schedule and a cut need a pipeline; the cut, into c->is.place, which is decided. */
hp_status train_pipeline_check(train_config *c);
/* Its steps end with their update. */
hp_status train_pipeline_check_update(train_config *c);
/* Warns if post_validation: true was asked for, and no step looks ahead. */
void train_pipeline_tell(const train_config *c, bool looks_ahead);
/* The schedule for hp_device_options.pipeline: its name, or the rows of its file in *rows. */
hp_status train_pipeline_schedule(const train_config *c, str *rows, const char **out);

#endif
