/* The transport over socket pairs, which stands in for MPI in tests: jobs of several processes run
 * and are supervised where no MPI library is installed.  tests/comm/socket_mpirun.c makes the
 * sockets, one pair for each two processes.
 *
 * As with MPI, messages move while a process calls the transport, and the end of another process
 * shows nowhere here: what is to come from it never does. */
#include "comm/transport.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

extern const transport hyper_transport;

enum { PROCESSES_MAX = 64, TAG_BEGIN = -1, TAG_END = -2, LATE_MS = 100 };

typedef struct {
  int64_t tag, bytes;
} header;

/* A send that is under way, or a receive that is posted. */
typedef struct request {
  struct request *next;
  header h;
  int peer;
  char *data;
  size_t moved; /* of header and data */
  bool done;
} request;

/* A message that came before its receive. */
typedef struct message {
  struct message *next;
  header h;
  int from;
  char *data;
} message;

static struct {
  int socket; /* -1: oneself, or a process that has ended */
  request *sends;
  header h; /* of the message that comes */
  size_t moved;
  char *data;
} peer[PROCESSES_MAX];
static int rank, size;
static request *receives;
static message *early;
static const char *failure;

/* --- messages --------------------------------------------------------------------------------- */

static bool fits(const request *r, int from, const header *h) {
  return (r->peer == TRANSPORT_ANY || r->peer == from) && r->h.tag == h->tag;
}

static void hand_over(request *r, const header *h, char *data) {
  if (h->bytes > r->h.bytes) failure = "a message is longer than its receive";
  else if (h->bytes) memcpy(r->data, data, (size_t)h->bytes);
  free(data);
  r->done = true;
}

/* A message is complete: the first receive that fits has it, or one that is still to be posted. */
static void take_message(int from) {
  header h = peer[from].h;
  char *data = peer[from].data;
  peer[from].data = NULL;
  peer[from].moved = 0;
  for (request **r = &receives; *r; r = &(*r)->next) {
    if (!fits(*r, from, &h)) continue;
    request *found = *r;
    *r = found->next;
    hand_over(found, &h, data);
    return;
  }
  message *m = calloc(1, sizeof *m), **last = &early;
  if (!m) {
    failure = "out of memory";
    return;
  }
  *m = (message){.h = h, .from = from, .data = data};
  while (*last) last = &(*last)->next;
  *last = m;
}

/* It has ended: what was to be sent to it is gone. */
static void lose(int i) {
  close(peer[i].socket);
  peer[i].socket = -1;
  for (request *r = peer[i].sends; r; r = r->next) r->done = true;
  peer[i].sends = NULL;
}

/* Is there nothing more to do on this socket for now? */
static bool stalled(int i, ssize_t n, bool reads) {
  if (n > 0) return false;
  if (n == 0 && !reads) return true;
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  lose(i);
  return true;
}

static void read_from(int i) {
  while (peer[i].socket >= 0 && !failure) {
    size_t head = sizeof(header), at = peer[i].moved;
    char *to = at < head ? (char *)&peer[i].h + at : peer[i].data + (at - head);
    size_t left = at < head ? head - at : head + (size_t)peer[i].h.bytes - at;
    ssize_t n = recv(peer[i].socket, to, left, 0);
    if (stalled(i, n, true)) return;
    peer[i].moved += (size_t)n;
    if (peer[i].moved == head && peer[i].h.bytes) {
      peer[i].data = malloc((size_t)peer[i].h.bytes);
      if (!peer[i].data) failure = "out of memory";
    }
    if (peer[i].moved == head + (size_t)peer[i].h.bytes) take_message(i);
  }
}

static void write_to(int i) {
  while (peer[i].sends && peer[i].socket >= 0) {
    request *r = peer[i].sends;
    size_t head = sizeof(header), at = r->moved;
    const char *from = at < head ? (const char *)&r->h + at : r->data + (at - head);
    size_t left = at < head ? head - at : head + (size_t)r->h.bytes - at;
    ssize_t n = send(peer[i].socket, from, left, MSG_NOSIGNAL);
    if (stalled(i, n, false)) return;
    r->moved += (size_t)n;
    if (r->moved < head + (size_t)r->h.bytes) continue;
    peer[i].sends = r->next;
    r->done = true;
  }
}

static const char *progress(void) {
  for (int i = 0; i < size; i++) {
    if (peer[i].socket >= 0) write_to(i);
    if (peer[i].socket >= 0) read_from(i);
  }
  return failure;
}

