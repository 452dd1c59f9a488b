/* Where tensors may be that do not fit a device's memory, as users write it: `offload`, `flash`,
 * `flash_limit` and `host_limit`, of configurations and commands alike.
 *
 * Each class of memory, and named tensors that match a pattern, are auto (they leave the device
 * where the memory limit asks for it), none (they stay), host or flash (they are there whenever
 * they are not in use).  Failures are HP_ERR_ARG without the name of the key or option. */
#ifndef MODEL_TIER_OPTIONS_H
#define MODEL_TIER_OPTIONS_H

#include "base/arena.h"
#include "base/status.h"
#include "base/vec.h"

typedef struct {
  const char *pattern;
  int offload; /* HP_OFFLOAD_* */
} tier_home;

typedef struct tier_options {
  uint8_t offload[HP_MEMORY_CLASSES]; /* HP_OFFLOAD_* */
  VEC(tier_home) homes;               /* in their order */
  VEC(const char *) flash;            /* folders */
  uint64_t flash_limit, host_limit;   /* 0: none is given */
  int policy;                         /* HP_PLAN_* */
  arena mem;
} tier_options;

/* All that may leave does where a limit asks for it. */
void tier_options_init(tier_options *o);
void tier_options_free(tier_options *o);
/* A class of memory by its name, or a pattern, is auto, none, host or flash. */
hp_status tier_options_set(tier_options *o, const char *name, const char *word);
/* HP_MEMORY_* of the name of a class, -1; HP_OFFLOAD_* of a word, -1. */
int tier_options_find_class(const char *name);
int tier_options_find_word(const char *word);
const char *tier_options_word(int offload);
/* "auto", "none", or "weights=host,optimizer=flash,*.mlp.*=none". */
hp_status tier_options_parse(tier_options *o, const char *text);
/* "/mnt/a,/mnt/b" */
hp_status tier_options_add_flash(tier_options *o, const char *paths);
/* "auto", or a rule: "zero_offload", "layer_ahead", "full_recompute". */
hp_status tier_options_set_policy(tier_options *o, const char *word);
/* Are the folders there that what was asked for needs, and their limit? */
hp_status tier_options_check(const tier_options *o);

/* Into the options of a device, which must not outlive o; and the rules by name, once it is open.
 */
void tier_options_fill(const tier_options *o, hp_device_options *out);
hp_status tier_options_apply(const tier_options *o, hp_device *d);

#endif
