/* Random bytes of the system: for names, keys and numbers that nobody else has drawn.  What decides
 * results is philox.h. */
#ifndef BASE_RANDOM_H
#define BASE_RANDOM_H

#include "base/status.h"

/* HP_ERR_IO when the system gives none. */
hp_status random_bytes(void *out, size_t n);

#endif
