/* The settings that affect a run's results, as names with values: a checkpoint records its own,
 * and a run that resumes from it must have the same, or name the changes. */
#ifndef TRAIN_SETTINGS_H
#define TRAIN_SETTINGS_H

#include "base/json.h"
#include "train/train_data.h"

typedef enum {
  SETTING_DATA,    /* how samples are made: named in the message if the data has changed */
  SETTING_NUMBER,  /* a change is refused, unless resume_override names it */
  SETTING_TENSORS, /* a change is refused: it decides what a checkpoint has tensors of */
  SETTING_TOLD     /* may change; the change is reported */
} setting_kind;

typedef struct {
  const char *name, *value; /* value: as in a YAML file */
  setting_kind kind;
} run_setting;

/* A setting that was changed when the run resumed from a checkpoint at `step`. */
typedef struct {
  int64_t step;
  const char *name, *then, *now;
} setting_change;

typedef struct {
  VEC(run_setting) all;
  VEC(setting_change) changes; /* since the run began, oldest first */
  arena mem;                   /* of values and changes */
} run_settings;

/* steps: of the full run.  Free with settings_free. */
hp_status settings_list(const train_config *c, const train_data *d, int64_t steps,
                        run_settings *out);
void settings_free(run_settings *s);

/* Valid names for resume_override; NULL after the last. */
const char *settings_override(size_t i);
/* Does resume_override contain this name? */
bool settings_has_override(const train_config *c, const char *name);

/* Adds "settings" and "changes" to the open map of w. */
void settings_print(const run_settings *s, json_writer *w);

/* Compares with the state of a checkpoint at `step`, and with its model's config.json (NULL:
 * missing).  Changes that are allowed are reported; those named by resume_override are also
 * recorded; all others are refused in one message (HP_ERR_INPUT). */
hp_status settings_match(run_settings *now, const train_config *c, const tree_node *state,
                         const tree_node *model_then, const tree_node *model_now, int64_t step);
/* Was this setting changed at that step? */
bool settings_changed(const run_settings *s, int64_t step, const char *name);

#endif
