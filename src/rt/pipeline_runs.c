#include "rt/pipeline_runs.h"

#include "rt/stage_meshes.h"

#include <string.h>

/* The program of a mesh: its inputs and outputs as rows of the table of all, and those that are
 * given in the run at hand. */
typedef struct {
  runs *of; /* NULL: the mesh has no program */
  VEC(uint32_t) row;
  hp_io *io; /* [row.len] */
  int n;
} mesh_runs;

/* Which mesh's program a device of this process runs, and which of the mesh's devices it is. */
typedef struct {
  int mesh, member;
} place;

/* An output that the processes of a mesh have. */
typedef struct {
  uint32_t row;
  int mesh;
  size_t bytes;
} shared_output;

struct pipeline_runs {
  device_mesh *d;
  mesh_runs *mesh; /* [d->meshes] */
  place at[COMM_LOCAL_MAX];
  io_table names;
  VEC(shared_output) shared; /* of several processes */
};

static place find_place(const device_mesh *d, int thread) {
  for (int k = 0; k < d->meshes; k++)
    for (int i = 0; i < d->stage_mesh[k]->own; i++)
      if (d->stage_mesh[k]->thread[i] == thread) return (place){k, i};
  return (place){-1, 0};
}

hp_status pipeline_runs_create(device_mesh *d, pipeline_runs **out) {
  pipeline_runs *r = mem_calloc(1, sizeof *r);
  HP_TRY_MEM(r);
  r->d = d;
  r->mesh = mem_calloc((size_t)d->meshes, sizeof *r->mesh);
  for (int i = 0; i < d->own; i++) r->at[i] = find_place(d, d->thread[i]);
  *out = r;
  return r->mesh ? HP_OK : HP_ERR_OOM;
}

void pipeline_runs_free(pipeline_runs *r) {
  if (!r) return;
  for (int k = 0; r->mesh && k < r->d->meshes; k++) {
    vec_free(&r->mesh[k].row);
    mem_free(r->mesh[k].io);
  }
  mem_free(r->mesh);
  io_table_free(&r->names);
  vec_free(&r->shared);
  mem_free(r);
}

static hp_status add_name(pipeline_runs *r, mesh_runs *m, const char *name) {
  uint32_t row;
  HP_TRY(io_table_add(&r->names, name, &row));
  return vec_push(&m->row, row) ? HP_OK : HP_ERR_OOM;
}

hp_status pipeline_runs_add(pipeline_runs *r, int i, runs *of) {
  mesh_runs *m = &r->mesh[i];
  const program *p = of->e[0] ? exec_program(of->e[0]) : NULL;
  m->of = of;
  for (size_t k = 0; k < of->ios.len; k++) HP_TRY(add_name(r, m, of->ios.at[k].name));
  for (size_t b = 0; of->d->n == 1 && b < p->buffers.len; b++) {
    const prog_buffer *f = &p->buffers.at[b];
    bool is_io = f->root == b && f->flags & (BUFFER_INPUT | BUFFER_OUTPUT);
    if (is_io) HP_TRY(add_name(r, m, program_str(p, f->name)));
  }
  m->io = mem_calloc(m->row.len + 1, sizeof *m->io);
  return m->io ? HP_OK : HP_ERR_OOM;
}

hp_status pipeline_runs_name(pipeline_runs *r, int i, const char *name, const ir_value *type,
                             bool is_output) {
  shared_output x = {.mesh = i, .bytes = (size_t)value_bytes(type)};
  HP_TRY(io_table_add(&r->names, name, &x.row));
  return !is_output || r->d->own == r->d->n || vec_push(&r->shared, x) ? HP_OK : HP_ERR_OOM;
}

/* What the meshes of other processes have computed, and what this one has for them. */
static hp_status share_outputs(const pipeline_runs *r) {
  const device_mesh *d = r->d;
  char wants[COMM_MAX];
  for (size_t k = 0; k < r->shared.len; k++) {
    const shared_output *x = &r->shared.at[k];
    const hp_io *given = r->names.given.at[x->row];
    const mesh *m = &d->stage_mesh[x->mesh]->m;
    if (!given) continue;
    if (given->bytes != x->bytes)
      HP_FAIL(HP_ERR_ARG, "\"%s\" has %zu bytes in the program, %zu are given", given->name,
              x->bytes, given->bytes);
    for (int i = 0; i < d->n; i++) wants[i] = (char)(mesh_position(m, i) < 0);
    HP_TRY(device_mesh_send(d, mesh_rank(m, 0), wants, given->data, x->bytes));
  }
  return HP_OK;
}

static hp_status give(pipeline_runs *r, const hp_io *io, int n) {
  HP_TRY(io_table_match(&r->names, io, n));
  for (int k = 0; k < r->d->meshes; k++) {
    mesh_runs *m = &r->mesh[k];
    m->n = 0;
    for (size_t i = 0; i < m->row.len; i++) {
      const hp_io *given = r->names.given.at[m->row.at[i]];
      if (given) m->io[m->n++] = *given;
    }
    if (m->of) HP_TRY(runs_give(m->of, m->io, m->n));
  }
  return HP_OK;
}

static void begin_run(void *context) {
  const pipeline_runs *r = context;
  r->d->job->comm->iface->begin(r->d->member[0]->everyone);
}

static hp_status run_device(void *context, int i) {
  const pipeline_runs *r = context;
  place at = r->at[i];
  const runs *of = at.mesh < 0 ? NULL : r->mesh[at.mesh].of;
  hp_status st = of ? runs_run_device(of, at.member) : HP_OK;
  r->d->job->comm->iface->end(r->d->member[i]->everyone, st != HP_OK);
  return st;
}

bool pipeline_runs_can_continue(const pipeline_runs *r) {
  for (int k = 0; k < r->d->meshes; k++) {
    const runs *of = r->mesh[k].of;
    for (int i = 0; of && i < of->d->own; i++)
      if (!exec_can_continue(of->e[i])) return false;
  }
  return true;
}

hp_status pipeline_runs_run(pipeline_runs *r, const hp_io *io, int n, unsigned how) {
  HP_TRY(give(r, io, n));
  for (int k = 0; k < r->d->meshes; k++)
    if (r->mesh[k].of) r->mesh[k].of->how = how;
  HP_TRY(device_mesh_each(r->d, &(team_work){begin_run, run_device, r}));
  for (int k = 0; k < r->d->meshes; k++)
    if (r->mesh[k].of) HP_TRY(runs_fetch_outputs(r->mesh[k].of));
  return share_outputs(r);
}
