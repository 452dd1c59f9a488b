/* The transport over MPI: a plugin, for it alone is linked with the library of whoever started the
 * job.  MPI-3, point to point, and nothing that waits: how to wait is the host's choice, for the
 * libraries' own waiting keeps a core busy. */
#include "comm/transport.h"

#include <mpi.h>
#include <stdio.h>
#include <string.h>

_Static_assert(sizeof(MPI_Request) <= sizeof(uintptr_t), "a request fits into a word");

extern const transport hyper_transport;

static MPI_Comm job;
static char text[MPI_MAX_ERROR_STRING];

static const char *describe_error(int code) {
  int n;
  if (code == MPI_SUCCESS) return NULL;
  if (MPI_Error_string(code, text, &n)) snprintf(text, sizeof text, "MPI error %d", code);
  return text;
}

static void store_request(uintptr_t *to, MPI_Request r) {
  *to = 0;
  memcpy(to, &r, sizeof r);
}

static const char *begin(transport_facts *out) {
  int level, n, started;
  char library[MPI_MAX_LIBRARY_VERSION_STRING];
  MPI_Comm here;
  MPI_Initialized(&started);
  int code = started ? MPI_Query_thread(&level)
                     : MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
  if (code) return describe_error(code);
  if (level < MPI_THREAD_SERIALIZED)
    return "this MPI library cannot be called from several threads";
  code = MPI_Comm_dup(MPI_COMM_WORLD, &job);
  if (code) return describe_error(code);
  MPI_Comm_set_errhandler(job, MPI_ERRORS_RETURN);
  MPI_Comm_rank(job, &out->rank);
  MPI_Comm_size(job, &out->size);
  code = MPI_Comm_split_type(job, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here);
  if (code) return describe_error(code);
  MPI_Comm_size(here, &out->here);
  MPI_Comm_rank(here, &out->place);
  MPI_Comm_free(&here);
  MPI_Get_library_version(library, &n);
  snprintf(out->library, sizeof out->library, "%.*s", (int)strcspn(library, ",\n"), library);
  return NULL;
}

static const char *send(const void *data, size_t bytes, int to, int tag, uintptr_t *request) {
  MPI_Request r;
  int code = MPI_Isend(data, (int)bytes, MPI_BYTE, to, tag, job, &r);
  store_request(request, r);
  return describe_error(code);
}

static const char *receive(void *data, size_t bytes, int from, int tag, uintptr_t *request) {
  MPI_Request r;
  int source = from == TRANSPORT_ANY ? MPI_ANY_SOURCE : from;
  int code = MPI_Irecv(data, (int)bytes, MPI_BYTE, source, tag, job, &r);
  store_request(request, r);
  return describe_error(code);
}

static const char *test(uintptr_t *request, bool *done) {
  MPI_Request r;
  int flag = 0;
  memcpy(&r, request, sizeof r);
  int code = MPI_Test(&r, &flag, MPI_STATUS_IGNORE);
  store_request(request, r);
  *done = flag;
  return describe_error(code);
}

static const char *cancel(uintptr_t *request) {
  MPI_Request r;
  memcpy(&r, request, sizeof r);
  int code = MPI_Cancel(&r);
  return describe_error(code ? code : MPI_Request_free(&r));
}

static void end(void) {
  int ended;
  MPI_Finalized(&ended);
  if (!ended) MPI_Finalize();
}

const transport hyper_transport = {TRANSPORT_VERSION, begin, send, receive, test, cancel, end};
