/* Training files of a few lines behind those that every run needs. */
#ifndef CONFIG_TEXT_H
#define CONFIG_TEXT_H

#include "train/train_config.h"

/* Reads four lines and `more`, from line 5 of "run.yaml" on.  The tree outlives the config; it is
 * to be freed after a failure too. */
hp_status config_text_parse(const char *more, tree *source, train_config *c);
/* Fails the test unless it is refused by a message with `says` in it. */
void config_text_refused(const char *more, const char *says);

#endif
