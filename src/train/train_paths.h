/* Files and folders that a training file names: whether they are there. */
#ifndef TRAIN_TRAIN_PATHS_H
#define TRAIN_TRAIN_PATHS_H

#include "train/train_config.h"

/* The model's folder, the data sets and the cluster.  Each that is not there is kept as an error of
 * c, beside all others; reads_data false: a data set is told as a warning.  Keys with an error of
 * their own are passed over. */
hp_status train_paths_check(train_config *c, bool reads_data);

#endif
