#include "rt/run.h"

#include <string.h>

static hp_status add_io(runs *r, const hp_graph *g, const ir_node *n, const layout *of,
                        const char *suffix) {
  val v = n->op == OP_INPUT ? n->out0 : graph_in(g, n)[0];
  run_io x = {.name = NULL, .type = *graph_value(g, v), .input = n->op == OP_INPUT, .l = of[v]};
  str full = {0};
  str_printf(&full, "%s%s", attr_str(g, n, "name"), suffix ? suffix : "");
  uint32_t name = full.failed ? 0 : intern(&r->d->names, full.at, full.len);
  str_free(&full);
  if (!name || !vec_push(&r->ios, x)) return HP_ERR_OOM;
  run_io *made = &r->ios.at[r->ios.len - 1];
  made->name = intern_get(&r->d->names, name, NULL);
  uint32_t row;
  HP_TRY(io_table_add(&r->names, made->name, &row));
  ir_value shard = x.type;
  for (int d = 0; d < shard.rank; d++)
    shard.dim[d] = layout_shard_size(&r->d->m, &x.l, d, shard.dim[d]);
  made->shard_bytes = (size_t)value_bytes(&shard);
  for (int i = 0; i < r->d->own; i++) {
    made->shard[i] = mem_calloc(made->shard_bytes + 1, 1); /* padding stays 0 */
    HP_TRY_MEM(made->shard[i]);
  }
  comm *c = r->d->job->comm; /* all shards may come together here */
  return c->iface->reserve ? c->iface->reserve(c, (int64_t)(made->shard_bytes + 1) * r->d->n)
                           : HP_OK;
}

hp_status runs_add_io(runs *r, const hp_graph *g, const layout *of, const char *suffix) {
  if (r->d->n == 1) return HP_OK;
  for (size_t i = 0; i < g->nodes.len; i++) {
    const ir_node *n = graph_node(g, (uint32_t)i);
    if (n->op == OP_INPUT || n->op == OP_OUTPUT) HP_TRY(add_io(r, g, n, of, suffix));
  }
  mem_free(r->given);
  r->given = mem_calloc(r->ios.len * (size_t)r->d->own, sizeof *r->given);
  return r->given ? HP_OK : HP_ERR_OOM;
}

void runs_free(runs *r) {
  for (int i = 0; i < COMM_LOCAL_MAX; i++) exec_free(r->e[i]);
  for (size_t k = 0; k < r->ios.len; k++)
    for (int i = 0; i < r->d->own; i++) mem_free(r->ios.at[k].shard[i]);
  vec_free(&r->ios);
  io_table_free(&r->names);
  mem_free(r->given);
}

static bool is_empty(const run_io *x) { return value_elements(&x->type) == 0; }

/* Checks names and sizes of global tensors; each device's list names its staging. */
static hp_status give(runs *r, const hp_io *io, int n) {
  HP_TRY(io_table_match(&r->names, io, n));
  r->n_given = 0;
  for (size_t k = 0; k < r->ios.len; k++) {
    const run_io *x = &r->ios.at[k];
    const hp_io *global = r->names.given.at[k];
    if (!global) continue;
    uint64_t want = (uint64_t)value_bytes(&x->type);
    if (global->bytes != want)
      HP_FAIL(HP_ERR_ARG, "\"%s\" has %llu bytes in the program, %zu are given", x->name,
              (unsigned long long)want, global->bytes);
    for (int i = 0; i < r->d->own; i++)
      r->given[(size_t)i * r->ios.len + (size_t)r->n_given] =
          (hp_io){x->name, x->shard[i], x->shard_bytes};
    r->n_given++;
  }
  return HP_OK;
}

/* What the caller gave for the k-th input (or output); NULL: nothing, or no elements. */
static void *given_data(const runs *r, size_t k, bool input) {
  const run_io *x = &r->ios.at[k];
  const hp_io *global = r->names.given.at[k];
  return global && x->input == input && !is_empty(x) ? global->data : NULL;
}

static void begin_run(void *context) {
  const runs *r = context;
  r->d->job->comm->iface->begin(r->d->member[0]->everyone);
}

/* One device of this process: its shards in, its program, its shards out. */
static hp_status run_device(void *context, int i) {
  runs *r = context;
  int at = (int)r->d->member[i]->position;
  for (size_t k = 0; k < r->ios.len; k++) {
    const run_io *x = &r->ios.at[k];
    void *data = given_data(r, k, true);
    if (data) shard_copy(r->d, at, &x->type, &x->l, data, x->shard[i], true);
  }
  hp_status st = exec_run(r->e[i], r->given + (size_t)i * r->ios.len, r->n_given);
  r->d->job->comm->iface->end(r->d->member[i]->everyone, st != HP_OK);
  HP_TRY(st);
  for (size_t k = 0; k < r->ios.len; k++) {
    const run_io *x = &r->ios.at[k];
    void *data = given_data(r, k, false);
    if (data && holds_first(r->d, at, &x->l))
      shard_copy(r->d, at, &x->type, &x->l, data, x->shard[i], false);
  }
  return HP_OK;
}

/* The shards of outputs that other processes hold. */
static hp_status fetch_outputs(const runs *r) {
  if (r->d->own == r->d->n) return HP_OK;
  for (size_t k = 0; k < r->ios.len; k++) {
    const run_io *x = &r->ios.at[k];
    void *data = given_data(r, k, false);
    if (data) HP_TRY(group_fetch(r->d, &x->type, &x->l, x->shard[0], data));
  }
  return HP_OK;
}

/* On the one device of a mesh, which other meshes may use, too. */
typedef struct {
  runs *r;
  const hp_io *io;
  int n;
} lone_run;
static hp_status run_lone(void *context, int i) {
  const lone_run *x = context;
  return exec_run(x->r->e[i], x->io, x->n);
}
static hp_status run_alone(runs *r, const hp_io *io, int n) {
  lone_run x = {r, io, n};
  return group_each(r->d, &(team_work){NULL, run_lone, &x});
}

hp_status runs_run(runs *r, const hp_io *io, int n) {
  if (r->d->n == 1) return run_alone(r, io, n);
  HP_TRY(give(r, io, n));
  HP_TRY(group_each(r->d, &(team_work){begin_run, run_device, r}));
  return fetch_outputs(r);
}
