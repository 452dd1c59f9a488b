/* Random bytes of the system, for unique names, keys and numbers.  Results use philox.h. */
#ifndef BASE_RANDOM_H
#define BASE_RANDOM_H

#include "base/status.h"

/* HP_ERR_IO if the system provides none. */
hp_status random_bytes(void *out, size_t n);

#endif
