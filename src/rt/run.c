#include "rt/run.h"

#include <string.h>

/* Of an input or output each device has its shard; the first that has it gives it. */
static hp_status set_views(runs *r, const run_io *x) {
  const device_mesh *g = r->d;
  for (int i = 0; i < g->own; i++) {
    int position = (int)g->member[i]->position;
    shard_view v = mover_view(&g->m, position, &x->type, &x->l);
    bool joins = g->own == g->n && holds_first(g, position, &x->l);
    HP_TRY(exec_set_view(r->e[i], x->name, &v, joins));
  }
  return HP_OK;
}

/* Room for the largest shard of an output, if the host cannot read it where it is. */
static hp_status hold_stage(runs *r, size_t bytes) {
  if (r->d->own == r->d->n || mover_is_host(r->d->member[0], TIER_DEVICE)) return HP_OK;
  if (bytes <= r->staged) return HP_OK;
  char *larger = mem_map(bytes);
  HP_TRY_MEM(larger);
  mem_unmap(r->stage, r->staged);
  r->stage = larger;
  r->staged = bytes;
  return HP_OK;
}

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
  HP_TRY(set_views(r, made));
  made->output = made->input ? PROG_NONE : exec_find_output(r->e[0], made->name);
  ir_value shard = x.type;
  for (int d = 0; d < shard.rank; d++)
    shard.dim[d] = layout_shard_size(&r->d->m, &x.l, d, shard.dim[d]);
  if (!x.input) HP_TRY(hold_stage(r, (size_t)value_bytes(&shard)));
  comm *c = r->d->job->comm; /* all shards may come together here */
  return c->iface->reserve ? c->iface->reserve(c, (value_bytes(&shard) + 1) * r->d->n) : HP_OK;
}

hp_status runs_add_io(runs *r, const hp_graph *g, const layout *of, const char *suffix) {
  if (r->d->n == 1) return HP_OK;
  for (size_t i = 0; i < g->nodes.len; i++) {
    const ir_node *n = graph_node(g, (uint32_t)i);
    if (n->op == OP_INPUT || n->op == OP_OUTPUT) HP_TRY(add_io(r, g, n, of, suffix));
  }
  return HP_OK;
}

void runs_free(runs *r) {
  for (int i = 0; i < COMM_LOCAL_MAX; i++) exec_free(r->e[i]);
  vec_free(&r->ios);
  io_table_free(&r->names);
  mem_unmap(r->stage, r->staged);
}

static bool is_empty(const run_io *x) { return value_elements(&x->type) == 0; }

/* Checks names and sizes before anything runs. */
static hp_status give(runs *r, const hp_io *io, int n) {
  HP_TRY(io_table_match(&r->names, io, n));
  for (size_t k = 0; k < r->ios.len; k++) {
    const run_io *x = &r->ios.at[k];
    const hp_io *global = r->names.given.at[k];
    uint64_t want = (uint64_t)value_bytes(&x->type);
    if (global && global->bytes != want)
      HP_FAIL(HP_ERR_ARG, "\"%s\" has %llu bytes in the program, %zu are given", x->name,
              (unsigned long long)want, global->bytes);
  }
  r->io = io;
  r->n = n;
  return HP_OK;
}

static void begin_run(void *context) {
  const runs *r = context;
  r->d->job->comm->iface->begin(r->d->member[0]->everyone);
}

/* One device of this process: its shards in, its program, its shards out. */
static hp_status run_device(void *context, int i) {
  const runs *r = context;
  hp_status st = exec_run(r->e[i], r->io, r->n);
  r->d->job->comm->iface->end(r->d->member[i]->everyone, st != HP_OK);
  return st;
}

static hp_status fetch_output(const runs *r, const run_io *x, void *to) {
  const device *d = r->d->member[0];
  const void *at = exec_address(r->e[0], x->output), *shard = NULL;
  ir_value s = x->type;
  for (int k = 0; k < s.rank; k++) s.dim[k] = layout_shard_size(&r->d->m, &x->l, k, s.dim[k]);
  err_report why = {0};
  hp_status st = !at ? HP_OK : mover_show(d, at, (uint64_t)value_bytes(&s), r->stage, &shard);
  if (st) err_take(st, &why);
  hp_status all = device_mesh_fetch(r->d, &x->type, &x->l, st ? NULL : shard, to);
  if (!st) return all;
  err_clear();
  return err_give(&why);
}

/* The shards of outputs that other processes hold. */
static hp_status fetch_outputs(const runs *r) {
  if (r->d->own == r->d->n) return HP_OK;
  for (size_t k = 0; k < r->ios.len; k++) {
    const run_io *x = &r->ios.at[k];
    const hp_io *global = r->names.given.at[k];
    if (!global || x->input || is_empty(x)) continue;
    HP_TRY(fetch_output(r, x, global->data));
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
  return device_mesh_each(r->d, &(team_work){NULL, run_lone, &x});
}

hp_status runs_run(runs *r, const hp_io *io, int n) {
  if (r->d->n == 1) return run_alone(r, io, n);
  HP_TRY(give(r, io, n));
  HP_TRY(device_mesh_each(r->d, &(team_work){begin_run, run_device, r}));
  return fetch_outputs(r);
}
