/* SIGTERM, SIGUSR1 and Ctrl-C ask a run to write a checkpoint and end; a second one ends it at
 * once. */
#ifndef TRAIN_SIGNALS_H
#define TRAIN_SIGNALS_H

#include <stdbool.h>

void signals_catch(void);
bool signals_taken(void);
const char *signals_name(void); /* of the one that came */

#endif
