#include "base/random.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

hp_status random_bytes(void *out, size_t n) {
  char *at = out;
  while (n) {
    ssize_t k = getrandom(at, n, 0);
    if (k < 0 && errno == EINTR) continue;
    if (k <= 0) HP_FAIL(HP_ERR_IO, "the system gives no random numbers: %s", strerror(errno));
    at += k;
    n -= (size_t)k;
  }
  return HP_OK;
}
