/* The keys of a training file, for the settings of a report. */
#ifndef TRAIN_REPORT_SETTINGS_H
#define TRAIN_REPORT_SETTINGS_H

#include "base/arena.h"
#include "report/report.h"
#include "train/train_config.h"

/* Lists every used key with its value as text, in the order of the keys.  The arena owns list
 * and texts. */
hp_status report_settings_list(const train_config *c, arena *a, const report_setting **list,
                               int *n);

#endif
