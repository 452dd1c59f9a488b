/* Messages between the processes of a job.  A plugin implements this table, see src/comm/mpi; it
 * needs no other header and no function of the library.
 *
 * The library makes one call at a time, from any thread.  A call returns NULL, or the reason of its
 * failure.  Only `begin` and `end` may block. */
#ifndef COMM_TRANSPORT_H
#define COMM_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TRANSPORT_SYMBOL "hyper_transport"
enum { TRANSPORT_VERSION = 1, TRANSPORT_ANY = -1, TRANSPORT_BYTES_MAX = 1 << 30 };

typedef struct {
  int rank, size;
  int here, place;   /* processes on this machine, and the place of this one among them */
  char library[128]; /* "Open MPI v4.1.4" */
} transport_facts;

typedef struct {
  int version;
  const char *(*begin)(transport_facts *out);
  /* Start a request of at most TRANSPORT_BYTES_MAX bytes; `data` must stay unchanged until it is
   * done.  Messages with one tag from one process arrive in the order in which they were sent.
   * from: may be TRANSPORT_ANY. */
  const char *(*send)(const void *data, size_t bytes, int to, int tag, uintptr_t *request);
  const char *(*receive)(void *data, size_t bytes, int from, int tag, uintptr_t *request);
  /* Is the request done?  A request that is done must not be tested again. */
  const char *(*test)(uintptr_t *request, bool *done);
  const char *(*cancel)(uintptr_t *request); /* a receive that is not done */
  void (*end)(void);
} transport;

#endif
