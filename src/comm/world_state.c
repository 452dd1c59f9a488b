/* The one variable that the files world*.c share. */
#include "comm/world_parts.h"

world_state world = {.once = PTHREAD_ONCE_INIT,
                     .facts = {.size = 1, .here = 1},
                     .lock = PTHREAD_MUTEX_INITIALIZER,
                     .failed = -1,
                     .waits_for = -1};
