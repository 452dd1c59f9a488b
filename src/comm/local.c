#include "base/mem.h"
#include "comm/comm.h"

#include <pthread.h>
#include <string.h>

typedef struct {
  uint64_t shown, left; /* meetings that the device has come to, and has left */
  const void *data;     /* of the last one */
} member;

typedef struct {
  comm base;
  int64_t failed; /* the device that failed first, -1: none */
  pthread_mutex_t lock;
  pthread_cond_t change;
  member device[COMM_LOCAL_MAX];
} local;

static local *of(comm *c) { return (local *)c; }

static void local_close(comm *c) {
  pthread_mutex_destroy(&of(c)->lock);
  pthread_cond_destroy(&of(c)->change);
  mem_free(c);
}

static void local_reset(comm *c) {
  local *l = of(c);
  pthread_mutex_lock(&l->lock);
  memset(l->device, 0, sizeof l->device);
  l->failed = -1;
  pthread_mutex_unlock(&l->lock);
}

static hp_status given_up(int64_t failed) {
  HP_FAIL(HP_ERR_COMM, "device %lld failed, and the others cannot go on without it",
          (long long)failed);
}

static hp_status local_meet(comm *c, const comm_group *g, const void *data, const comm_piece *give,
                            const comm_piece *take, comm_view *seen) {
  local *l = of(c);
  (void)give;
  pthread_mutex_lock(&l->lock);
  member *me = &l->device[g->device[g->me]];
  uint64_t meeting = ++me->shown;
  me->data = data;
  pthread_cond_broadcast(&l->change);
  for (int64_t i = 0; i < g->n && l->failed < 0; i++) {
    const member *other = &l->device[g->device[i]];
    while (other->shown < meeting && l->failed < 0) pthread_cond_wait(&l->change, &l->lock);
    seen[i] = (comm_view){(const char *)other->data + take[i].start, take[i].stride};
  }
  int64_t failed = l->failed;
  pthread_mutex_unlock(&l->lock);
  return failed < 0 ? HP_OK : given_up(failed);
}

static hp_status local_leave(comm *c, const comm_group *g) {
  local *l = of(c);
  pthread_mutex_lock(&l->lock);
  uint64_t meeting = ++l->device[g->device[g->me]].left;
  pthread_cond_broadcast(&l->change);
  for (int64_t i = 0; i < g->n; i++)
    while (l->device[g->device[i]].left < meeting && l->failed < 0)
      pthread_cond_wait(&l->change, &l->lock);
  int64_t failed = l->failed;
  pthread_mutex_unlock(&l->lock);
  return failed < 0 ? HP_OK : given_up(failed);
}

static void local_fail(comm *c, int64_t device) {
  local *l = of(c);
  pthread_mutex_lock(&l->lock);
  if (l->failed < 0) l->failed = device;
  pthread_cond_broadcast(&l->change);
  pthread_mutex_unlock(&l->lock);
}

static const comm_iface iface = {.name = "local",
                                 .close = local_close,
                                 .reset = local_reset,
                                 .meet = local_meet,
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
  pthread_cond_init(&l->change, NULL);
  *out = &l->base;
  return HP_OK;
}
