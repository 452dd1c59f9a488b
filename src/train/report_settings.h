/* The keys of a training file as the settings of a report. */
#ifndef TRAIN_REPORT_SETTINGS_H
#define TRAIN_REPORT_SETTINGS_H

#include "base/arena.h"
#include "report/report.h"
#include "train/train_config.h"

/* Lists every key that counts, with its value as text, in the order of the keys.  List and texts
 * are the arena's. */
hp_status report_settings_list(const train_config *c, arena *a, const report_setting **list,
                               int *n);

#endif
