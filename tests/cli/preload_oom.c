/* Loaded into hyper (LD_PRELOAD): in the process of rank $OOM_RANK the first $OOM_TIMES allocations
 * of exactly $OOM_BYTES bytes fail. */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

extern void *__libc_calloc(size_t n, size_t size);

static size_t bytes;
static atomic_long left;

__attribute__((constructor)) static void begin(void) {
  const char *rank = getenv("OMPI_COMM_WORLD_RANK"), *mine = getenv("OOM_RANK");
  if (strcmp(program_invocation_short_name, "hyper") || !rank || !mine || strcmp(rank, mine))
    return;
  bytes = strtoul(getenv("OOM_BYTES"), NULL, 10);
  left = atol(getenv("OOM_TIMES"));
}

void *calloc(size_t n, size_t size) {
  if (bytes && n * size == bytes && left-- > 0) {
    errno = ENOMEM;
    return NULL;
  }
  return __libc_calloc(n, size);
}
