/* The settings that decide a run's numbers, as names with values: a checkpoint has those that it
 * was made with, and a run that goes on from it has the same, or says what is to change. */
#ifndef TRAIN_SETTINGS_H
#define TRAIN_SETTINGS_H

#include "base/json.h"
#include "train/train_data.h"

typedef enum {
  SETTING_DATA,   /* how samples are made: named when the data has changed */
  SETTING_NUMBER, /* refused when it changes, unless resume_override names it */
  SETTING_TOLD    /* may change, and is told */
} setting_kind;

typedef struct {
  const char *name, *value; /* value: as in a YAML file */
  setting_kind kind;
} run_setting;

/* What a run changed when it went on from a checkpoint at `step`. */
typedef struct {
  int64_t step;
  const char *name, *then, *now;
} setting_change;

typedef struct {
  VEC(run_setting) all;
  VEC(setting_change) changes; /* since the run began, oldest first */
  arena mem;                   /* of values and changes */
} run_settings;

/* steps: of the whole run.  Free with settings_free. */
hp_status settings_list(const train_config *c, const train_data *d, int64_t steps,
                        run_settings *out);
void settings_free(run_settings *s);

/* Names that resume_override may have; NULL after the last. */
const char *settings_override(size_t i);
/* Does resume_override have this name? */
bool settings_has_override(const train_config *c, const char *name);

/* Adds "settings" and "changes" to the map that w is in. */
void settings_print(const run_settings *s, json_writer *w);

/* Compares with the state of a checkpoint at `step`, and with its model's config.json (NULL: not
 * there): what may change is told, what resume_override names is told and added to the changes, all
 * else is refused in one message (HP_ERR_INPUT). */
hp_status settings_match(run_settings *now, const train_config *c, const tree_node *state,
                         const tree_node *model_then, const tree_node *model_now, int64_t step);
/* Has this one changed at that step? */
bool settings_changed(const run_settings *s, int64_t step, const char *name);

#endif
