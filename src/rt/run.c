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

/* The name of an input or output with its suffix; NULL: out of memory. */
static const char *name_of(runs *r, const char *name, const char *suffix) {
  str full = {0};
  str_printf(&full, "%s%s", name, suffix ? suffix : "");
  uint32_t id = full.failed ? 0 : intern(&r->d->names, full.at, full.len);
  str_free(&full);
  return id ? intern_get(&r->d->names, id, NULL) : NULL;
}

/* One that the program lacks comes from another mesh, or goes there. */
static hp_status add_io(runs *r, const hp_graph *g, const ir_node *n, const layout *of,
                        const char *suffix) {
  val v = n->op == OP_INPUT ? n->out0 : graph_in(g, n)[0];
  run_io x = {.name = name_of(r, attr_str(g, n, "name"), suffix),
              .type = *graph_value(g, v),
              .input = n->op == OP_INPUT,
              .l = of[v]};
  if (!x.name) return HP_ERR_OOM;
  if (!exec_has_io(r->e[0], x.name)) return HP_OK;
  if (!vec_push(&r->ios, x)) return HP_ERR_OOM;
  run_io *made = &r->ios.at[r->ios.len - 1];
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

/* Checks names and sizes before anything runs; a device alone does so itself. */
hp_status runs_give(runs *r, const hp_io *io, int n) {
  r->io = io;
  r->n = n;
  if (r->d->n == 1) return HP_OK;
  HP_TRY(io_table_match(&r->names, io, n));
  for (size_t k = 0; k < r->ios.len; k++) {
    const run_io *x = &r->ios.at[k];
    const hp_io *global = r->names.given.at[k];
    uint64_t want = (uint64_t)value_bytes(&x->type);
    if (global && global->bytes != want)
      HP_FAIL(HP_ERR_ARG, "\"%s\" has %llu bytes in the program, %zu are given", x->name,
              (unsigned long long)want, global->bytes);
  }
  return HP_OK;
}

static void begin_run(void *context) {
  const runs *r = context;
  r->d->job->comm->iface->begin(r->d->member[0]->everyone);
}

/* Its shards in, its program, its shards out. */
hp_status runs_run_device(const runs *r, int i) { return exec_run(r->e[i], r->io, r->n, r->how); }

static hp_status run_device(void *context, int i) {
  const runs *r = context;
  hp_status st = runs_run_device(r, i);
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

hp_status runs_fetch_outputs(const runs *r) {
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
static hp_status run_alone(void *context, int i) { return runs_run_device(context, i); }

hp_status runs_run(runs *r, const hp_io *io, int n) {
  HP_TRY(runs_give(r, io, n));
  if (r->d->n == 1) return device_mesh_each(r->d, &(team_work){NULL, run_alone, r});
  HP_TRY(device_mesh_each(r->d, &(team_work){begin_run, run_device, r}));
  return runs_fetch_outputs(r);
}
