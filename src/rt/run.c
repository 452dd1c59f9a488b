#include "rt/run.h"

#include <string.h>

static hp_status add_io(runs *r, const hp_graph *g, const ir_node *n, const layout *of) {
  val v = n->op == OP_INPUT ? n->out0 : graph_in(g, n)[0];
  run_io x = {.name = NULL, .type = *graph_value(g, v), .input = n->op == OP_INPUT, .l = of[v]};
  uint32_t name = intern(&r->d->names, attr_str(g, n, "name"), strlen(attr_str(g, n, "name")));
  if (!name || !vec_push(&r->ios, x)) return HP_ERR_OOM;
  run_io *made = &r->ios.at[r->ios.len - 1];
  made->name = intern_get(&r->d->names, name, NULL);
  ir_value part = x.type;
  for (int d = 0; d < part.rank; d++)
    part.dim[d] = layout_shard_size(&r->d->m, &x.l, d, part.dim[d]);
  made->shard_bytes = (size_t)value_bytes(&part);
  for (int i = 0; i < r->d->own; i++) {
    made->shard[i] = mem_calloc(made->shard_bytes + 1, 1); /* padding stays 0 */
    HP_TRY_MEM(made->shard[i]);
  }
  comm *c = r->d->comm; /* all parts may come together here */
  return c->iface->reserve ? c->iface->reserve(c, (int64_t)(made->shard_bytes + 1) * r->d->n)
                           : HP_OK;
}

hp_status runs_prepare(runs *r, const hp_graph *g, const layout *of) {
  if (r->d->n == 1) return HP_OK;
  for (size_t i = 0; i < g->nodes.len; i++) {
    const ir_node *n = graph_node(g, (uint32_t)i);
    if (n->op == OP_INPUT || n->op == OP_OUTPUT) HP_TRY(add_io(r, g, n, of));
  }
  r->given = mem_calloc(r->ios.len * (size_t)r->d->own, sizeof *r->given);
  return r->given ? HP_OK : HP_ERR_OOM;
}

void runs_free(runs *r) {
  for (int i = 0; i < COMM_LOCAL_MAX; i++) exec_free(r->e[i]);
  for (size_t k = 0; k < r->ios.len; k++)
    for (int i = 0; i < r->d->own; i++) mem_free(r->ios.at[k].shard[i]);
  vec_free(&r->ios);
  mem_free(r->given);
}

static const run_io *find_io(const runs *r, const char *name) {
  for (size_t k = 0; name && k < r->ios.len; k++)
    if (!strcmp(r->ios.at[k].name, name)) return &r->ios.at[k];
  return NULL;
}

static bool is_empty(const run_io *x) { return value_elements(&x->type) == 0; }

/* Checks names and sizes of the whole; each device's list names its staging. */
static hp_status give(runs *r, const hp_io *io, int n) {
  r->n_given = n;
  r->whole = io;
  if ((size_t)n > r->ios.len)
    HP_FAIL(HP_ERR_ARG, "%d inputs and outputs are given, the program has %zu", n, r->ios.len);
  for (int k = 0; k < n; k++) {
    HP_TRY(exec_check_io(io, k));
    const run_io *x = find_io(r, io[k].name);
    if (!x) HP_FAIL(HP_ERR_ARG, "the program has no input or output \"%s\"", io[k].name);
    uint64_t want = (uint64_t)value_bytes(&x->type);
    if (io[k].bytes != want)
      HP_FAIL(HP_ERR_ARG, "\"%s\" has %llu bytes in the program, %zu are given", io[k].name,
              (unsigned long long)want, io[k].bytes);
    for (int i = 0; i < r->d->own; i++)
      r->given[(size_t)i * r->ios.len + (size_t)k] = (hp_io){x->name, x->shard[i], x->shard_bytes};
  }
  return HP_OK;
}

/* One device of this process: its parts in, its program, its parts out. */
static hp_status run_device(void *context, int i) {
  runs *r = context;
  int at = r->d->first + i;
  hp_io *mine = r->given + (size_t)i * r->ios.len;
  for (int k = 0; k < r->n_given; k++) {
    const run_io *x = find_io(r, r->whole[k].name);
    if (x->input && !is_empty(x))
      shard_copy(r->d, at, &x->type, &x->l, r->whole[k].data, mine[k].data, true);
  }
  hp_status st = exec_run(r->e[i], mine, r->n_given);
  if (st) {
    r->d->comm->iface->fail(r->d->comm, at);
    return st;
  }
  for (int k = 0; k < r->n_given; k++) {
    const run_io *x = find_io(r, r->whole[k].name);
    if (!x->input && !is_empty(x) && holds_first(r->d, at, &x->l))
      shard_copy(r->d, at, &x->type, &x->l, r->whole[k].data, mine[k].data, false);
  }
  return HP_OK;
}

/* The parts of outputs that other processes hold. */
static hp_status fetch_outputs(const runs *r) {
  if (r->d->own == r->d->n) return HP_OK;
  for (int k = 0; k < r->n_given; k++) {
    const run_io *x = find_io(r, r->whole[k].name);
    if (!x->input && !is_empty(x))
      HP_TRY(group_fetch(r->d, &x->type, &x->l, x->shard[0], r->whole[k].data));
  }
  return HP_OK;
}

hp_status runs_run(runs *r, const hp_io *io, int n) {
  if (r->d->n == 1) return exec_run(r->e[0], io, n);
  HP_TRY(give(r, io, n));
  r->d->comm->iface->reset(r->d->comm);
  HP_TRY(thread_team_run(r->d->thread_team, run_device, r));
  return fetch_outputs(r);
}