/* --- requests --------------------------------------------------------------------------------- */

static request *make(const void *data, size_t bytes, int to, int tag, uintptr_t *id) {
  request *r = calloc(1, sizeof *r);
  if (!r) return NULL;
  *r = (request){.h = {tag, (int64_t)bytes}, .peer = to, .data = (char *)(uintptr_t)data};
  *id = (uintptr_t)r;
  return r;
}

static const char *post_send(const void *data, size_t bytes, int to, int tag, uintptr_t *id) {
  request *r = make(data, bytes, to, tag, id), **last = &peer[to].sends;
  if (!r) return "out of memory";
  r->done = peer[to].socket < 0;
  if (r->done) return NULL;
  while (*last) last = &(*last)->next;
  *last = r;
  return progress();
}

static const char *post_receive(void *data, size_t bytes, int from, int tag, uintptr_t *id) {
  request *r = make(data, bytes, from, tag, id), **last = &receives;
  if (!r) return "out of memory";
  for (message **m = &early; *m; m = &(*m)->next) {
    if (!fits(r, (*m)->from, &(*m)->h)) continue;
    message *found = *m;
    *m = found->next;
    hand_over(r, &found->h, found->data);
    free(found);
    return failure;
  }
  while (*last) last = &(*last)->next;
  *last = r;
  return progress();
}

/* HYPER_TEST_LATE_RANK=0: as on a loaded machine, much comes between two calls of this process,
 * here before it asks for a message from anybody. */
static void be_late(const request *r) {
  const char *late = getenv("HYPER_TEST_LATE_RANK");
  if (late && atoi(late) == rank && r->peer == TRANSPORT_ANY && !r->done) poll(NULL, 0, LATE_MS);
}

static const char *test(uintptr_t *id, bool *done) {
  request *r = (request *)*id;
  be_late(r);
  const char *why = progress();
  *done = r->done;
  if (!r->done) return why;
  free(r);
  *id = 0;
  return why;
}

static const char *cancel(uintptr_t *id) {
  for (request **r = &receives; *r; r = &(*r)->next) {
    if ((uintptr_t)*r != *id) continue;
    *r = (*r)->next;
    break;
  }
  free((request *)*id);
  *id = 0;
  return NULL;
}

/* --- begin and end ---------------------------------------------------------------------------- */

/* Has a message of that tag come from every process that has not ended? */
static bool all_came(int tag) {
  for (int i = 0; i < size; i++) {
    bool came = peer[i].socket < 0;
    for (const message *m = early; m && !came; m = m->next) came = m->from == i && m->h.tag == tag;
    if (!came) return false;
  }
  return true;
}

static bool all_sent(void) {
  for (int i = 0; i < size; i++)
    if (peer[i].sends) return false;
  return true;
}

/* Waits until all are here, as MPI_Init and MPI_Finalize do. */
static const char *synchronize(int tag) {
  uintptr_t id;
  const char *why = NULL;
  for (int i = 0; i < size && !why; i++)
    if (peer[i].socket >= 0) why = post_send(NULL, 0, i, tag, &id);
  while (!why && !(all_came(tag) && all_sent())) {
    poll(NULL, 0, 1);
    why = progress();
  }
  return why;
}

/* "RANK SOCKET SOCKET ...": one a process, -1 for oneself. */
static bool read_sockets(const char *text) {
  char *end;
  rank = (int)strtol(text, &end, 10);
  for (size = 0; *end && size < PROCESSES_MAX; size++) {
    int s = peer[size].socket = (int)strtol(end, &end, 10);
    if (s < 0) continue;
    if (fcntl(s, F_SETFL, O_NONBLOCK) || fcntl(s, F_SETFD, FD_CLOEXEC)) return false;
  }
  return !*end && rank >= 0 && rank < size;
}

static const char *begin(transport_facts *out) {
  const char *sockets = getenv("HYPER_TEST_SOCKETS");
  if (!sockets || !read_sockets(sockets)) return "HYPER_TEST_SOCKETS names no sockets";
  *out = (transport_facts){.rank = rank, .size = size, .here = size, .place = rank};
  snprintf(out->library, sizeof out->library, "sockets of the tests");
  return synchronize(TAG_BEGIN);
}

static void end(void) {
  if (!failure) synchronize(TAG_END);
}

const transport hyper_transport =
    {TRANSPORT_VERSION, begin, post_send, post_receive, test, cancel, end};
