/* Bytes between the processes of a job: what a plugin gives, see src/comm/mpi.  Nothing here needs
 * the host's functions, so that a plugin is built against this header alone.
 *
 * Calls come one at a time, from any thread.  They return NULL, or why it failed; none blocks but
 * `begin` and `end`. */
#ifndef COMM_TRANSPORT_H
#define COMM_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TRANSPORT_SYMBOL "hyper_transport"
enum { TRANSPORT_VERSION = 1, TRANSPORT_ANY = -1, TRANSPORT_BYTES_MAX = 1 << 30 };

typedef struct {
  int rank, size;
  int here, place;   /* processes of the job on this machine, and the place of this among them */
  char library[128]; /* "Open MPI v4.1.4" */
} transport_facts;

typedef struct {
  int version;
  const char *(*begin)(transport_facts *out);
  /* At most TRANSPORT_BYTES_MAX; data stays as it is until the request is done.  Between two
   * processes messages of a tag come in the order in which they were sent. */
  const char *(*send)(const void *data, size_t bytes, int to, int tag, uintptr_t *request);
  const char *(*receive)(void *data, size_t bytes, int from, int tag, uintptr_t *request);
  const char *(*test)(uintptr_t *request, bool *done); /* never again once it is done */
  const char *(*cancel)(uintptr_t *request);           /* of a receive that is not done */
  void (*end)(void);
} transport;

#endif
