/* The devices of a model on the command line: by --devices and --strategy, or by --groups. */
#ifndef CLI_PLACEMENT_OPTIONS_H
#define CLI_PLACEMENT_OPTIONS_H

#include "cli/cli.h"
#include "model/placement.h"

typedef struct {
  placement p;
  tree file; /* of --groups, and what was read of it */
  arena mem;
} placement_options;

/* HP_ERR_ARG if the options contradict each other; else freed with placement_options_free. */
hp_status placement_options_read(const model_options *o, placement_options *out);
/* Refuses a cache of keys and values on host memory or flash beside stages of a pipeline; tier: by
 * cli_kv_tier. */
hp_status placement_options_check_cache(const model_options *o, int tier);
void placement_options_free(placement_options *p);

#endif
