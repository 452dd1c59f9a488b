/* Checks that the files and folders named by a training file exist. */
#ifndef TRAIN_TRAIN_PATHS_H
#define TRAIN_TRAIN_PATHS_H

#include "train/train_config.h"

/* The model's folder, the data sets and the cluster.  Each missing one is added to the errors of
 * c; reads_data false: a missing data set is a warning.  Keys with an error of their own are
 * skipped. */
hp_status train_paths_check(train_config *c, bool reads_data);

#endif
