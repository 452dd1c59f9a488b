#include "compile/offload_host.h"

#include "hyperparallel.h"
#include "sim/cost.h"

typedef struct {
  const offload_options *o;
  const program *p;
} host_rules;

static bool may_be_on_host(const void *context, const prog_buffer *f) {
  const host_rules *r = context;
  int home = r->o->home(r->o->context, program_str(r->p, f->name));
  int mode = offload_mode_of(r->p, r->o, f);
  return home < 0 ? mode == HP_OFFLOAD_AUTO || mode == HP_OFFLOAD_HOST : home == TIER_HOST;
}

/* Where the host has no room, its tensors are on flash, which kernels do not reach. */
hp_status offload_host_find(offload_items *x, const offload_options *o) {
  host_rules r = {o, x->p};
  if (!o->host || o->to_flash) return HP_OK;
  x->on_host = mem_calloc(x->p->insts.len, 1);
  HP_TRY_MEM(x->on_host);
  return host_update_find(x->p, o->workspace, may_be_on_host, &r, x->on_host);
}

static bool is_written(const offload_items *x, uint32_t it) {
  for (uint32_t k = 0; k < x->item[it].touches; k++)
    if (x->touch[x->item[it].touch0 + k].access & OFFLOAD_WRITE) return true;
  return false;
}

/* What instruction i of the host means for an item that it reads or writes: the device keeps no
 * content of its own until the next run, and brings here what it writes. */
static void share_item(offload_items *x, uint32_t i, uint32_t it, bool writes) {
  offload_problem *q = &x->problem;
  offload_item *item = &x->item[it];
  bool before = x->on_host[i] == HOST_BEFORE;
  if (writes) {
    item->flags &= (uint8_t)~OFFLOAD_CARRIES;
    if (before) item->from_host = (uint32_t)q->hosts + 1;
  } else if (is_written(x, it)) {
    item->flags = (uint8_t)((item->flags & ~OFFLOAD_CARRIES) | OFFLOAD_RETURNS);
    item->tier = 0;
    if (!before) x->need[q->needs++] = it;
  }
}

static void add_host_work(offload_items *x, const offload_options *o, uint32_t i) {
  const program *p = x->p;
  prog_inst n = *program_inst(p, i);
  offload_problem *q = &x->problem;
  offload_host_work *h = &x->host[q->hosts];
  n.stream = STREAM_HOST;
  *h = (offload_host_work){cost_inst(o->cluster, o->mesh, p, &n), (uint32_t)q->needs, 0};
  for (int k = 0; k < n.n_in + n.n_out; k++) {
    uint32_t b = program_args(p, &n)[k], it = x->item_of[x->whole[b]];
    if (it != PROG_NONE) share_item(x, i, it, k >= n.n_in);
    else x->away[offload_root(p, b)] = TIER_HOST;
  }
  h->needs = (uint32_t)q->needs - h->need0;
  x->host_inst[q->hosts++] = i;
}

hp_status offload_host_list(offload_items *x, const offload_options *o) {
  size_t n = x->p->insts.len, args = 0;
  if (!x->on_host) return HP_OK;
  for (uint32_t i = 0; i < n; i++)
    if (offload_is_of_host(x, i)) args += program_inst(x->p, i)->n_in;
  x->host = mem_calloc(n, sizeof *x->host);
  x->host_inst = mem_calloc(n, sizeof *x->host_inst);
  x->need = mem_calloc(args, sizeof *x->need);
  HP_TRY_MEM(x->host && x->host_inst && x->need);
  for (uint8_t when = HOST_BEFORE; when <= HOST_AFTER; when++) {
    for (uint32_t i = 0; i < n; i++)
      if (x->on_host[i] == when) add_host_work(x, o, i);
    if (when == HOST_BEFORE) x->problem.before = x->problem.hosts;
  }
  x->problem.host = x->host;
  x->problem.need = x->need;
  return HP_OK;
}
