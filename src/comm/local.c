#include "base/mem.h"
#include "comm/comm.h"

#include <pthread.h>
#include <string.h>

typedef struct {
  uint64_t shown, left; /* rendezvous that the device has come to, and has left */
  const void *data;     /* of the last one */
} member;

typedef struct {
  comm base;
  int64_t failed; /* the device that failed first, -1: none */
  pthread_mutex_t lock;
  /* Of a group, at its lowest device: signalled when the last member has come or left.  A signal at
   * every arrival wakes each member once per member, which took most of a small step's time on 35
   * devices. */
  pthread_cond_t complete[COMM_LOCAL_MAX];
  member device[COMM_LOCAL_MAX];
} local;

static local *get_local(comm *c) { return (local *)c; }

static void local_close(comm *c) {
  pthread_mutex_destroy(&get_local(c)->lock);
  for (int i = 0; i < COMM_LOCAL_MAX; i++) pthread_cond_destroy(&get_local(c)->complete[i]);
  mem_free(c);
}

static void local_reset(comm *c) {
  local *l = get_local(c);
  pthread_mutex_lock(&l->lock);
  memset(l->device, 0, sizeof l->device);
  l->failed = -1;
  pthread_mutex_unlock(&l->lock);
}

static hp_status report_failure(int64_t failed) {
  HP_FAIL(HP_ERR_COMM, "device %lld failed, and the others cannot go on without it",
          (long long)failed);
}

static bool has_come(const member *m, uint64_t rendezvous) { return m->shown >= rendezvous; }
static bool has_left(const member *m, uint64_t rendezvous) { return m->left >= rendezvous; }

/* Waits, with the lock, until all members have come or left, or a device has failed. */
static void wait_for_all(local *l, const comm_group *g, bool (*done)(const member *, uint64_t),
                         uint64_t rendezvous) {
  int64_t first = g->device[0];
  for (int64_t i = 1; i < g->n; i++) first = g->device[i] < first ? g->device[i] : first;
  bool waited = false;
  for (int64_t i = 0; i < g->n; i++)
    while (!done(&l->device[g->device[i]], rendezvous) && l->failed < 0) {
      pthread_cond_wait(&l->complete[first], &l->lock);
      waited = true;
    }
  if (!waited) pthread_cond_broadcast(&l->complete[first]);
}

static hp_status local_rendezvous(comm *c, const comm_group *g, const void *data,
                                  const comm_region *give, const comm_region *take,
                                  comm_view *seen) {
  local *l = get_local(c);
  (void)give;
  pthread_mutex_lock(&l->lock);
  member *me = &l->device[g->device[g->me]];
  me->data = data;
  wait_for_all(l, g, has_come, ++me->shown);
  for (int64_t i = 0; i < g->n && l->failed < 0; i++)
    seen[i] =
        (comm_view){(const char *)l->device[g->device[i]].data + take[i].start, take[i].stride};
  int64_t failed = l->failed;
  pthread_mutex_unlock(&l->lock);
  return failed < 0 ? HP_OK : report_failure(failed);
}

static hp_status local_leave(comm *c, const comm_group *g) {
  local *l = get_local(c);
  pthread_mutex_lock(&l->lock);
  wait_for_all(l, g, has_left, ++l->device[g->device[g->me]].left);
  int64_t failed = l->failed;
  pthread_mutex_unlock(&l->lock);
  return failed < 0 ? HP_OK : report_failure(failed);
}

static void local_fail(comm *c, int64_t device) {
  local *l = get_local(c);
  pthread_mutex_lock(&l->lock);
  if (l->failed < 0) l->failed = device;
  for (int i = 0; i < COMM_LOCAL_MAX; i++) pthread_cond_broadcast(&l->complete[i]);
  pthread_mutex_unlock(&l->lock);
}

static const comm_iface iface = {.name = "local",
                                 .close = local_close,
                                 .reset = local_reset,
                                 .rendezvous = local_rendezvous,
                                 .leave = local_leave,
                                 .fail = local_fail};

hp_status comm_local_open(int64_t devices, comm **out) {
  if (devices < 1 || devices > COMM_LOCAL_MAX)
    HP_FAIL(HP_ERR_LAYOUT, "%lld devices in one process; at most %d are possible",
            (long long)devices, COMM_LOCAL_MAX);
  local *l = mem_calloc(1, sizeof *l);
  HP_TRY_MEM(l);
  l->base = (comm){.iface = &iface, .devices = devices, .own = devices};
  l->failed = -1;
  pthread_mutex_init(&l->lock, NULL);
  for (int i = 0; i < COMM_LOCAL_MAX; i++) pthread_cond_init(&l->complete[i], NULL);
  *out = &l->base;
  return HP_OK;
}
